//! The meaning of refusals, of one event, of a topic, and of all.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Outcome, RejectionKind};
use posthaste_testkit::{servers::pubsub::PubSubServer, sink_suite::SuiteEvent, unique_name};
use serde_json::json;

use super::{
    place::{Place, of_each_topic},
    trial,
};
use crate::{
    driving::{accept, accepted, lane, plain, send},
    outcome::{cause, put_off, rejection, short},
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_request_may_fail_as_a_whole",
            a_request_may_fail_as_a_whole,
        ),
        trial(
            "an_event_is_refused_alone_in_its_request",
            an_event_is_refused_alone_in_its_request,
        ),
        trial(
            "an_event_over_a_limit_is_not_sent",
            an_event_over_a_limit_is_not_sent,
        ),
        trial(
            "an_event_whose_answer_is_lost_is_sent_again",
            an_event_whose_answer_is_lost_is_sent_again,
        ),
        trial(
            "a_topic_that_is_not_there_is_waited_for",
            a_topic_that_is_not_there_is_waited_for,
        ),
        trial(
            "a_topic_of_a_topic_fails_alone",
            a_topic_of_a_topic_fails_alone,
        ),
        trial(
            "a_topic_of_a_topic_holds_up_no_other_however_it_fails",
            a_topic_of_a_topic_holds_up_no_other_however_it_fails,
        ),
        trial(
            "an_event_at_which_connections_break_is_told_from_its_topic",
            an_event_at_which_connections_break_is_told_from_its_topic,
        ),
        trial(
            "events_of_a_key_wait_for_each_other",
            events_of_a_key_wait_for_each_other,
        ),
        trial(
            "large_messages_travel_in_several_requests",
            large_messages_travel_in_several_requests,
        ),
    ]
}

/// It is the destination's only topic.
async fn a_request_may_fail_as_a_whole() {
    let place = Place::new(PubSubServer::shared());
    for (code, act, expected, words) in [
        (2, "", Cause::Unknown, "UNKNOWN: no"),
        (4, "", Cause::Unknown, "DEADLINE_EXCEEDED"),
        (5, "", Cause::Misconfigured, "create it"),
        (7, "", Cause::Denied, "`roles/pubsub.publisher`"),
        (9, "", Cause::Misconfigured, "FAILED_PRECONDITION"),
        (12, "", Cause::Misconfigured, "correct `endpoint`"),
        (13, "", Cause::Unknown, "INTERNAL"),
        (14, "", Cause::Unknown, "UNAVAILABLE"),
        (16, "", Cause::Denied, "correct the credentials"),
        (0, "short", Cause::Misconfigured, "no Pub/Sub"),
    ] {
        place.server.fail(&place.name, "Publish", (code, "no"), act);
        for outcome in send(&mut lane(&place.sink()).await, &plain(10)).await {
            let (why, told) = cause(&outcome);
            assert_eq!(why, expected, "{told}");
            assert!(told.contains(words), "{told}");
        }
        place.server.heal(&place.name);
    }
    // It takes a part of what it is sent.
    let quota = (8, "Quota exceeded");
    place.server.fail(&place.name, "Publish", quota, "");
    let mut flight = lane(&place.sink()).await;
    for outcome in send(&mut flight, &plain(10)).await {
        assert!(put_off(&outcome).contains("RESOURCE_EXHAUSTED: Quota exceeded"));
    }
    place.server.heal(&place.name);
    accept(&mut flight, &plain(10)).await;
}

