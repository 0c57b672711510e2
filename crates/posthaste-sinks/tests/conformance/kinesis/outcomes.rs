//! The meaning of refusals, of one record, of a stream, and of all.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind};
use posthaste_sinks::open;
use posthaste_testkit::{servers::moto::MotoServer, sink_suite::SuiteEvent, unique_name};

use super::{place::Place, trial};
use crate::{
    aws::expect_places_fail_alone,
    driving::{accept, accepted, lane, plain, send},
    outcome::{cause, put_off, rejection},
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_request_may_fail_in_part", a_request_may_fail_in_part),
        trial(
            "a_request_may_fail_as_a_whole",
            a_request_may_fail_as_a_whole,
        ),
        trial(
            "an_event_is_refused_alone_in_its_request",
            an_event_is_refused_alone_in_its_request,
        ),
        trial(
            "a_stream_that_is_not_there_is_waited_for",
            a_stream_that_is_not_there_is_waited_for,
        ),
        trial(
            "a_stream_of_a_topic_fails_alone",
            a_stream_of_a_topic_fails_alone,
        ),
        trial(
            "a_stream_of_a_topic_holds_up_no_other_however_it_fails",
            a_stream_of_a_topic_holds_up_no_other_however_it_fails,
        ),
        trial(
            "events_of_a_key_wait_for_each_other",
            events_of_a_key_wait_for_each_other,
        ),
        trial(
            "a_record_has_the_key_of_its_event_or_spreads",
            a_record_has_the_key_of_its_event_or_spreads,
        ),
        trial(
            "large_records_travel_in_several_requests",
            large_records_travel_in_several_requests,
        ),
        trial(
            "a_request_that_nobody_reads_is_its_events_fault",
            a_request_that_nobody_reads_is_its_events_fault,
        ),
    ]
}

async fn a_request_may_fail_in_part() {
    let place = Place::new(MotoServer::shared());
    let mut flight = lane(&place.sink()).await;
    let refused = [
        ("key-3", "ProvisionedThroughputExceededException"),
        ("key-400", "InternalFailure"),
        ("key-401", "KMSAccessDeniedException"),
    ];
    place.server.refuse(&place.name, &refused);
    let outcomes = send(&mut flight, &plain(500)).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            3 => {
                let words = put_off(outcome);
                assert!(words.contains("shardId-000000000000"), "{words}");
                assert!(words.contains("more shards"), "{words}");
                assert!(words.contains(&place.name), "{words}");
            }
            400 => assert!(put_off(outcome).contains("InternalFailure")),
            401 => assert!(put_off(outcome).contains("see the key")),
            _ => assert!(accepted(outcome), "{outcome:?}"),
        }
    }
    assert_eq!(place.events().len(), 497);
    // The lane goes on.
    place.server.refuse(&place.name, &[]);
    accept(&mut flight, &plain(500)).await;
    assert_eq!(place.events().len(), 997);
}

/// It is the destination's only stream.
async fn a_request_may_fail_as_a_whole() {
    let place = Place::new(MotoServer::shared());
    for (code, expected) in [
        ("AccessDeniedException", Cause::Denied),
        ("KMSDisabledException", Cause::Misconfigured),
        ("ResourceInUseException", Cause::Unknown),
        ("ExpiredTokenException", Cause::Denied),
        ("SomethingNewException", Cause::Unknown),
    ] {
        place.server.refuse(&place.name, &[("*", code)]);
        for outcome in send(&mut lane(&place.sink()).await, &plain(10)).await {
            let (why, words) = cause(&outcome);
            assert_eq!(why, expected, "{words}");
        }
    }
    assert!(place.events().is_empty());
    // It takes a part of what it is sent.
    place
        .server
        .refuse(&place.name, &[("*", "LimitExceededException")]);
    for outcome in send(&mut lane(&place.sink()).await, &plain(10)).await {
        assert!(put_off(&outcome).contains("LimitExceeded"));
    }
}

/// moto refuses the request as a whole over one of its records.
async fn an_event_is_refused_alone_in_its_request() {
    let place = Place::new(MotoServer::shared());
    let sink = place.sink_with("&max_event_bytes=2000000");
    let mut events = plain(300);
    for at in [0, 130, 299] {
        events[at].payload = Some(vec![b'x'; 1_100_000]);
    }
    let mut flight = lane(&sink).await;
    let outcomes = send(&mut flight, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            0 | 130 | 299 => {
                let (kind, words) = rejection(outcome);
                assert_eq!(kind, RejectionKind::Invalid, "{words}");
                assert!(words.contains("less than or equal to 1048576"), "{words}");
            }
            _ => assert!(accepted(outcome), "{outcome:?}"),
        }
    }
    assert_eq!(place.events().len(), 297);
}

