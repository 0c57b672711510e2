//! Topics in great number, and topics that change.

use libtest_mimic::Trial;
use posthaste_engine::{Lane, Outcome, Record, RejectionKind};
use posthaste_testkit::{
    long_form,
    servers::kafka::KafkaServer,
    sink_suite::{SuiteEvent, records},
};

use super::{
    brokers::{consume, create_topic, fresh_topic},
    driving::{Outcomes, answers, event, lane, rejection, sink_at, submit, transactional},
    trial,
};

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($test:ident),+ $(,)?) => { vec![$(trial(stringify!($test), $test)),+] };
    }
    trials![
        many_missing_topics_delay_nobody_else,
        many_missing_topics_delay_no_transaction,
        many_existing_topics_make_no_lane_late,
        a_broker_that_makes_topics_makes_many,
        a_topic_made_anew_with_fewer_partitions_is_named_and_looked_up_again,
        a_topic_made_anew_with_fewer_partitions_is_named_by_a_transaction,
        a_transaction_for_a_partition_that_is_gone_names_its_topic,
    ]
}

/// An event to each of so many topics that do not exist, each with a key of its own, and good ones
/// behind them.
fn burst(missing: usize, topic: &str) -> Vec<SuiteEvent> {
    let bad = |n| event(&format!("missing-{n}"), Some(&format!("lost-{n}")), "x");
    let good = |n| event(topic, Some(&format!("kept-{n}")), "x");
    (0..missing).map(bad).chain((0..60).map(good)).collect()
}

/// The sink's own batches.
async fn submit_all(lane: &mut Box<dyn Lane>, events: &[SuiteEvent]) -> Outcomes {
    const BATCH: usize = 1_000;
    for (batch, first) in events.chunks(BATCH).zip((0..).step_by(BATCH)) {
        lane.submit(records(batch, first)).await;
    }
    answers(lane, events.len()).await
}

fn expect_missing_alone(events: &[SuiteEvent], missing: usize, outcomes: &Outcomes) {
    for (at, outcome) in outcomes {
        if *at >= missing {
            assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
            continue;
        }
        let why = rejection(outcome);
        assert_eq!(why.kind, RejectionKind::Unroutable, "{}", why.reason);
        let name = format!("`{}`", events[*at].topic);
        assert!(why.reason.contains(&name), "{}", why.reason);
    }
}

/// More than can be asked for by name within a publish time-out.
async fn many_missing_topics_delay_nobody_else() {
    let missing = if long_form() { 3_900 } else { 600 };
    let server = KafkaServer::shared();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(server, 2, &[]);
    let events = burst(missing, &topic);
    for _ in 0..2 {
        let mut lane = lane(&sink).await;
        let outcomes = submit_all(&mut lane, &events).await;
        expect_missing_alone(&events, missing, &outcomes);
        lane.abort().await;
    }
}

async fn many_missing_topics_delay_no_transaction() {
    const MISSING: usize = 600;
    let server = KafkaServer::shared();
    let topic = fresh_topic(server, 2, &[]);
    let address = format!("kafka://{}{}", server.bootstrap(), transactional(&topic));
    let sink = posthaste_sinks::open(&address).unwrap();
    let events = burst(MISSING, &topic);
    for _ in 0..2 {
        let mut lane = lane(&sink).await;
        lane.take_over().await.unwrap();
        let outcomes = submit_all(&mut lane, &events).await;
        expect_missing_alone(&events, MISSING, &outcomes);
        lane.abort().await;
    }
}

/// Each event goes to a topic that no event went to before.
async fn many_existing_topics_make_no_lane_late() {
    let count = if long_form() { 2_000 } else { 300 };
    let server = KafkaServer::start();
    let sink = sink_at(&server.bootstrap());
    let names: Vec<String> = (0..count).map(|n| format!("existing-{n}")).collect();
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    server.create_topics(&topics, 1, &[("retention.ms", "-1")]);
    let to_each = |topic: &&str| event(topic, Some(topic), "x");
    let events: Vec<SuiteEvent> = topics.iter().map(to_each).collect();
    for _ in 0..2 {
        let mut lane = lane(&sink).await;
        let outcomes = submit_all(&mut lane, &events).await;
        for outcome in outcomes.values() {
            assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
        }
        lane.close(crate::trial::HANG).await;
    }
    assert_eq!(consume(&server, &topics[..10]).len(), 20);
}

