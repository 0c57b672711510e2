//! Brokers that stop, stall, or fall silent.

use std::{collections::BTreeSet, process::Command, time::Duration};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, LaneSpec, Outcome, SinkError};
use posthaste_testkit::{
    process,
    servers::kafka::KafkaServer,
    sink_suite::{SuiteEvent, check_arrivals, impatient, lane_spec, records},
};

use super::{
    brokers::{self, Broker, consume, fresh_topic, noise},
    driving::{
        answers, cause, drive_by, event, expect_accepted, expect_no_gap, lane, lane_with, sink_at,
        submit,
    },
    trial,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_stopped_broker_is_unavailable_and_resumes",
            a_stopped_broker_is_unavailable_and_resumes,
        ),
        trial(
            "a_short_restart_loses_and_repeats_nothing",
            a_short_restart_loses_and_repeats_nothing,
        ),
        trial(
            "accepted_events_survive_a_killed_broker",
            accepted_events_survive_a_killed_broker,
        ),
        trial(
            "a_quota_delays_and_refuses_nothing",
            a_quota_delays_and_refuses_nothing,
        ),
        trial(
            "an_answer_that_never_comes_is_no_acceptance",
            an_answer_that_never_comes_is_no_acceptance,
        ),
        trial(
            "a_half_open_connection_is_noticed",
            a_half_open_connection_is_noticed,
        ),
        trial(
            "a_partition_is_not_silent_where_an_event_ends_each_connection",
            a_partition_is_not_silent_where_an_event_ends_each_connection,
        ),
        trial(
            "an_overdue_producer_is_destroyed_though_nobody_asks",
            an_overdue_producer_is_destroyed_though_nobody_asks,
        ),
        trial(
            "abort_leaves_nothing_in_the_clients_queue",
            abort_leaves_nothing_in_the_clients_queue,
        ),
    ]
}

fn events(topic: &str, count: usize) -> Vec<SuiteEvent> {
    (0..count)
        .map(|n| event(topic, Some(&format!("key-{}", n % 7)), format!("{n}")))
        .collect()
}

async fn a_stopped_broker_is_unavailable_and_resumes() {
    let server = KafkaServer::start();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(&server, 1, &[]);
    let mut open = lane_with(&sink, impatient(lane_spec(1))).await;
    expect_accepted(&mut open, &event(&topic, Some("k"), "1")).await;
    server.stop();
    let outcomes = submit(&mut open, records(&events(&topic, 20), 0)).await;
    for outcome in outcomes.values() {
        assert_eq!(cause(outcome), Cause::Connection, "{outcome:?}");
    }
    open.abort().await;
    for error in [
        sink.check().await.unwrap_err(),
        sink.open_lane(impatient(lane_spec(2))).await.err().unwrap(),
    ] {
        assert!(matches!(error, SinkError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("Connection refused"), "{error}");
    }
    server.start_again();
    let mut again = lane(&sink).await;
    expect_accepted(&mut again, &event(&topic, Some("k"), "2")).await;
}

/// Shorter than the publish time-out, the outage is bridged by the client, whose sequence numbers
/// keep repeats out.
async fn a_short_restart_loses_and_repeats_nothing() {
    let broker = Broker::take();
    let server = broker.server();
    let sink = sink_at(&broker.bootstrap());
    let topic = fresh_topic(server, 3, &[]);
    let mut lane = lane(&sink).await;
    let sent = events(&topic, 6_000);
    let mut accepted = 0;
    for (turn, batch) in sent.chunks(500).enumerate() {
        lane.submit(records(batch, turn as u64 * 500)).await;
        if turn % 3 == 2 {
            // With answers on their way.
            broker.proxy().cut();
        }
    }
    for outcome in answers(&mut lane, sent.len()).await.values() {
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
        accepted += 1;
    }
    assert_eq!(accepted, sent.len());
    let all: BTreeSet<_> = sent.iter().map(|event| event.id).collect();
    let arrived: Vec<_> = consume(server, &[&topic])
        .iter()
        .map(brokers::read)
        .collect();
    check_arrivals(&sent, &all, &arrived).unwrap();
}

async fn accepted_events_survive_a_killed_broker() {
    let server = KafkaServer::start();
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(&server, 3, &[]);
    let mut open = lane_with(&sink, impatient(lane_spec(1))).await;
    let sent = events(&topic, 3_000);
    for (turn, batch) in sent.chunks(500).enumerate() {
        open.submit(records(batch, turn as u64 * 500)).await;
    }
    let mut outcomes = answers(&mut open, 1_000).await;
    server.kill9();
    outcomes.append(&mut answers(&mut open, sent.len() - outcomes.len()).await);
    expect_no_gap(&sent, &outcomes);
    open.abort().await;
    server.start_again();
    let ids = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Accepted(_)))
        .map(|(at, _)| sent[*at].id);
    let accepted: BTreeSet<_> = ids.collect();
    let messages = consume(&server, &[&topic]);
    let arrived: Vec<_> = messages.iter().map(brokers::read).collect();
    check_arrivals(&sent, &accepted, &arrived).unwrap();
}

