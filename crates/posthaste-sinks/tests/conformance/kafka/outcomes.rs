//! The broker's answers about an event, and the fate of the others.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Outcome, RejectionKind};
use posthaste_testkit::{
    servers::kafka::{Isolation, KafkaServer},
    sink_suite::{SuiteEvent, check_arrivals, records},
};
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, BaseRecord, Producer as _},
};

use super::{
    brokers::{self, consume, fresh_topic, noise},
    driving::{
        cause, drive, event, expect_accepted, expect_no_gap, lane, rejection, send, sink_at,
        submit, transactional,
    },
    trial,
};
use crate::trial::HANG;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_missing_topic_is_unroutable_and_delays_nobody_else",
            a_missing_topic_is_unroutable_and_delays_nobody_else,
        ),
        trial(
            "a_topic_of_the_brokers_own_is_rejected_and_delays_nobody_else",
            a_topic_of_the_brokers_own_is_rejected_and_delays_nobody_else,
        ),
        trial(
            "a_topic_of_the_brokers_own_is_rejected_and_delays_no_transaction",
            a_topic_of_the_brokers_own_is_rejected_and_delays_no_transaction,
        ),
        trial("a_topic_made_later_is_found", a_topic_made_later_is_found),
        trial(
            "a_broker_that_makes_topics_is_let_to",
            a_broker_that_makes_topics_is_let_to,
        ),
        trial(
            "names_that_are_no_topics_are_rejected",
            names_that_are_no_topics_are_rejected,
        ),
        trial(
            "times_before_1970_are_rejected_and_delay_nobody_else",
            times_before_1970_are_rejected_and_delay_nobody_else,
        ),
        trial(
            "oversized_events_are_found_in_their_batches",
            oversized_events_are_found_in_their_batches,
        ),
        trial(
            "an_oversized_event_that_is_tried_again_ends_no_lane",
            an_oversized_event_that_is_tried_again_ends_no_lane,
        ),
        trial(
            "an_oversized_event_that_is_tried_again_ends_no_transactional_lane",
            an_oversized_event_that_is_tried_again_ends_no_transactional_lane,
        ),
        trial(
            "a_topic_of_small_batches_takes_all_events",
            a_topic_of_small_batches_takes_all_events,
        ),
        trial(
            "a_topic_of_small_batches_takes_all_transactions",
            a_topic_of_small_batches_takes_all_transactions,
        ),
        trial(
            "events_without_a_key_are_found_on_a_compacted_topic",
            events_without_a_key_are_found_on_a_compacted_topic,
        ),
        trial(
            "nothing_of_a_key_overtakes_its_refusal_on_another_topic",
            nothing_of_a_key_overtakes_its_refusal_on_another_topic,
        ),
        trial(
            "nothing_of_a_key_overtakes_the_first_batch_of_a_partition",
            nothing_of_a_key_overtakes_the_first_batch_of_a_partition,
        ),
        trial(
            "keys_go_where_java_sends_them",
            keys_go_where_java_sends_them,
        ),
        trial(
            "a_partition_that_is_not_there_is_said",
            a_partition_that_is_not_there_is_said,
        ),
        trial(
            "events_of_no_record_key_keep_their_keys_order",
            events_of_no_record_key_keep_their_keys_order,
        ),
    ]
}

async fn a_missing_topic_is_unroutable_and_delays_nobody_else() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 2, &[]);
    let mut lane = lane(&sink).await;
    let events: Vec<SuiteEvent> = (0..40)
        .map(|n| match n % 4 {
            0 => event("missing", Some("lost"), "x"),
            1 => event(&topic, Some("lost"), "x"),
            _ => event(&topic, Some("kept"), "x"),
        })
        .collect();
    let outcomes = submit(&mut lane, records(&events, 0)).await;
    let why = rejection(&outcomes[&0]);
    assert_eq!(why.kind, RejectionKind::Unroutable);
    assert!(why.reason.contains("`missing`"), "{}", why.reason);
    assert!(why.reason.contains("create it"), "{}", why.reason);
    for (at, event) in events.iter().enumerate().skip(1) {
        match event.key.as_deref() {
            Some("kept") => assert!(matches!(outcomes[&at], Outcome::Accepted(_))),
            _ => assert_eq!(cause(&outcomes[&at]), Cause::BehindFailure),
        }
    }
    assert!(!brokers::topics(server).contains(&"missing".to_owned()));
}

