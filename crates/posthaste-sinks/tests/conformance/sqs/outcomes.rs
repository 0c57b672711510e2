//! The meaning of refusals, of one event, of a queue, and of all.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Outcome, RejectionKind, Severity};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::{moto::MotoServer, sqs::SqsServer},
    sink_suite::SuiteEvent,
    unique_name,
};

use super::{place::Place, trial};
use crate::{
    aws::expect_places_fail_alone,
    driving::{accept, accepted, lane, plain, refusal, send},
    outcome::{cause, put_off, rejection, short},
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "an_event_is_refused_alone_in_its_request",
            an_event_is_refused_alone_in_its_request,
        ),
        trial(
            "the_answer_to_another_request_stores_nothing",
            the_answer_to_another_request_stores_nothing,
        ),
        trial(
            "a_throttled_queue_ends_no_lane",
            a_throttled_queue_ends_no_lane,
        ),
        trial(
            "a_queue_that_is_not_there_is_waited_for",
            a_queue_that_is_not_there_is_waited_for,
        ),
        trial(
            "a_queue_of_a_topic_fails_alone",
            a_queue_of_a_topic_fails_alone,
        ),
        trial(
            "a_queue_of_a_topic_holds_up_no_other_however_it_fails",
            a_queue_of_a_topic_holds_up_no_other_however_it_fails,
        ),
        trial(
            "events_that_wait_for_a_silent_queue_are_put_off",
            events_that_wait_for_a_silent_queue_are_put_off,
        ),
        trial(
            "an_event_at_which_connections_break_is_told_from_its_queue",
            an_event_at_which_connections_break_is_told_from_its_queue,
        ),
        trial(
            "a_topic_that_makes_no_name_is_refused",
            a_topic_that_makes_no_name_is_refused,
        ),
        trial(
            "events_of_a_key_wait_for_each_other",
            events_of_a_key_wait_for_each_other,
        ),
    ]
}

/// moto refuses the request as a whole over one of its messages.
async fn an_event_is_refused_alone_in_its_request() {
    let server = MotoServer::shared();
    for suffix in ["", ".fifo"] {
        let name = unique_name("sink") + suffix;
        let small = [("MaximumMessageSize", "1024")];
        let _ = server.client().create_queue(&name, &small);
        let sink = open(&format!("sqs://{name}?{}", server.options())).unwrap();
        let mut events = plain(25);
        events[13].payload = Some(vec![b'x'; 2_000]);
        let outcomes = send(&mut lane(&sink).await, &events).await;
        for (at, outcome) in outcomes.iter().enumerate() {
            match at {
                13 => {
                    let (kind, words) = rejection(outcome);
                    assert_eq!(kind, RejectionKind::Invalid, "{words}");
                    assert!(words.contains("must be shorter than 1024 bytes"), "{words}");
                }
                _ => assert!(accepted(outcome), "{outcome:?}"),
            }
        }
        assert_eq!(server.messages(&name).len(), 24);
        let report = sink.check().await.unwrap();
        let severities: Vec<_> = report.findings().iter().map(|f| f.severity).collect();
        assert_eq!(severities, [Severity::Stops]);
    }
}

/// A proxy in between may be out of step.
async fn the_answer_to_another_request_stores_nothing() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let _ = server.client().create_queue(&name, &[]);
    let sink = open(&format!("sqs://{name}?{}", server.options())).unwrap();
    let batch = format!("/{name}");
    server.fail(&batch, "act=stale");
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(10)).await;
    for outcome in send(&mut flight, &plain(10)).await {
        assert!(put_off(&outcome).contains("nothing of this event"));
    }
    assert_eq!(server.messages(&name).len(), 10);
    server.heal(&batch);
    accept(&mut flight, &plain(10)).await;
    assert_eq!(server.messages(&name).len(), 20);
}

/// Though it is the destination's only one: it takes a part of what it is sent.
async fn a_throttled_queue_ends_no_lane() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let _ = server.client().create_queue(&name, &[]);
    let sink = open(&format!("sqs://{name}?{}", server.options())).unwrap();
    let mut flight = lane(&sink).await;
    let batch = format!("/{name}");
    server.fail(
        &batch,
        "status=400&body={%22__type%22:%22RequestThrottled%22}",
    );
    for outcome in send(&mut flight, &plain(20)).await {
        assert!(put_off(&outcome).contains("answered RequestThrottled"));
    }
    server.heal(&batch);
    accept(&mut flight, &plain(20)).await;
}

/// It is the destination's only one.
async fn a_queue_that_is_not_there_is_waited_for() {
    let place = Place::new(SqsServer::shared(), "");
    let sink = place.sink();
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(3)).await;
    place.delete();
    for outcome in send(&mut flight, &plain(1)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Misconfigured, "{words}");
        assert!(words.contains(&place.name), "{words}");
        assert!(words.contains("create it"), "{words}");
    }
    let error = refusal(&sink).await;
    assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    assert_eq!(
        sink.check().await.unwrap_err().cause(),
        Cause::Misconfigured
    );
    place.make_again();
    accept(&mut lane(&sink).await, &plain(3)).await;
}

