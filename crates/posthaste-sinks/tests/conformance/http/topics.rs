//! An endpoint for each topic: what one of them does is its topic's.

use std::time::Duration;

use libtest_mimic::Trial;
use posthaste_engine::{Outcome, RejectionKind};
use posthaste_testkit::{servers::http::WebhookServer, sink_suite::SuiteEvent};
use serde_json::json;

use super::{
    place::{Place, beside, put_off, rejection, short},
    trial,
};
use crate::driving::{accept, accepted, lane, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("topics_have_their_endpoints", topics_have_their_endpoints),
        trial(
            "a_fault_of_one_endpoint_is_its_topic_s",
            a_fault_of_one_endpoint_is_its_topic_s,
        ),
        trial(
            "a_silent_endpoint_is_its_topic_s",
            a_silent_endpoint_is_its_topic_s,
        ),
        trial(
            "silent_and_broken_endpoints_end_no_lane_of_topics",
            silent_and_broken_endpoints_end_no_lane_of_topics,
        ),
        trial(
            "topics_that_make_no_path_are_refused",
            topics_that_make_no_path_are_refused,
        ),
    ]
}

fn of_topic(topic: &str) -> SuiteEvent {
    let mut event = SuiteEvent::new(Some(topic), "x");
    event.topic = topic.to_owned();
    event
}

async fn topics_have_their_endpoints() {
    let place = Place::new(WebhookServer::shared());
    let events = [of_topic("orders"), of_topic("a/../b?c"), of_topic("žluť")];
    accept(&mut lane(&place.sink_of_topics()).await, &events).await;
    let requests = place.requests();
    let mut targets: Vec<_> = requests.iter().map(|request| &*request.target).collect();
    targets.sort_unstable();
    let expected = ["a%2F..%2Fb%3Fc", "orders", "%C5%BElu%C5%A5"];
    let mut expected = expected.map(|part| format!("/{}/{part}", place.name));
    expected.sort_unstable();
    assert_eq!(targets, expected);
}

async fn a_fault_of_one_endpoint_is_its_topic_s() {
    let place = Place::new(WebhookServer::shared());
    let mut flight = lane(&place.sink_of_topics()).await;
    for (status, wait) in [
        (302, None),
        (410, Some(Duration::from_secs(300))),
        (429, Some(Duration::from_secs(9))),
        (500, Some(Duration::from_secs(9))),
        (503, Some(Duration::from_secs(9))),
    ] {
        let headers = match wait {
            Some(_) => json!({ "Retry-After": "9" }),
            None => json!({}),
        };
        place.fail(&json!({ "status": status, "headers": headers, "only": "/bad" }));
        let events = [of_topic("bad"), of_topic("good")];
        let outcomes = send(&mut flight, &events).await;
        let why = put_off(&outcomes[0]);
        assert_eq!(why.wait, wait, "{status}");
        let told = format!("the endpoint of topic `bad` answered {status}");
        assert!(why.reason.starts_with(&told), "{}", why.reason);
        assert!(!why.is_silent && accepted(&outcomes[1]), "{outcomes:?}");
    }
    for act in ["reset", "garbage"] {
        place.fail(&json!({ "act": act, "only": "/bad" }));
        let outcomes = send(&mut flight, &[of_topic("bad"), of_topic("good")]).await;
        let why = put_off(&outcomes[0]);
        assert!(
            why.reason.starts_with("the endpoint of topic `bad`"),
            "{}",
            why.reason
        );
        assert!(!why.is_silent && accepted(&outcomes[1]), "{outcomes:?}");
    }
    for status in [401, 403] {
        place.fail(&json!({}));
        accept(&mut flight, &[of_topic("bad")]).await;
        place.fail(&json!({ "status": status, "only": "/bad" }));
        // It may be over this event, until another one is denied.
        let outcomes = send(&mut flight, &[of_topic("bad"), of_topic("good")]).await;
        assert_eq!(rejection(&outcomes[0]).0, RejectionKind::Denied);
        assert!(accepted(&outcomes[1]), "{outcomes:?}");
        let outcomes = send(&mut flight, &[of_topic("bad"), of_topic("good")]).await;
        let why = put_off(&outcomes[0]);
        assert!(why.reason.contains("correct the login"), "{}", why.reason);
        assert!(accepted(&outcomes[1]), "{outcomes:?}");
    }
}

/// The host is there, as it lets us connect.
async fn silent_and_broken_endpoints_end_no_lane_of_topics() {
    let place = Place::new(WebhookServer::shared());
    let sink = place.sink_of_topics();
    for (act, is_silent) in [("silent", true), ("reset", false), ("garbage", false)] {
        place.fail(&json!({ "act": act, "only": "/bad" }));
        let mut flight = sink.open_lane(short(1)).await.unwrap();
        let outcomes = send(&mut flight, &[of_topic("bad")]).await;
        assert_eq!(put_off(&outcomes[0]).is_silent, is_silent, "{act}");
        accept(&mut flight, &[of_topic("good")]).await;
    }
}

/// The host is there, as it answers others.
async fn a_silent_endpoint_is_its_topic_s() {
    let place = Place::new(WebhookServer::shared());
    let sink = place.sink_of_topics();
    for act in ["silent", "drip"] {
        place.fail(&json!({ "act": act, "only": "/bad" }));
        let mut flight = sink.open_lane(short(1)).await.unwrap();
        let outcome = beside(&mut flight, &of_topic("bad"), || of_topic("good")).await;
        let why = put_off(&outcome);
        assert!(why.reason.contains("within 900ms"), "{}", why.reason);
        assert!(!why.is_silent, "{why:?}");
    }
}

async fn topics_that_make_no_path_are_refused() {
    let place = Place::new(WebhookServer::shared());
    let mut flight = lane(&place.sink_of_topics()).await;
    for topic in ["..", ".", &"t".repeat(3_000)] {
        let outcomes: Vec<Outcome> = send(&mut flight, &[of_topic(topic)]).await;
        assert_eq!(rejection(&outcomes[0]).0, RejectionKind::Invalid, "{topic}");
    }
    assert!(place.requests().is_empty());
}
