//! Refusals of the broker, and the words of the sink for them.

use libtest_mimic::Trial;
use posthaste_engine::{CheckedPart, RejectionKind, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::mqtt::{ADMIN, MqttServer},
    sink_suite::SuiteEvent,
    unique_name,
};

use super::{
    place::{Place, put_off, rejection},
    trial,
};
use crate::driving::{accept, accepted, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_topic_without_subscribers", a_topic_without_subscribers),
        trial(
            "events_that_no_message_can_hold",
            events_that_no_message_can_hold,
        ),
        trial("a_brokers_limit_is_kept", a_brokers_limit_is_kept),
        trial(
            "a_brokers_refusal_of_a_size_is_said",
            a_brokers_refusal_of_a_size_is_said,
        ),
        trial("a_window_of_one_is_kept", a_window_of_one_is_kept),
        trial("wrong_logins_are_denied", wrong_logins_are_denied),
        trial(
            "a_forbidden_topic_is_rejected_alone",
            a_forbidden_topic_is_rejected_alone,
        ),
        trial(
            "a_broker_that_takes_less_is_said",
            a_broker_that_takes_less_is_said,
        ),
        trial("the_last_message_is_retained", the_last_message_is_retained),
        trial("a_check_tells_the_terms", a_check_tells_the_terms),
    ]
}

/// Accepted without an option, put off with it; and the topics that have some go on.
async fn a_topic_without_subscribers() {
    let server = MqttServer::shared();
    let place = Place::new(server);
    let mut events = plain(20);
    for event in &mut events {
        event.topic = format!("{}/orders", place.name);
    }
    let lonely = unique_name("lonely");
    events[7].topic.clone_from(&lonely);
    let any = open(&server.url()).unwrap();
    accept(&mut lane(&any).await, &events).await;
    assert_eq!(place.messages().len(), 19);
    let needed = open(&format!("{}?require_subscribers=true", server.url())).unwrap();
    let mut lane = lane(&needed).await;
    let outcomes = send(&mut lane, &events).await;
    let words = &put_off(&outcomes[7]).reason;
    assert!(words.contains(&lonely), "{words}");
    assert_eq!(outcomes.iter().filter(|it| accepted(it)).count(), 19);
    // Once somebody has subscribed it goes.
    let mut client = server.client(&lonely);
    client.subscribe(&lonely, 1);
    accept(&mut lane, &events[7..8]).await;
    assert_eq!(client.next_message().topic, lonely);
}

async fn events_that_no_message_can_hold() {
    let place = Place::new(MqttServer::shared());
    let mut events = plain(10);
    events[2].headers = vec![("h".to_owned(), Some("x".repeat(70_000)))];
    events[4].topic = "a/+".to_owned();
    events[6].topic = "a//b".to_owned();
    events[8].occurred_at = i64::MAX;
    let outcomes = send(&mut lane(&place.sink()).await, &events).await;
    for (at, kind, words) in [
        (2, RejectionKind::TooLarge, "65535"),
        (4, RejectionKind::Invalid, "wildcard"),
        (6, RejectionKind::Invalid, "`/`"),
        (8, RejectionKind::Invalid, "9999"),
    ] {
        let (found, said) = rejection(&outcomes[at]);
        assert_eq!(found, kind, "{said}");
        assert!(said.contains(words), "{said}");
    }
    let good: Vec<SuiteEvent> = (0..)
        .zip(events)
        .filter(|(at, _)| ![2, 4, 6, 8].contains(at))
        .map(|(_, event)| event)
        .collect();
    assert_eq!(place.events(), good);
}

/// It says the largest packet as it lets us in: a larger one is not sent, and the lane goes on.
async fn a_brokers_limit_is_kept() {
    let server = MqttServer::start_with(&["max_packet_size 2000"]);
    let place = Place::new(&server);
    let mut events = plain(10);
    events[3].payload = Some(vec![b'x'; 2_000]);
    let mut flight = lane(&place.sink()).await;
    let outcomes = send(&mut flight, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(accepted(outcome), at != 3, "{outcome:?}");
    }
    let (kind, words) = rejection(&outcomes[3]);
    assert_eq!(kind, RejectionKind::TooLarge);
    assert!(words.contains("over the 2000"), "{words}");
    accept(&mut flight, &events[..3]).await;
}

/// Of a payload, which this broker does not say beforehand.
async fn a_brokers_refusal_of_a_size_is_said() {
    let server = MqttServer::start_with(&["message_size_limit 1000"]);
    let place = Place::new(&server);
    for options in ["", "&qos=2"] {
        let mut events = plain(10);
        events[3].payload = Some(vec![b'x'; 1_001]);
        let outcomes = send(&mut lane(&place.sink_with(options)).await, &events).await;
        for (at, outcome) in outcomes.iter().enumerate() {
            assert_eq!(accepted(outcome), at != 3, "{outcome:?}");
        }
        assert_eq!(rejection(&outcomes[3]).0, RejectionKind::TooLarge);
    }
    assert_eq!(place.events().len(), 18);
}

