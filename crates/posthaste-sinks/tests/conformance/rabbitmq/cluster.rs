//! A cluster that has lost the majority of its nodes.

use std::{sync::Arc, time::Duration};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, LaneSpec, Outcome, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::rabbitmq::RabbitMqServer,
    sink_suite::{SuiteEvent, lane_spec},
};
use tokio::time::sleep;

use super::{read, trial};
use crate::driving::{accept, accepted, lane, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![trial(
        "a_quorum_queue_without_its_majority_takes_nothing_and_then_goes_on",
        a_quorum_queue_without_its_majority_takes_nothing_and_then_goes_on,
    )]
}

fn events(topic: &str, count: usize) -> Vec<SuiteEvent> {
    let event = |n: usize| SuiteEvent {
        topic: topic.to_owned(),
        ..SuiteEvent::new(Some(&format!("key-{n}")), format!("{topic} {n}"))
    };
    (0..count).map(event).collect()
}

async fn a_quorum_queue_without_its_majority_takes_nothing_and_then_goes_on() {
    let nodes = RabbitMqServer::start_cluster(3);
    let (living, dying) = nodes.split_first().unwrap();
    let client = living.client("/");
    client.declare_exchange("events", "topic");
    client.declare_queue("quorum", &[("x-queue-type", "quorum".into())]);
    client.declare_queue("here", &[]);
    dying[0].client("/").declare_queue("there", &[]);
    for queue in ["quorum", "here", "there"] {
        client.bind(queue, "events", queue);
    }
    let sink = open(&format!("{}?exchange=events", living.url("/"))).unwrap();
    let mut flight = lane(&sink).await;
    for topic in ["quorum", "here", "there"] {
        accept(&mut flight, &events(topic, 10)).await;
    }
    living.sync_declarations();
    dying.iter().for_each(RabbitMqServer::kill9);

    let lost = events("quorum", 10);
    // RabbitMQ reads nothing more from a connection whose first message such a queue cannot take.
    for outcome in send_in_time(&sink, &lost).await {
        let Outcome::Unavailable(why) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(why.cause, Cause::Unknown, "{why:?}");
        assert!(why.reason.contains("a quorum queue is without"), "{why:?}");
    }
    // A classic queue lives on one node: with it goes all that leads there.
    accept(&mut lane(&sink).await, &events("here", 10)).await;
    for outcome in send_in_time(&sink, &events("there", 10)).await {
        let Outcome::Rejected(why) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(why.kind, RejectionKind::Unroutable, "{why:?}");
    }

    dying.iter().for_each(RabbitMqServer::start_again);
    // Its topic is in doubt: a lane opens another connection for it.
    let mut flight = lane(&sink).await;
    while !send(&mut flight, &lost).await.iter().all(accepted) {
        sleep(Duration::from_millis(100)).await;
    }
    let arrived: Vec<SuiteEvent> = client
        .consume("quorum")
        .into_iter()
        .map(read::event)
        .collect();
    for event in lost {
        assert!(arrived.contains(&event), "{event:?}");
    }
}

async fn send_in_time(sink: &Arc<dyn Sink>, events: &[SuiteEvent]) -> Vec<Outcome> {
    let spec = LaneSpec {
        publish_timeout: Duration::from_secs(3),
        ..lane_spec(1)
    };
    send(&mut sink.open_lane(spec).await.unwrap(), events).await
}
