//! The meaning of refusals, of one event, of an address, and of all.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, CheckedPart, RejectionKind, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::artemis::ArtemisServer,
    sink_suite::{SuiteEvent, records},
    unique_name,
};

use super::{
    place::{Place, fault, put_off, rejection},
    trial,
};
use crate::driving::{accept, accepted, impatient_lane, lane, plain, refusal, send, settle};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_missing_address_is_said", a_missing_address_is_said),
        trial(
            "an_address_of_a_topic_fails_alone",
            an_address_of_a_topic_fails_alone,
        ),
        trial(
            "an_address_without_rights_fails_alone",
            an_address_without_rights_fails_alone,
        ),
        trial(
            "a_full_address_is_no_events_fault",
            a_full_address_is_no_events_fault,
        ),
        trial(
            "an_address_that_gives_no_credit_is_said",
            an_address_that_gives_no_credit_is_said,
        ),
        trial("more_addresses_than_links", more_addresses_than_links),
        trial("a_check_changes_nothing", a_check_changes_nothing),
        trial("groups_and_partitions", groups_and_partitions),
        trial(
            "an_address_that_is_made_has_a_queue",
            an_address_that_is_made_has_a_queue,
        ),
    ]
}

async fn a_missing_address_is_said() {
    let missing = format!("fixed.{}", unique_name("missing"));
    let sink = open(&format!("{}/{missing}", ArtemisServer::shared().url())).unwrap();
    let error = refusal(&sink).await;
    let said = error.to_string();
    assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
    for words in [&*missing, "amqp:not-found", "create the queue"] {
        assert!(said.contains(words), "{said}");
    }
    // Looking could make the address.
    sink.check().await.unwrap();
}

/// The others of the lane go on.
async fn an_address_of_a_topic_fails_alone() {
    let server = ArtemisServer::shared();
    let place = Place::new(server);
    let sink = open(&format!("{}/{{topic}}", server.url())).unwrap();
    let mut flight = lane(&sink).await;
    let mut events = plain(20);
    for event in &mut events {
        event.topic.clone_from(&place.name);
    }
    let missing = format!("fixed.{}", unique_name("missing"));
    events[7].topic.clone_from(&missing);
    events[11].topic = String::new();
    let outcomes = send(&mut flight, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            7 => {
                let words = &put_off(outcome).reason;
                assert!(words.contains(&missing), "{words}");
                assert!(words.contains("create the queue"), "{words}");
            }
            11 => assert_eq!(rejection(outcome).0, RejectionKind::Invalid),
            _ => assert!(accepted(outcome), "{outcome:?}"),
        }
    }
    accept(&mut flight, &events[..3]).await;
    assert_eq!(place.count(), 21);
}

async fn an_address_without_rights_fails_alone() {
    let server = ArtemisServer::shared();
    let (allowed, forbidden) = (Place::named(server, "auto.allowed."), Place::new(server));
    let url = server.url_of("relay:pw@");
    let sink = open(&format!("{url}/{{topic}}")).unwrap();
    let mut events = plain(20);
    for event in &mut events {
        event.topic.clone_from(&allowed.name);
    }
    events[7].topic.clone_from(&forbidden.name);
    let outcomes = send(&mut lane(&sink).await, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(accepted(outcome), at != 7, "{outcome:?}");
    }
    let words = &put_off(&outcomes[7]).reason;
    assert!(words.contains("amqp:unauthorized-access"), "{words}");
    assert!(words.contains("give the user the right"), "{words}");

    let only = open(&forbidden.on(&url)).unwrap();
    only.check().await.unwrap();
    let error = refusal(&only).await;
    assert!(matches!(error, SinkError::Denied { .. }), "{error}");
    assert_eq!(forbidden.count(), 0);
}

/// It refuses what it has no room for, and takes it once there is room.
async fn a_full_address_is_no_events_fault() {
    let server = ArtemisServer::shared();
    let place = Place::named(server, "fails.");
    let large: Vec<_> = (0..60)
        .map(|n| SuiteEvent::new(Some(&format!("key-{n}")), vec![b'x'; 10_000]))
        .collect();
    let mut flight = lane(&place.sink()).await;
    let outcomes = send(&mut flight, &large).await;
    let full = outcomes.iter().filter(|outcome| !accepted(outcome));
    let full: Vec<_> = full.map(fault).collect();
    assert!(!full.is_empty());
    for why in &full {
        assert_eq!(why.cause, Cause::Throttled, "{why:?}");
        assert!(
            why.reason.contains("amqp:resource-limit-exceeded"),
            "{why:?}"
        );
    }
    let taken = outcomes.len() - full.len();
    server.client().take(&place.name, taken);

    let sink = open(&format!("{}/{{topic}}", server.url())).unwrap();
    let mut flight = lane(&sink).await;
    let mut of_topic = large;
    for event in &mut of_topic {
        event.topic.clone_from(&place.name);
    }
    let outcomes = send(&mut flight, &of_topic).await;
    assert!(accepted(&outcomes[0]), "{:?}", outcomes[0]);
    let full: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !accepted(outcome))
        .collect();
    assert!(!full.is_empty());
    for outcome in full {
        let words = &put_off(outcome).reason;
        assert!(words.contains("it may be full"), "{words}");
    }
}

