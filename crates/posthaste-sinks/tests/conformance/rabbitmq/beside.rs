//! Topics in doubt, which go over connections beside.

use std::{sync::Arc, time::Duration};

use libtest_mimic::Trial;
use posthaste_engine::{Lane, LaneSpec, Outcome, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::rabbitmq::{RabbitMqClient, RabbitMqServer},
    sink_suite::{SuiteEvent, lane_spec, records},
};
use tokio::time::{sleep, timeout};

use super::trial;
use crate::driving::{accept, accepted, lane, send, settle};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_confirm_right_before_the_end_of_a_connection_beside_counts",
            a_confirm_right_before_the_end_of_a_connection_beside_counts,
        ),
        trial(
            "without_another_connection_a_topic_in_doubt_goes_over_the_lanes_own",
            without_another_connection_a_topic_in_doubt_goes_over_the_lanes_own,
        ),
    ]
}

fn event(n: usize) -> SuiteEvent {
    SuiteEvent {
        topic: "doubted".to_owned(),
        ..SuiteEvent::new(Some(&format!("key-{n}")), n.to_string())
    }
}

fn declare(client: &RabbitMqClient) {
    client.declare_exchange("events", "topic");
    client.declare_queue("queue", &[]);
    client.bind("queue", "events", "*");
}

/// A sink of which the topic of all events is in doubt, since the network froze over one.
async fn in_doubt(server: &RabbitMqServer, proxy: &Proxy) -> Arc<dyn Sink> {
    declare(&server.client("/"));
    let url = server.url_through(proxy, "/");
    let sink = open(&format!("{url}?exchange=events")).unwrap();
    let spec = LaneSpec {
        publish_timeout: Duration::from_secs(1),
        ..lane_spec(1)
    };
    let mut frozen = sink.open_lane(spec).await.unwrap();
    proxy.freeze();
    let outcomes = send(&mut frozen, &[event(0)]).await;
    assert!(
        matches!(outcomes[0], Outcome::Unavailable(_)),
        "{outcomes:?}"
    );
    frozen.abort().await;
    sink
}

/// Sends this until it is accepted, and answers the reasons why it was not.
async fn until_accepted(lane: &mut Box<dyn Lane>, event: SuiteEvent) -> Vec<String> {
    let mut reasons = Vec::new();
    loop {
        match send(lane, std::slice::from_ref(&event)).await.remove(0) {
            Outcome::Accepted(_) => return reasons,
            Outcome::Later(why) => reasons.push(why.reason),
            outcome => panic!("{outcome:?}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn a_confirm_right_before_the_end_of_a_connection_beside_counts() {
    let server = RabbitMqServer::start();
    let client = server.client("/");
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = in_doubt(&server, &proxy).await;
    let mut flight = lane(&sink).await;
    let reasons = until_accepted(&mut flight, event(1)).await;
    assert!(reasons[0].contains("another connection"), "{reasons:?}");

    // Both are read at once: the confirm, and that the broker closes the channel.
    proxy.hold_answers();
    flight.submit(records(&[event(2)], 0)).await;
    while client.message_count("queue") < 2 {
        sleep(Duration::from_millis(50)).await;
    }
    client.delete_exchange("events");
    flight.submit(records(&[event(3)], 1)).await;
    sleep(Duration::from_millis(500)).await;
    proxy.resume();
    let both = timeout(Duration::from_secs(3), settle(&mut flight, 2)).await;
    let both = both.expect("a verdict for each");
    assert!(accepted(&both[0]), "{both:?}");
    assert!(!accepted(&both[1]), "{both:?}");
}

async fn without_another_connection_a_topic_in_doubt_goes_over_the_lanes_own() {
    let server = RabbitMqServer::start();
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let sink = in_doubt(&server, &proxy).await;
    let mut flight = lane(&sink).await;
    let limit = r#"{"max-connections": 1}"#;
    server.ctl(&["set_vhost_limits", "-p", "/", limit]);
    until_accepted(&mut flight, event(1)).await;
    accept(&mut flight, &[event(2)]).await;
}