/// Of the broker, or of the address: no message is sent before the one before it has ended.
async fn a_window_of_one_is_kept() {
    let server = MqttServer::start_with(&["max_inflight_messages 1"]);
    let place = Place::new(&server);
    let events = plain(50);
    for options in ["", "&qos=2", "&version=3.1.1&qos=2&max_in_flight=1"] {
        accept(&mut lane(&place.sink_with(options)).await, &events).await;
    }
    assert_eq!(place.events(), [&events[..], &events, &events].concat());
}

async fn wrong_logins_are_denied() {
    let server = MqttServer::start_guarded(&[], "");
    let place = Place::new(&server);
    for version in ["5", "3.1.1"] {
        let with = |login: &str| {
            let url = place.on(&server.url_of(login));
            open(&format!("{url}&version={version}")).unwrap()
        };
        let good = with("admin:pass%2Fword");
        good.check().await.unwrap();
        accept(&mut lane(&good).await, &plain(10)).await;
        let nobody = format!("{}&version={version}", place.on(&server.url()));
        let nobody = open(&nobody).unwrap();
        for sink in [with("admin:s3cret"), with("other:s3cret"), nobody] {
            for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
                let said = error.to_string();
                assert!(matches!(error, SinkError::Denied { .. }), "{said}");
                assert!(
                    said.contains("not authorized") || said.contains("password"),
                    "{said}"
                );
                assert!(!said.contains("s3cret"), "{said}");
            }
        }
    }
    let (_, password) = ADMIN;
    assert!(!server.log().contains(password));
}

async fn a_forbidden_topic_is_rejected_alone() {
    let server = MqttServer::start_guarded(&[("relay", "pw")], "user relay\ntopic write +/allowed");
    let place = Place::new(&server);
    for options in ["", "&qos=2"] {
        let url = place.on(&server.url_of("relay:pw"));
        let sink = open(&format!("{url}{options}")).unwrap();
        sink.check().await.unwrap();
        let mut events = plain(20);
        for event in &mut events {
            event.topic = "allowed".to_owned();
        }
        events[7].topic = "forbidden".to_owned();
        let outcomes = send(&mut lane(&sink).await, &events).await;
        for (at, outcome) in outcomes.iter().enumerate() {
            assert_eq!(accepted(outcome), at != 7, "{outcome:?}");
        }
        let (kind, words) = rejection(&outcomes[7]);
        assert_eq!(kind, RejectionKind::Denied);
        assert!(words.contains("forbidden"), "{words}");
    }
    assert_eq!(place.events().len(), 38);
}

async fn a_broker_that_takes_less_is_said() {
    let server = MqttServer::start_with(&["max_qos 1", "retain_available false"]);
    let place = Place::new(&server);
    place.sink().check().await.unwrap();
    for (options, fix) in [("&qos=2", "`qos=1`"), ("&retain=true", "`retain=true`")] {
        let sink = place.sink_with(options);
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
            assert!(said.contains(fix), "{said}");
        }
    }
}

/// A later subscriber finds the last message of a topic; a tombstone takes it away.
async fn the_last_message_is_retained() {
    let server = MqttServer::shared();
    let place = Place::new(server);
    let mut events = plain(4);
    for (at, event) in (0..).zip(&mut events) {
        event.topic = if at == 1 { "gone" } else { "kept" }.to_owned();
    }
    let mut tombstone = events[1].clone();
    tombstone.payload = None;
    events.push(tombstone);
    accept(&mut lane(&place.sink_with("&retain=true")).await, &events).await;
    let mut late = server.client(&unique_name("late"));
    late.subscribe(&format!("{}/#", place.name), 1);
    let found = late.messages(&format!("{}/marker", place.name));
    let [last] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(last.is_retained);
    assert_eq!(last.payload, b"3");
}

async fn a_check_tells_the_terms() {
    let server = MqttServer::start_with(&["max_packet_size 70000", "max_inflight_messages 7"]);
    let place = Place::new(&server);
    for (options, terms) in [
        (
            "",
            [Some("5"), Some("2"), Some("7"), Some("70000"), Some("true")],
        ),
        ("&version=3.1.1", [Some("3.1.1"), None, None, None, None]),
    ] {
        let report = place.sink_with(options).check().await.unwrap();
        let [part] = report.parts() else {
            panic!("{report:?}");
        };
        assert_eq!(part.name, format!("127.0.0.1:{}", server.port()));
        let names = [
            "version",
            "maximum_qos",
            "receive_maximum",
            "maximum_packet_size",
            "retain_available",
        ];
        assert_eq!(names.map(|name| fact(part, name)), terms);
        assert!(report.findings().is_empty());
    }
    assert!(place.messages().is_empty());
}

fn fact<'p>(part: &'p CheckedPart, name: &str) -> Option<&'p str> {
    let fact = part.facts.iter().find(|fact| fact.name == name);
    fact.unwrap().value.as_deref()
}