/// No client may write to it.
async fn a_topic_of_the_brokers_own_is_rejected_and_delays_nobody_else() {
    of_the_brokers_own(|_| String::new()).await;
}

async fn a_topic_of_the_brokers_own_is_rejected_and_delays_no_transaction() {
    of_the_brokers_own(transactional).await;
}

async fn of_the_brokers_own(options: fn(&str) -> String) {
    const INTERNAL: &str = "__consumer_offsets";
    let server = KafkaServer::shared();
    let topic = fresh_topic(server, 2, &[]);
    let address = format!("kafka://{}{}", server.bootstrap(), options(&topic));
    let sink = posthaste_sinks::open(&address).unwrap();
    brokers::until_groups_are_kept(server, INTERNAL);
    let events: Vec<SuiteEvent> = (0..60)
        .map(|n| match n % 20 {
            7 => event(INTERNAL, Some("bad"), "x"),
            _ => event(&topic, Some(&format!("key-{}", n % 3)), format!("{n}")),
        })
        .collect();
    let driven = drive(&sink, &events).await;
    assert_eq!(driven.rejected.len(), 3);
    for why in driven.rejected.values() {
        assert_eq!(why.kind, RejectionKind::Invalid, "{}", why.reason);
    }
    assert_eq!(driven.accepted.len(), 57);
}

async fn a_topic_made_later_is_found() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 1, &[]);
    server.delete_topic(&topic);
    let mut lane = lane(&sink).await;
    let first = send(&mut lane, &event(&topic, None, "x")).await;
    assert_eq!(rejection(&first).kind, RejectionKind::Unroutable);
    brokers::create_topic(server, &topic, 1, &[]);
    // A refusal is remembered for a moment.
    tokio::time::timeout(HANG, async {
        while !matches!(
            send(&mut lane, &event(&topic, None, "x")).await,
            Outcome::Accepted(_)
        ) {}
    })
    .await
    .unwrap();
}

async fn a_broker_that_makes_topics_is_let_to() {
    let server = KafkaServer::start_with(&[("auto.create.topics.enable", "true")]);
    let sink = sink_at(&server.bootstrap());
    sink.check().await.unwrap();
    assert!(!brokers::topics(&server).contains(&"made".to_owned()));
    let mut lane = lane(&sink).await;
    expect_accepted(&mut lane, &event("made", Some("k"), "x")).await;
    assert_eq!(consume(&server, &["made"]).len(), 1);
}

async fn names_that_are_no_topics_are_rejected() {
    let sink = sink_at(&KafkaServer::shared().bootstrap());
    let mut lane = lane(&sink).await;
    for name in ["with space", "släsh", "a/b", "..", &"t".repeat(250)] {
        let outcome = send(&mut lane, &event(name, Some("k"), "x")).await;
        assert_eq!(rejection(&outcome).kind, RejectionKind::Invalid, "{name}");
    }
}

async fn times_before_1970_are_rejected_and_delay_nobody_else() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 1, &[]);
    let mut lane = lane(&sink).await;
    let mut early = event(&topic, Some("k"), "x");
    early.occurred_at = -1;
    let outcomes = submit(
        &mut lane,
        records(&[early, event(&topic, Some("other"), "x")], 0),
    )
    .await;
    assert_eq!(rejection(&outcomes[&0]).kind, RejectionKind::Invalid);
    assert!(matches!(outcomes[&1], Outcome::Accepted(_)));
}

/// Far below the size of a batch, so that each is refused together with good ones.
async fn oversized_events_are_found_in_their_batches() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 2, &[("max.message.bytes", "40000")]);
    let mut events: Vec<SuiteEvent> = (0..600)
        .map(|n| event(&topic, Some(&format!("key-{}", n % 7)), format!("{n}")))
        .collect();
    for bad in [0, 100, 333] {
        events[bad].payload = Some(noise(0, 60_000));
    }
    let driven = drive(&sink, &events).await;
    assert_eq!(driven.rejected.len(), 3);
    for bad in [0, 100, 333] {
        let why = &driven.rejected[&events[bad].id];
        assert_eq!(why.kind, RejectionKind::TooLarge);
        assert!(why.reason.contains("max.message.bytes"), "{}", why.reason);
    }
    driven.expect_arrivals(server, &[&topic]);
}