/// Records for other addresses pass those that wait.
async fn an_address_that_gives_no_credit_is_said() {
    let server = ArtemisServer::shared();
    let (full, other) = (Place::named(server, "blocks."), Place::new(server));
    let sink = open(&format!("{}/{{topic}}", server.url())).unwrap();
    let mut flight = impatient_lane(&sink).await;
    // More than the broker's first credit, of which the first fill the address.
    let large = (0..60).map(|n| (n, &full.name, vec![b'x'; 10_000]));
    let small = (60..1_200).map(|n| (n, &full.name, b"x".to_vec()));
    let passing = (1_200..1_220).map(|n| (n, &other.name, b"x".to_vec()));
    let mut events: Vec<SuiteEvent> = Vec::new();
    for (n, topic, payload) in large.chain(small).chain(passing) {
        let mut event = SuiteEvent::new(Some(&format!("key-{n}")), payload);
        event.topic.clone_from(topic);
        events.push(event);
    }
    accept(&mut flight, &events[..60]).await;
    flight.submit(records(&events, 0)).await;
    let outcomes = settle(&mut flight, events.len()).await;
    for outcome in &outcomes[1_200..] {
        assert!(accepted(outcome), "{outcome:?}");
    }
    let waiting: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !accepted(outcome))
        .collect();
    assert!(!waiting.is_empty());
    for outcome in waiting {
        let words = &put_off(outcome).reason;
        assert!(words.contains("gives no credit within 4.5s"), "{words}");
    }
}

/// Idle links make room for others, and every event arrives.
async fn more_addresses_than_links() {
    let server = ArtemisServer::shared();
    let start = format!("auto.{}", unique_name("many"));
    let sink = open(&format!("{}/{start}.{{topic}}", server.url())).unwrap();
    let mut flight = lane(&sink).await;
    let mut events = plain(250);
    for (n, event) in events.iter_mut().enumerate() {
        event.topic = format!("{n}");
    }
    accept(&mut flight, &events).await;
    accept(&mut flight, &events[..3]).await;
    for (n, count) in [(0, 2), (2, 2), (3, 1), (249, 1)] {
        let found = server.client().messages(&format!("{start}.{n}"));
        assert_eq!(found.len(), count, "{n}");
    }
}

/// Not even an address, which attaching would make here.
async fn a_check_changes_nothing() {
    let server = ArtemisServer::shared();
    let name = format!("auto.{}", unique_name("checked"));
    let sink = open(&format!("{}/{name}", server.url())).unwrap();
    let report = sink.check().await.unwrap();
    let [broker, address] = report.parts() else {
        panic!("{report:?}");
    };
    let fact = |part: &CheckedPart, name| {
        let mut facts = part.facts.iter();
        let fact = facts.find(|fact| fact.name == name).unwrap();
        fact.value.clone()
    };
    assert_eq!(
        fact(broker, "product").as_deref(),
        Some("apache-activemq-artemis")
    );
    assert_eq!(fact(broker, "version").as_deref(), Some("2.40.0"));
    assert_eq!(
        (&*address.name, fact(address, "max_message_size")),
        (&*name, None)
    );
    assert!(report.findings().is_empty());
    // Somebody who may make nothing finds nothing there.
    let theirs = open(&format!("{}/{name}", server.url_of("relay:pw@"))).unwrap();
    let error = refusal(&theirs).await.to_string();
    assert!(error.contains("CREATE_ADDRESS"), "{error}");
}

async fn groups_and_partitions() {
    let server = ArtemisServer::shared();
    let place = Place::new(server);
    for option in ["", "?group_id=none", "?partition_key=true"] {
        let sink = open(&format!("{}{option}", place.on(&server.url()))).unwrap();
        accept(&mut lane(&sink).await, &plain(1)).await;
    }
    let found = place.messages();
    let found: Vec<_> = found
        .iter()
        .map(|message| {
            (
                message.group_id.as_deref(),
                message.partition_key.as_deref(),
            )
        })
        .collect();
    let key = Some("key-0");
    assert_eq!(found, [(key, None), (None, None), (key, key)]);
}

/// The broker accepts what goes to a topic, and forgets it where nobody listens.
async fn an_address_that_is_made_has_a_queue() {
    let server = ArtemisServer::shared();
    let name = unique_name("sink");
    let sink = open(&format!("{}/{name}", server.url())).unwrap();
    accept(&mut lane(&sink).await, &plain(3)).await;
    assert_eq!(server.client().messages(&name).len(), 3);
}