/// Pub/Sub takes a request as a whole, or refuses it as a whole.
async fn an_event_is_refused_alone_in_its_request() {
    let place = Place::new(PubSubServer::shared());
    let mut events = plain(300);
    for at in [0, 130, 299] {
        events[at].key = Some(format!("{}-bad-{at}", place.name));
    }
    let bad = format!("{}-bad", place.name);
    let words = (3, "Invalid data in message: schema");
    place.server.fail(&bad, "Publish", words, "");
    let outcomes = send(&mut lane(&place.sink()).await, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            0 | 130 | 299 => {
                let (kind, told) = rejection(outcome);
                assert_eq!(kind, RejectionKind::Invalid, "{told}");
                assert!(told.contains("INVALID_ARGUMENT: Invalid data"), "{told}");
            }
            _ => assert!(accepted(outcome), "{outcome:?}"),
        }
    }
    assert_eq!(place.events().len(), 297);
    place.server.heal(&bad);
}

async fn an_event_over_a_limit_is_not_sent() {
    let place = Place::new(PubSubServer::shared());
    let options = format!("{}&max_event_bytes=20000000", place.server.options());
    let mut events = plain(4);
    events[0].payload = Some(vec![b'x'; 9_998_000]);
    events[1].payload = Some(vec![b'x'; 9_999_000]);
    let name = |n| (format!("h-{n}"), Some("x".to_owned()));
    events[2].headers = (0..100).map(name).collect();
    events[3].headers = (0..96).map(name).collect();
    let outcomes = send(&mut lane(&place.sink_at(&options)).await, &events).await;
    assert!(accepted(&outcomes[0]) && accepted(&outcomes[3]));
    assert_eq!(rejection(&outcomes[1]).0, RejectionKind::TooLarge);
    let (kind, words) = rejection(&outcomes[2]);
    assert_eq!(kind, RejectionKind::Invalid);
    assert!(words.contains("100 at the most"), "{words}");
    let counts: Vec<_> = place
        .messages()
        .iter()
        .map(|m| m.attributes.len())
        .collect();
    assert_eq!(counts.iter().max(), Some(&100));
}

/// A consumer tells the repeat by its id.
async fn an_event_whose_answer_is_lost_is_sent_again() {
    let place = Place::new(PubSubServer::shared());
    let internal = (13, "lost");
    place.server.fail(&place.name, "Publish", internal, "kept");
    let events = plain(5);
    for outcome in send(&mut lane(&place.sink()).await, &events).await {
        assert_eq!(cause(&outcome).0, Cause::Unknown);
    }
    place.server.heal(&place.name);
    accept(&mut lane(&place.sink()).await, &events).await;
    let ids: Vec<_> = place.events().iter().map(|event| event.id).collect();
    assert_eq!(ids[..5], ids[5..]);
}

/// It is the destination's only one.
async fn a_topic_that_is_not_there_is_waited_for() {
    let place = Place::new(PubSubServer::shared());
    let sink = place.sink();
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(3)).await;
    place.server.delete_topic(&place.name);
    for outcome in send(&mut flight, &plain(1)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Misconfigured, "{words}");
        assert!(words.contains(&place.name), "{words}");
        assert!(words.contains("create it"), "{words}");
    }
    place.make();
    accept(&mut lane(&sink).await, &plain(3)).await;
}

fn of_two_topics(count: usize) -> Vec<SuiteEvent> {
    let mut events = plain(count);
    for (at, event) in events.iter_mut().enumerate() {
        event.topic = if at % 2 == 0 { "there" } else { "away" }.to_owned();
    }
    events
}

async fn a_topic_of_a_topic_fails_alone() {
    let server = PubSubServer::shared();
    let name = unique_name("sink");
    let sink = of_each_topic(server, &name);
    server.create_topic(&format!("{name}-there"), json!({}));
    let mut events = of_two_topics(20);
    let mut wrong = SuiteEvent::new(None, "x");
    wrong.topic = "a/b".to_owned();
    events.push(wrong);
    let mut flight = lane(&sink).await;
    let outcomes = send(&mut flight, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            20 => assert_eq!(rejection(outcome).0, RejectionKind::Invalid),
            _ if at % 2 == 0 => assert!(accepted(outcome), "{outcome:?}"),
            _ => assert!(put_off(outcome).contains(&format!("{name}-away"))),
        }
    }
    server.create_topic(&format!("{name}-away"), json!({}));
    accept(&mut flight, &events[..20]).await;
    assert_eq!(server.messages(&format!("{name}-there")).len(), 20);
    assert_eq!(server.messages(&format!("{name}-away")).len(), 10);
}