async fn an_oversized_event_that_is_tried_again_ends_no_lane() {
    oversized_again(|_| String::new()).await;
}

async fn an_oversized_event_that_is_tried_again_ends_no_transactional_lane() {
    oversized_again(transactional).await;
}

/// It is far smaller than the smallest batches that are made for a topic which refuses large ones.
async fn oversized_again(options: fn(&str) -> String) {
    let server = KafkaServer::shared();
    let topic = fresh_topic(server, 2, &[("max.message.bytes", "4000")]);
    let address = format!("kafka://{}{}", server.bootstrap(), options(&topic));
    let sink = posthaste_sinks::open(&address).unwrap();
    let mut events: Vec<SuiteEvent> = (0..9)
        .map(|n| event(&topic, Some(&format!("key-{n}")), format!("{n}")))
        .collect();
    const BAD: usize = 4;
    events[BAD].payload = Some(noise(0, 8_000));
    // By and by, with lanes that end.
    let driven = drive(&sink, &events).await;
    assert!(driven.rejected.contains_key(&events[BAD].id));

    let mut lane = lane(&sink).await;
    lane.take_over().await.unwrap();
    for _ in 0..2 {
        let again: Vec<SuiteEvent> = (0..9)
            .map(|n| match n {
                BAD => events[BAD].clone(),
                n => event(&topic, Some(&format!("key-{n}")), format!("{n}")),
            })
            .collect();
        let mut outcomes = submit(&mut lane, records(&again, 0)).await;
        let why = rejection(&outcomes.remove(&BAD).unwrap()).clone();
        assert_eq!(why.kind, RejectionKind::TooLarge);
        for outcome in outcomes.values() {
            assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
        }
    }
}

async fn a_topic_of_small_batches_takes_all_events() {
    small_batches(|_| String::new()).await;
}

async fn a_topic_of_small_batches_takes_all_transactions() {
    small_batches(transactional).await;
}

async fn small_batches(options: fn(&str) -> String) {
    let server = KafkaServer::shared();
    let topic = fresh_topic(server, 2, &[("max.message.bytes", "20000")]);
    let address = format!("kafka://{}{}", server.bootstrap(), options(&topic));
    let sink = posthaste_sinks::open(&address).unwrap();
    let events: Vec<SuiteEvent> = (0..600)
        .map(|n| event(&topic, Some(&format!("key-{}", n % 7)), noise(n, 1_000)))
        .collect();
    let (first, later) = events.split_at(400);
    let driven = drive(&sink, first).await;
    assert!(driven.rejected.is_empty(), "{:?}", driven.rejected);
    assert!(
        driven.lanes > 1,
        "no batch was too large: the test proves nothing"
    );
    // Known by then.
    let again = drive(&sink, later).await;
    assert_eq!((again.accepted.len(), again.lanes), (later.len(), 1));
    server.settle_transactions();
    let messages = server.consume_as(&[&topic], Isolation::ReadCommitted);
    let arrived: Vec<SuiteEvent> = messages.iter().map(brokers::read).collect();
    let sent = [driven.sent, again.sent].concat();
    let accepted = &driven.accepted | &again.accepted;
    check_arrivals(&sent, &accepted, &arrived).unwrap();
}

async fn events_without_a_key_are_found_on_a_compacted_topic() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 1, &[("cleanup.policy", "compact")]);
    let events: Vec<SuiteEvent> = (0..200)
        .map(|n| {
            let key = format!("key-{}", n % 7);
            event(&topic, (n % 90 != 50).then_some(&*key), format!("{n}"))
        })
        .collect();
    let driven = drive(&sink, &events).await;
    assert_eq!(driven.rejected.len(), 2);
    for bad in [50, 140] {
        let why = &driven.rejected[&events[bad].id];
        assert_eq!(why.kind, RejectionKind::Invalid, "{}", why.reason);
    }
    driven.expect_arrivals(server, &[&topic]);
}