async fn a_queue_of_a_topic_fails_alone() {
    let server = SqsServer::shared();
    let name = unique_name("sink");
    let url = format!("sqs://{name}-{{topic}}?{}", server.options());
    let sink = open(&url).unwrap();
    let there = server.client().create_queue(&format!("{name}-there"), &[]);
    let mut events = plain(20);
    for (at, event) in events.iter_mut().enumerate() {
        event.topic = if at % 2 == 0 { "there" } else { "away" }.to_owned();
    }
    let mut flight = lane(&sink).await;
    for _ in 0..2 {
        let outcomes = send(&mut flight, &events).await;
        for (at, outcome) in outcomes.iter().enumerate() {
            match at % 2 {
                0 => assert!(accepted(outcome), "{outcome:?}"),
                _ => assert!(put_off(outcome).contains(&format!("{name}-away"))),
            }
        }
    }
    let away = server.client().create_queue(&format!("{name}-away"), &[]);
    accept(&mut flight, &events).await;
    assert_eq!(server.client().drain(&there).len(), 30);
    assert_eq!(server.client().drain(&away).len(), 10);
    sink.check().await.unwrap();
}

/// Nor where its URL is not told.
async fn a_queue_of_a_topic_holds_up_no_other_however_it_fails() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let url = format!("sqs://{name}-{{topic}}?{}", server.options());
    for place in ["there", "away"] {
        let _ = server
            .client()
            .create_queue(&format!("{name}-{place}"), &[]);
    }
    let sink = open(&url).unwrap();
    for text in [format!("{name}-away"), format!("/{name}-away")] {
        expect_places_fail_alone(server, &sink, &text).await;
    }
}

/// Or the relay would take the lane for silent, and not the queue.
async fn events_that_wait_for_a_silent_queue_are_put_off() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let url = format!("sqs://{name}-{{topic}}?{}", server.options());
    let _ = server.client().create_queue(&format!("{name}-suite"), &[]);
    let mut flight = open(&url).unwrap().open_lane(short(1)).await.unwrap();
    server.fail(&name, "act=silent");
    let outcomes = send(&mut flight, &plain(160)).await;
    let told: Vec<_> = outcomes.iter().map(put_off).collect();
    let count = |words: &str| told.iter().filter(|told| told.contains(words)).count();
    assert_eq!(count("no whole answer within 900ms"), 80);
    assert_eq!(count("have no answer yet"), 80);
    server.heal(&name);
    // With the usual time: on a busy machine these may wait for longer than half a second.
    accept(&mut lane(&open(&url).unwrap()).await, &plain(20)).await;
}

async fn an_event_at_which_connections_break_is_told_from_its_queue() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let url = format!("sqs://{name}-{{topic}}?{}", server.options());
    let _ = server.client().create_queue(&format!("{name}-suite"), &[]);
    let mut flight = lane(&open(&url).unwrap()).await;
    let bad = format!("{name}-bad");
    server.fail(&bad, "act=cut");
    let mut events = plain(20);
    events[3].payload = Some(bad.into_bytes());
    for (at, outcome) in send(&mut flight, &events).await.iter().enumerate() {
        match (at, outcome) {
            (3, Outcome::Later(why)) => assert!(why.is_silent, "{why:?}"),
            _ => assert!(at != 3 && accepted(outcome), "{at}: {outcome:?}"),
        }
    }
    assert_eq!(server.messages(&format!("{name}-suite")).len(), 19);
}

async fn a_topic_that_makes_no_name_is_refused() {
    let url = format!("sqs://{{topic}}?{}", SqsServer::shared().options());
    let mut flight = lane(&open(&url).unwrap()).await;
    for topic in ["a.b", "", "a/b", "a.fifo", &*"t".repeat(81)] {
        let mut event = SuiteEvent::new(None, "x");
        event.topic = topic.to_owned();
        let outcomes = send(&mut flight, &[event]).await;
        assert_eq!(rejection(&outcomes[0]).0, RejectionKind::Invalid, "{topic}");
    }
}

/// Two of a key are never in one request: a part of it may fail.
async fn events_of_a_key_wait_for_each_other() {
    let place = Place::new(SqsServer::shared(), ".fifo");
    let mut events: Vec<_> = (0..20)
        .map(|n| SuiteEvent::new(Some("one"), format!("{n}")))
        .collect();
    events[7].payload = Some(vec![b'x'; 1_000_000]);
    let outcomes = send(&mut lane(&place.sink()).await, &events).await;
    let first: Vec<_> = outcomes.iter().take_while(|o| accepted(o)).collect();
    assert_eq!(first.len(), 7);
    assert_eq!(rejection(&outcomes[7]).0, RejectionKind::TooLarge);
    for outcome in &outcomes[8..] {
        assert_eq!(cause(outcome).0, Cause::BehindFailure);
    }
    assert_eq!(place.events().len(), 7);
}