/// It is the destination's only one.
async fn a_stream_that_is_not_there_is_waited_for() {
    let place = Place::new(MotoServer::shared());
    let sink = place.sink();
    let mut flight = lane(&sink).await;
    accept(&mut flight, &plain(3)).await;
    place.server.delete_stream(&place.name);
    for outcome in send(&mut flight, &plain(1)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Misconfigured, "{words}");
        assert!(words.contains(&place.name), "{words}");
        assert!(words.contains("create it"), "{words}");
    }
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    place.make();
    accept(&mut lane(&sink).await, &plain(3)).await;
}

async fn a_stream_of_a_topic_fails_alone() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let url = format!("kinesis://{name}.{{topic}}?{}", server.options());
    let sink = open(&url).unwrap();
    server.create_stream(&format!("{name}.there"), 1);
    let mut events = plain(20);
    for (at, event) in events.iter_mut().enumerate() {
        event.topic = if at % 2 == 0 { "there" } else { "away" }.to_owned();
    }
    let mut wrong = SuiteEvent::new(None, "x");
    wrong.topic = "a/b".to_owned();
    events.push(wrong);
    let mut flight = lane(&sink).await;
    let outcomes = send(&mut flight, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            20 => assert_eq!(rejection(outcome).0, RejectionKind::Invalid),
            _ if at % 2 == 0 => assert!(accepted(outcome), "{outcome:?}"),
            _ => assert!(put_off(outcome).contains(&format!("{name}.away"))),
        }
    }
    server.create_stream(&format!("{name}.away"), 1);
    accept(&mut flight, &events[..20]).await;
    assert_eq!(server.stream_records(&format!("{name}.there")).len(), 20);
    assert_eq!(server.stream_records(&format!("{name}.away")).len(), 10);
    sink.check().await.unwrap();
}

async fn a_stream_of_a_topic_holds_up_no_other_however_it_fails() {
    let server = MotoServer::shared();
    let name = unique_name("sink");
    let url = format!("kinesis://{name}.{{topic}}?{}", server.options());
    for place in ["there", "away"] {
        server.create_stream(&format!("{name}.{place}"), 1);
    }
    let away = format!("{name}.away");
    expect_places_fail_alone(server, &open(&url).unwrap(), &away).await;
}

/// Two of a key are never in one request: a part of it may fail.
async fn events_of_a_key_wait_for_each_other() {
    let place = Place::new(MotoServer::shared());
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
    let arrived: Vec<_> = place.events().into_iter().map(|event| event.id).collect();
    let sent: Vec<_> = events[..7].iter().map(|event| event.id).collect();
    assert_eq!(arrived, sent);
}

async fn a_record_has_the_key_of_its_event_or_spreads() {
    let place = Place::new(MotoServer::shared());
    let mut events = plain(2);
    events.extend((0..50).map(|_| SuiteEvent::new(None, "x")));
    events.push(SuiteEvent::new(Some(&"k".repeat(257)), "x"));
    accept(&mut lane(&place.sink()).await, &events).await;
    let records = place.server.stream_records(&place.name);
    let found: BTreeSet<_> = records.iter().map(|r| &*r.partition_key).collect();
    let mut keys: BTreeSet<_> = events[2..52].iter().map(|e| e.id.to_string()).collect();
    keys.extend(["key-0".to_owned(), "key-1".to_owned()]);
    // The SHA-256 of 257 times `k`.
    keys.insert("a5de0e3c93b4322bf1d2e6cc13119219d665142374de7f2b06bae237759c73e2".to_owned());
    assert_eq!(found, keys.iter().map(|key| &**key).collect());
}

/// moto takes 5 MiB in a request.
async fn large_records_travel_in_several_requests() {
    let place = Place::new(MotoServer::shared());
    let events: Vec<_> = (0..12)
        .map(|n| SuiteEvent::new(Some(&format!("key-{n}")), vec![0xff; 700_000]))
        .collect();
    accept(&mut lane(&place.sink()).await, &events).await;
    assert_eq!(place.events().len(), 12);
}

/// An answer without a code, from what stands before the service.
async fn a_request_that_nobody_reads_is_its_events_fault() {
    let place = Place::new(MotoServer::shared());
    let sink = place.sink_with("&max_event_bytes=8000000");
    let mut events = plain(3);
    events[1].payload = Some(vec![b'x'; 7_000_000]);
    let outcomes = send(&mut lane(&sink).await, &events).await;
    let (kind, words) = rejection(&outcomes[1]);
    assert_eq!(kind, RejectionKind::TooLarge, "{words}");
    assert!(words.contains("413"), "{words}");
    assert!(accepted(&outcomes[0]) && accepted(&outcomes[2]));
}