/// The broker keeps no order between two topics, so the second record must wait for the first.
async fn nothing_of_a_key_overtakes_its_refusal_on_another_topic() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let compacted = fresh_topic(server, 1, &[("cleanup.policy", "compact")]);
    let other = fresh_topic(server, 1, &[]);
    let mut lane = lane(&sink).await;
    // So that both partitions know the producer.
    expect_accepted(&mut lane, &event(&compacted, Some("k"), "x")).await;
    expect_accepted(&mut lane, &event(&other, Some("k"), "x")).await;
    let events = [
        event(&compacted, Some("k"), "refused: it has no key there"),
        event(&other, Some("k"), "not before the first"),
    ];
    let mut batch = records(&events, 0);
    batch[0] = batch[0].clone().with_key(None);
    let outcomes = submit(&mut lane, batch).await;
    expect_no_gap(&events, &outcomes);
    lane.abort().await;
    assert_eq!(consume(server, &[&other]).len(), 1);
    // The same with nothing refused: both arrive.
    let driven = drive(
        &sink,
        &[event(&compacted, Some("k"), "1"), events[1].clone()],
    )
    .await;
    assert_eq!(driven.accepted.len(), 2);
    assert_eq!(driven.lanes, 1);
}

/// A broker takes any first sequence number of a producer that is new to a partition: behind a
/// refused first batch it takes the second.
async fn nothing_of_a_key_overtakes_the_first_batch_of_a_partition() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 1, &[("max.message.bytes", "500000")]);
    // Two do not fit into one batch.
    let events = [600_000, 450_000].map(|len| event(&topic, Some("k"), noise(0, len)));
    let mut lane = lane(&sink).await;
    let outcomes = submit(&mut lane, records(&events, 0)).await;
    expect_no_gap(&events, &outcomes);
    lane.abort().await;
    assert!(consume(server, &[&topic]).is_empty());
    let driven = drive(&sink, &events).await;
    assert_eq!(driven.rejected.len(), 1);
    driven.expect_arrivals(server, &[&topic]);
}

async fn keys_go_where_java_sends_them() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let (ours, theirs) = (fresh_topic(server, 7, &[]), fresh_topic(server, 7, &[]));
    let keys: Vec<String> = (0..200)
        .map(|n| "k".repeat(n % 9) + &n.to_string())
        .collect();
    let events: Vec<SuiteEvent> = keys
        .iter()
        .map(|key| event(&ours, Some(key), "x"))
        .chain([event(&ours, Some(""), "x")])
        .collect();
    drive(&sink, &events).await;
    let bare: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", server.bootstrap())
        .set("partitioner", "murmur2_random")
        .create()
        .unwrap();
    for event in &events {
        let key = event.key.as_deref().unwrap();
        bare.send(BaseRecord::to(&theirs).key(key).payload("x"))
            .map_err(|(error, _)| error)
            .unwrap();
    }
    bare.flush(HANG).unwrap();
    let places = |topic: &str| {
        let messages = consume(server, &[topic]).into_iter();
        let mut places: Vec<_> = messages.map(|m| (m.key, m.partition)).collect();
        places.sort_unstable();
        places
    };
    assert_eq!(places(&ours), places(&theirs));
}

async fn events_of_no_record_key_keep_their_keys_order() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 5, &[]);
    let events: Vec<SuiteEvent> = (0..50)
        .map(|n| event(&topic, Some("order"), format!("{n:02}")))
        .collect();
    let batch = records(&events, 0)
        .into_iter()
        .map(|record| record.with_key(None))
        .collect();
    let mut lane = lane(&sink).await;
    submit(&mut lane, batch).await;
    let messages = consume(server, &[&topic]);
    assert_eq!(messages.len(), 50);
    assert!(messages.iter().all(|m| m.key.is_none()));
    let partition = messages[0].partition;
    assert!(messages.iter().all(|m| m.partition == partition));
    assert!(messages.is_sorted_by(|a, b| a.value < b.value));
}

async fn a_partition_that_is_not_there_is_said() {
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 3, &[]);
    let events = [1, 3].map(|n| event(&topic, None, n.to_string()));
    let batch = records(&events, 0).into_iter().zip([1, 3]);
    let batch = batch.map(|(record, partition)| record.with_partition(partition));
    let mut lane = lane(&sink).await;
    let outcomes = submit(&mut lane, batch.collect()).await;
    assert!(matches!(outcomes[&0], Outcome::Accepted(_)));
    let why = rejection(&outcomes[&1]);
    assert_eq!(why.kind, RejectionKind::Unroutable);
    assert!(
        why.reason.contains("3 partitions, and no partition 3"),
        "{}",
        why.reason
    );
}