async fn a_quota_delays_and_refuses_nothing() {
    let server = KafkaServer::start();
    // Kafka's own tool: the client library cannot set quotas.
    let mut tool = Command::new("java");
    tool.arg("-cp")
        .arg(KafkaServer::jars().join("*"))
        .args(["kafka.admin.ConfigCommand", "--bootstrap-server"])
        .arg(server.bootstrap())
        .args(["--alter", "--entity-type", "clients", "--entity-default"])
        .args(["--add-config", "producer_byte_rate=100000"]);
    process::run(&mut tool, Duration::from_secs(120)).expect_status(0);
    let sink = sink_at(&server.bootstrap());
    let topic = fresh_topic(&server, 1, &[]);
    // Far above the quota's second, and incompressible; a lane may end for lack of answers.
    let sent: Vec<_> = (0..60)
        .map(|n| event(&topic, Some(&format!("key-{}", n % 7)), noise(n, 10_000)))
        .collect();
    let driven = drive_by(&sink, &sent, impatient(lane_spec(1))).await;
    assert_eq!(driven.accepted.len(), sent.len());
    assert!(driven.rejected.is_empty(), "{:?}", driven.rejected);
}

async fn an_answer_that_never_comes_is_no_acceptance() {
    let broker = Broker::take();
    let server = broker.server();
    let sink = sink_at(&broker.bootstrap());
    let topic = fresh_topic(server, 1, &[]);
    let mut lane = lane_with(&sink, impatient(lane_spec(1))).await;
    expect_accepted(&mut lane, &event(&topic, Some("k"), "1")).await;
    broker.proxy().hold_answers();
    let outcomes = submit(&mut lane, records(&events(&topic, 10), 0)).await;
    for outcome in outcomes.values() {
        assert_eq!(cause(outcome), Cause::Unknown, "{outcome:?}");
    }
    lane.abort().await;
    // It did arrive: to take this for a failure of the events would be as wrong.
    assert_eq!(consume(server, &[&topic]).len(), 11);
}

async fn a_half_open_connection_is_noticed() {
    let broker = Broker::take();
    let server = broker.server();
    let sink = sink_at(&broker.bootstrap());
    let topic = fresh_topic(server, 1, &[]);
    let mut open = lane_with(&sink, impatient(lane_spec(1))).await;
    expect_accepted(&mut open, &event(&topic, Some("k"), "1")).await;
    broker.proxy().half_close();
    let outcomes = submit(&mut open, records(&events(&topic, 10), 0)).await;
    for outcome in outcomes.values() {
        assert_eq!(cause(outcome), Cause::Connection, "{outcome:?}");
    }
    open.abort().await;
    broker.proxy().resume();
    let mut again = lane(&sink).await;
    expect_accepted(&mut again, &event(&topic, Some("k"), "2")).await;
}

/// Another partition accepts an event meanwhile, and the leader answers questions: both between two
/// tries.
async fn a_partition_is_not_silent_where_an_event_ends_each_connection() {
    let broker = Broker::take();
    let server = broker.server();
    let sink = sink_at(&format!("{}?compression=none", broker.bootstrap()));
    let [topic, other] = [(); 2].map(|()| fresh_topic(server, 1, &[]));
    let mut lane = lane_with(&sink, impatient(lane_spec(1))).await;
    for topic in [&topic, &other] {
        expect_accepted(&mut lane, &event(topic, Some("k"), "1")).await;
    }
    broker.proxy().cut_at(b"ends each connection");
    let sent = [
        event(&topic, Some("bad"), "ends each connection"),
        event(&other, Some("good"), "2"),
    ];
    let outcomes = submit(&mut lane, records(&sent, 0)).await;
    assert!(matches!(outcomes[&1], Outcome::Accepted(_)), "{outcomes:?}");
    assert_eq!(cause(&outcomes[&0]), Cause::Connection, "{outcomes:?}");
}

/// The task that runs the lane may be stuck: the lane's own thread ends the producer.
async fn an_overdue_producer_is_destroyed_though_nobody_asks() {
    const NUMBER: u64 = 7_351;
    let broker = Broker::take();
    let server = broker.server();
    let sink = sink_at(&broker.bootstrap());
    let topic = fresh_topic(server, 1, &[]);
    let spec = LaneSpec {
        number: NUMBER,
        ..impatient(lane_spec(1))
    };
    let mut lane = lane_with(&sink, spec).await;
    expect_accepted(&mut lane, &event(&topic, Some("k"), "1")).await;
    broker.proxy().stall();
    lane.submit(records(&events(&topic, 10), 0)).await;
    assert!(brokers::has_thread(&format!("kafka-lane-{NUMBER}")));
    while brokers::has_thread(&format!("kafka-lane-{NUMBER}")) {
        tokio::task::yield_now().await;
    }
    for outcome in answers(&mut lane, 10).await.values() {
        assert_eq!(cause(outcome), Cause::Unknown, "{outcome:?}");
    }
}

async fn abort_leaves_nothing_in_the_clients_queue() {
    let broker = Broker::take();
    let server = broker.server();
    let sink = sink_at(&broker.bootstrap());
    let topic = fresh_topic(server, 1, &[]);
    let mut lane = lane(&sink).await;
    expect_accepted(&mut lane, &event(&topic, Some("k"), "1")).await;
    broker.proxy().stall();
    // Far more than the connection's buffers hold.
    let sent: Vec<SuiteEvent> = (0..2_000)
        .map(|n| event(&topic, Some("k"), noise(n, 10_000)))
        .collect();
    for batch in sent.chunks(100) {
        lane.submit(records(batch, 0)).await;
    }
    lane.abort().await;
    broker.proxy().resume();
    while broker.proxy().connections() > 0 {
        tokio::task::yield_now().await;
    }
    let mut next = super::driving::lane(&sink).await;
    expect_accepted(&mut next, &event(&topic, Some("k"), "2")).await;
    let arrived = consume(server, &[&topic]).len();
    assert!(arrived < 2 + sent.len() / 2, "{arrived} arrived");
}