/// It is asked by name for each topic, though so many are not waited for.
async fn a_broker_that_makes_topics_makes_many() {
    const MADE: usize = 40;
    // The events are years old.
    let settings = [
        ("auto.create.topics.enable", "true"),
        ("log.retention.ms", "-1"),
    ];
    let server = KafkaServer::start_with(&settings);
    let sink = sink_at(&server.bootstrap());
    let names: Vec<String> = (0..MADE).map(|n| format!("made-{n}")).collect();
    let mut pending: Vec<SuiteEvent> = names
        .iter()
        .map(|topic| event(topic, Some(topic), "x"))
        .collect();
    let mut lane = lane(&sink).await;
    while !pending.is_empty() {
        let outcomes = submit(&mut lane, records(&pending, 0)).await;
        let mut outcomes = outcomes.into_values();
        pending.retain(|_| match outcomes.next() {
            Some(Outcome::Accepted(_)) => false,
            Some(refused) => rejection(&refused).kind == RejectionKind::Unroutable,
            None => panic!("not answered"),
        });
    }
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(consume(&server, &topics).len(), MADE);
}

async fn a_topic_made_anew_with_fewer_partitions_is_named_and_looked_up_again() {
    let topic = fresh_topic(KafkaServer::shared(), 6, &[]);
    shrink(&topic, |_| String::new(), |record| record).await;
}

async fn a_topic_made_anew_with_fewer_partitions_is_named_by_a_transaction() {
    let topic = fresh_topic(KafkaServer::shared(), 6, &[]);
    shrink(&topic, transactional, |record| record).await;
}

/// The broker tells of this topic before it tells of its progress topic (by the hashes of their
/// names in Java): then the client asks it for the partition again and again.
async fn a_transaction_for_a_partition_that_is_gone_names_its_topic() {
    let server = KafkaServer::shared();
    create_topic(server, "cut", 6, &[]);
    shrink("cut", transactional, |record| record.with_partition(5)).await;
}

/// A topic of six partitions that has one later. `behind`: the records that are submitted then.
async fn shrink(topic: &str, options: fn(&str) -> String, behind: fn(Record) -> Record) {
    let server = KafkaServer::shared();
    let address = format!("kafka://{}{}", server.bootstrap(), options(topic));
    let sink = posthaste_sinks::open(&address).unwrap();
    let events = |first: usize| -> Vec<SuiteEvent> {
        let key = |n: usize| format!("key-{n}");
        let range = first..first + 60;
        range.map(|n| event(topic, Some(&key(n)), "x")).collect()
    };
    let mut open = lane(&sink).await;
    open.take_over().await.unwrap();
    for outcome in submit(&mut open, records(&events(0), 0)).await.values() {
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    server.delete_topic(topic);
    create_topic(server, topic, 1, &[]);
    let behind = records(&events(60), 0).into_iter().map(behind);
    let outcomes = submit(&mut open, behind.collect()).await;
    open.abort().await;
    let reasons = outcomes.values().filter_map(|outcome| match outcome {
        Outcome::Unavailable(why) => Some(&why.reason),
        _ => None,
    });
    let reasons: Vec<_> = reasons.collect();
    assert_ne!(
        reasons, [""; 0],
        "keys of the other partitions were accepted"
    );
    let named = format!("`{topic}`");
    for reason in reasons {
        assert!(reason.contains(&named), "{reason}");
    }
    let mut open = lane(&sink).await;
    open.take_over().await.unwrap();
    for outcome in submit(&mut open, records(&events(120), 0)).await.values() {
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
}