async fn a_topic_of_a_topic_holds_up_no_other_however_it_fails() {
    let server = PubSubServer::shared();
    let name = unique_name("sink");
    for place in ["there", "away"] {
        server.create_topic(&format!("{name}-{place}"), json!({}));
    }
    let away = format!("{name}-away");
    let events = of_two_topics(20);
    let mut flight = of_each_topic(server, &name)
        .open_lane(short(1))
        .await
        .unwrap();
    for (code, act, words) in [
        (14, "", "UNAVAILABLE"),
        (13, "", "INTERNAL"),
        (7, "", "PERMISSION_DENIED"),
        (8, "", "RESOURCE_EXHAUSTED"),
        (12, "", "UNIMPLEMENTED"),
        (0, "cut", "the connection broke"),
        (0, "silent", "no whole answer within 900ms"),
    ] {
        server.fail(&away, "Publish", (code, "no"), act);
        for (at, outcome) in send(&mut flight, &events).await.iter().enumerate() {
            match at % 2 {
                0 => assert!(accepted(outcome), "{words}: {outcome:?}"),
                _ => {
                    let told = put_off(outcome);
                    assert!(told.contains(words) && told.contains(&away), "{told}");
                }
            }
        }
        server.heal(&away);
    }
    // With the usual time: on a busy machine these may wait for longer than half a second.
    accept(&mut lane(&of_each_topic(server, &name)).await, &events).await;
}

async fn an_event_at_which_connections_break_is_told_from_its_topic() {
    let server = PubSubServer::shared();
    let name = unique_name("sink");
    server.create_topic(&format!("{name}-suite"), json!({}));
    let mut flight = lane(&of_each_topic(server, &name)).await;
    let bad = format!("{name}-bad");
    server.fail(&bad, "Publish", (0, ""), "cut");
    let mut events = plain(20);
    events[3].key = Some(bad.clone());
    for (at, outcome) in send(&mut flight, &events).await.iter().enumerate() {
        match (at, outcome) {
            (3, Outcome::Later(why)) => assert!(why.is_silent, "{why:?}"),
            _ => assert!(at != 3 && accepted(outcome), "{at}: {outcome:?}"),
        }
    }
    assert_eq!(server.messages(&format!("{name}-suite")).len(), 19);
    server.heal(&bad);
}

async fn events_of_a_key_wait_for_each_other() {
    let place = Place::new(PubSubServer::shared());
    let mut events: Vec<_> = (0..20)
        .map(|n| SuiteEvent::new(Some("one"), format!("{n}")))
        .collect();
    events[7].payload = Some(vec![b'x'; 9_500_000]);
    let outcomes = send(&mut lane(&place.sink()).await, &events).await;
    let first: Vec<_> = outcomes.iter().take_while(|o| accepted(o)).collect();
    assert_eq!(first.len(), 7);
    assert_eq!(rejection(&outcomes[7]).0, RejectionKind::TooLarge);
    for outcome in &outcomes[8..] {
        assert_eq!(cause(outcome).0, Cause::BehindFailure);
    }
    let arrived: Vec<_> = place.events().into_iter().map(|event| event.id).collect();
    let sent: Vec<_> = events[..7].iter().map(|event| event.id).collect();
    assert_eq!(arrived, sent);
}

async fn large_messages_travel_in_several_requests() {
    let place = Place::new(PubSubServer::shared());
    let events: Vec<_> = (0..12)
        .map(|n| SuiteEvent::new(Some(&format!("key-{n}")), vec![0xff; 1_500_000]))
        .collect();
    accept(&mut lane(&place.sink()).await, &events).await;
    assert_eq!(place.events().len(), 12);
}
