//! How events end, one by one, on a broker that is well.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Fact, Outcome, RejectionKind, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::rabbitmq::RabbitMqServer,
    sink_suite::{SuiteEvent, records},
    unique_name,
};

use super::{place::Place, trial};
use crate::driving::{accept, accepted, lane, plain, refusal, send, settle};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "each_unroutable_event_is_told_from_its_neighbours",
            each_unroutable_event_is_told,
        ),
        trial(
            "of_one_id_the_unroutable_event_is_told",
            of_one_id_the_unroutable_event_is_told,
        ),
        trial(
            "an_event_in_flight_twice_is_returned_once",
            an_event_in_flight_twice,
        ),
        trial(
            "the_default_exchange_takes_queues_for_topics",
            the_default_exchange,
        ),
        trial(
            "names_of_our_headers_hide_nothing",
            names_of_our_headers_hide_nothing,
        ),
        trial(
            "what_amqp_cannot_hold_is_invalid",
            what_amqp_cannot_hold_is_invalid,
        ),
        trial("a_missing_exchange_is_said", a_missing_exchange_is_said),
        trial(
            "a_check_tells_what_the_protocol_shows",
            a_check_tells_what_the_protocol_shows,
        ),
        trial("a_removed_exchange_is_said", a_removed_exchange_is_said),
        trial("an_internal_exchange_is_said", an_internal_exchange_is_said),
        trial(
            "a_full_queue_is_no_events_fault",
            a_full_queue_is_no_events_fault,
        ),
        trial("wrong_logins_are_denied", wrong_logins_are_denied),
        trial("missing_rights_are_denied", missing_rights_are_denied),
        trial(
            "a_forbidden_topic_is_rejected_alone",
            a_forbidden_topic_is_rejected_alone,
        ),
        trial(
            "a_limit_of_the_address_is_exact",
            a_limit_of_the_address_is_exact,
        ),
    ]
}

fn unroutable(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rejected(why) if why.kind == RejectionKind::Unroutable)
}

fn cause(outcome: &Outcome) -> (Cause, &str) {
    match outcome {
        Outcome::Unavailable(why) => (why.cause, &why.reason),
        other => panic!("{other:?}"),
    }
}

/// Small batches and large ones, so that confirms of many and of one are among them.
/// An id is emitted twice, and only one of the two has somewhere to go.
async fn of_one_id_the_unroutable_event_is_told() {
    let place = Place::new(RabbitMqServer::shared());
    let mut lane = lane(&place.sink()).await;
    let mut events = plain(200);
    for pair in events.chunks_mut(2) {
        pair[1].id = pair[0].id;
        pair[1].topic = "nobody.wants.this".to_owned();
    }
    lane.submit(records(&events, 0)).await;
    let outcomes = settle(&mut lane, events.len()).await;
    for pair in outcomes.chunks(2) {
        assert!(accepted(&pair[0]) && unroutable(&pair[1]), "{pair:?}");
    }
}

async fn each_unroutable_event_is_told() {
    let place = Place::new(RabbitMqServer::shared());
    let mut lane = lane(&place.sink()).await;
    let mut events = plain(6_000);
    for event in events.iter_mut().step_by(7) {
        event.topic = "nobody.wants.this".to_owned();
    }
    let mut ticket = 0;
    for (turn, batch) in events.chunks(60).enumerate() {
        let mut rest = batch;
        while !rest.is_empty() {
            let size = [1, 3, 60][turn % 3].min(rest.len());
            let (now, later) = rest.split_at(size);
            lane.submit(records(now, ticket)).await;
            ticket += size as u64;
            rest = later;
        }
    }
    let outcomes = settle(&mut lane, events.len()).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        if at % 7 == 0 {
            assert!(unroutable(outcome), "{at}: {outcome:?}");
        } else {
            assert!(accepted(outcome), "{at}: {outcome:?}");
        }
    }
    let Outcome::Rejected(why) = &outcomes[0] else {
        panic!("checked above");
    };
    assert!(why.reason.contains("312 NO_ROUTE"), "{}", why.reason);
    assert!(why.reason.contains(&place.name), "{}", why.reason);
    let routable = events.iter().enumerate().filter(|(at, _)| at % 7 != 0);
    let routable: Vec<SuiteEvent> = routable.map(|(_, event)| event.clone()).collect();
    assert!(place.events() == routable);
}

async fn an_event_in_flight_twice() {
    let place = Place::new(RabbitMqServer::shared());
    let mut lane = lane(&place.sink()).await;
    let good = SuiteEvent::new(None, "same id");
    let mut bad = good.clone();
    bad.topic = "nobody.wants.this".to_owned();
    // The broker returns the first of an id as long as that is not confirmed: here it is the one.
    let outcomes = send(&mut lane, &[bad.clone(), bad, good.clone()]).await;
    assert!(
        unroutable(&outcomes[0]) && unroutable(&outcomes[1]),
        "{outcomes:?}"
    );
    assert!(accepted(&outcomes[2]), "{outcomes:?}");
    assert_eq!(place.events(), [good]);
}

async fn the_default_exchange() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let sink = open(&format!("{}?exchange=", server.url("/"))).unwrap();
    sink.check().await.unwrap();
    let mut lane = lane(&sink).await;
    let mut events = plain(2);
    events[0].topic.clone_from(&place.name);
    let outcomes = send(&mut lane, &events).await;
    assert!(accepted(&outcomes[0]), "{outcomes:?}");
    assert!(unroutable(&outcomes[1]), "{outcomes:?}");
    assert_eq!(place.events(), events[..1]);
}

async fn names_of_our_headers_hide_nothing() {
    let place = Place::new(RabbitMqServer::shared());
    let mut lane = lane(&place.sink()).await;
    let pairs: Vec<(String, Option<String>)> = [
        ("key", Some("x")),
        ("key", None),
        ("tombstone", Some("true")),
        ("correlation-id", Some("")),
        ("plain", Some("y")),
    ]
    .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
    .to_vec();
    let mut events = vec![
        SuiteEvent::new(None, "none of ours"),
        SuiteEvent::new(Some("k"), ""),
    ];
    events[1].correlation_id = Some("c".to_owned());
    events[1].payload = None;
    for event in &mut events {
        event.headers.clone_from(&pairs);
    }
    accept(&mut lane, &events).await;
    let mut arrived = place.events();
    for event in arrived.iter_mut().chain(&mut events) {
        event.headers.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    assert_eq!(arrived, events);
}

async fn what_amqp_cannot_hold_is_invalid() {
    let place = Place::new(RabbitMqServer::shared());
    let mut lane = lane(&place.sink()).await;
    let long = "x".repeat(256);
    let header = |name: &str, value: &str| vec![(name.to_owned(), Some(value.to_owned()))];
    type Spoil<'a> = &'a dyn Fn(&mut SuiteEvent);
    let cases: [(&str, RejectionKind, Spoil<'_>); 9] = [
        ("topic", RejectionKind::Invalid, &|e| {
            e.topic.clone_from(&long)
        }),
        ("type", RejectionKind::Invalid, &|e| {
            e.kind = Some(long.clone())
        }),
        ("content_type", RejectionKind::Invalid, &|e| {
            e.content_type = Some(long.clone())
        }),
        ("correlation_id", RejectionKind::Invalid, &|e| {
            e.correlation_id = Some(long.clone())
        }),
        ("name", RejectionKind::Invalid, &|e| {
            e.headers = header(&long, "")
        }),
        ("`CC`", RejectionKind::Invalid, &|e| {
            e.headers = header("CC", "elsewhere")
        }),
        ("`BCC`", RejectionKind::Invalid, &|e| {
            e.headers = header("BCC", "elsewhere")
        }),
        ("occurred_at", RejectionKind::Invalid, &|e| {
            e.occurred_at = i64::MAX
        }),
        ("frame_max", RejectionKind::TooLarge, &|e| {
            e.headers = header("long", &"x".repeat(140_000));
        }),
    ];
    let mut good = plain(cases.len());
    let mut all = Vec::new();
    for ((_, _, spoil), good) in cases.iter().zip(&good) {
        let mut bad = SuiteEvent::new(None, "bad");
        spoil(&mut bad);
        all.extend([bad, good.clone()]);
    }
    // Before 1970 the property is left out; the header says it all.
    let mut early = SuiteEvent::new(None, "early");
    early.occurred_at = -1;
    all.push(early.clone());
    good.push(early);
    let outcomes = send(&mut lane, &all).await;
    for ((what, kind, _), pair) in cases.iter().zip(outcomes.chunks(2)) {
        let Outcome::Rejected(why) = &pair[0] else {
            panic!("{what}: {:?}", pair[0]);
        };
        assert_eq!(why.kind, *kind, "{what}");
        assert!(why.reason.contains(what), "{what}: {}", why.reason);
        assert!(accepted(&pair[1]), "{what}: {:?}", pair[1]);
    }
    assert_eq!(place.events(), good);
}

async fn a_check_tells_what_the_protocol_shows() {
    let place = Place::new(RabbitMqServer::shared());
    let report = place.sink().check().await.unwrap();
    let [vhost, exchange] = report.parts() else {
        panic!("{report:?}");
    };
    assert_eq!(vhost.facts[0], Fact::seen("frame_max", 131_072));
    assert_eq!(exchange.name, place.name);
    let queues = Fact::new("queues", None::<&str>);
    assert!(exchange.facts.contains(&queues), "{exchange:?}");
    assert!(report.findings().is_empty());
}

async fn a_missing_exchange_is_said() {
    let server = RabbitMqServer::shared();
    let name = unique_name("missing");
    let sink = open(&format!("{}?exchange={name}", server.url("/"))).unwrap();
    for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
        assert!(
            matches!(error, SinkError::Misconfigured { .. }),
            "{error:?}"
        );
        let said = error.to_string();
        assert!(
            said.contains("404 NOT_FOUND") && said.contains(&name),
            "{said}"
        );
        assert!(said.contains("declare the exchange"), "{said}");
        assert!(!said.contains("guest"), "{said}");
    }
}

/// The first publish closes the channel; nothing of the lane counts as accepted.
async fn a_removed_exchange_is_said() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let mut lane = lane(&place.sink()).await;
    accept(&mut lane, &plain(3)).await;
    server.client("/").delete_exchange(&place.name);
    for _ in 0..2 {
        for outcome in send(&mut lane, &plain(100)).await {
            let (cause, reason) = cause(&outcome);
            assert_eq!(cause, Cause::Misconfigured, "{reason}");
            assert!(reason.contains("declare the exchange"), "{reason}");
        }
    }
    assert_eq!(place.events().len(), 3);
}

/// No right would help: such an exchange takes nothing from anybody.
async fn an_internal_exchange_is_said() {
    let server = RabbitMqServer::shared();
    let name = unique_name("internal");
    server.client("/").declare_internal_exchange(&name);
    let sink = open(&format!("{}?exchange={name}", server.url("/"))).unwrap();
    for outcome in send(&mut lane(&sink).await, &plain(3)).await {
        let (cause, reason) = cause(&outcome);
        assert_eq!(cause, Cause::Misconfigured, "{reason}");
        assert!(
            reason.contains("cannot publish to internal exchange"),
            "{reason}"
        );
        assert!(!reason.contains("set_permissions"), "{reason}");
    }
}

async fn a_full_queue_is_no_events_fault() {
    let server = RabbitMqServer::shared();
    let arguments = [
        ("x-max-length", 5.into()),
        ("x-overflow", "reject-publish".into()),
    ];
    let place = Place::with_queue(server, &arguments);
    let mut lane = lane(&place.sink()).await;
    let events = plain(50);
    let outcomes = send(&mut lane, &events).await;
    let count = outcomes.iter().filter(|outcome| accepted(outcome)).count();
    // The limit is of messages that are in the queue, and may be passed by those on their way.
    assert!((5..50).contains(&count), "{count}");
    for outcome in outcomes.iter().filter(|outcome| !accepted(outcome)) {
        let Outcome::Later(why) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(why.reason.contains("a queue is full"), "{why:?}");
    }
    let taken: Vec<SuiteEvent> = events
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| accepted(outcome))
        .map(|(event, _)| event.clone())
        .collect();
    assert_eq!(place.events(), taken);
    // There is room again, on the same lane.
    accept(&mut lane, &plain(1)).await;
}

async fn wrong_logins_are_denied() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let user = unique_name("user");
    server.ctl(&["add_user", &user, "right"]);
    let login = |password: &str| server.url_of(&format!("{user}:{password}"), "/");
    let missing = server.url_of("guest:guest", "no such vhost");
    for (url, fix, misconfigured) in [
        (login("wrong"), "correct user and password", false),
        (login("right"), "set_permissions", false),
        (missing, "add_vhost", true),
    ] {
        let sink = open(&place.on(&url)).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert_eq!(
                matches!(error, SinkError::Misconfigured { .. }),
                misconfigured,
                "{said}"
            );
            assert_eq!(
                matches!(error, SinkError::Denied { .. }),
                !misconfigured,
                "{said}"
            );
            assert!(said.contains(fix), "{said}");
            assert!(!said.contains("wrong") && !said.contains("right"), "{said}");
        }
    }
    server.ctl(&["delete_user", &user]);
}

/// The broker says so at the first publish, not before.
async fn missing_rights_are_denied() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let user = unique_name("user");
    server.ctl(&["add_user", &user, "pw"]);
    server.ctl(&["set_permissions", "-p", "/", &user, "", "", ".*"]);
    let sink = open(&place.on(&server.url_of(&format!("{user}:pw"), "/"))).unwrap();
    sink.check().await.unwrap();
    let mut first = lane(&sink).await;
    for outcome in send(&mut first, &plain(10)).await {
        let (cause, reason) = cause(&outcome);
        assert_eq!(cause, Cause::Denied, "{reason}");
        assert!(reason.contains("set_permissions"), "{reason}");
    }
    // No more than this is needed.
    let exchange = format!("^{}$", place.name);
    server.ctl(&["set_permissions", "-p", "/", &user, "", &exchange, ""]);
    sink.check().await.unwrap();
    accept(&mut lane(&sink).await, &plain(10)).await;
    server.ctl(&["delete_user", &user]);
}

async fn a_forbidden_topic_is_rejected_alone() {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let user = unique_name("user");
    server.ctl(&["add_user", &user, "pw"]);
    server.ctl(&["set_permissions", "-p", "/", &user, "", ".*", ""]);
    server.ctl(&[
        "set_topic_permissions",
        "-p",
        "/",
        &user,
        &place.name,
        "^suite$",
        "",
    ]);
    let sink = open(&place.on(&server.url_of(&format!("{user}:pw"), "/"))).unwrap();
    let mut events = plain(20);
    events[7].topic = "forbidden".to_owned();
    let mut first = lane(&sink).await;
    let outcomes = send(&mut first, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Outcome::Rejected(why) => {
                assert_eq!(at, 7);
                assert_eq!(why.kind, RejectionKind::Denied);
                assert!(why.reason.contains("'forbidden'"), "{}", why.reason);
            }
            Outcome::Accepted(_) => assert!(at < 7),
            Outcome::Unavailable(why) => assert_eq!(why.cause, Cause::LaneEnded),
            Outcome::Later(why) => panic!("{why:?}"),
        }
    }
    assert!(
        !matches!(outcomes[7], Outcome::Unavailable(_)),
        "{:?}",
        outcomes[7]
    );
    events.remove(7);
    accept(&mut lane(&sink).await, &events).await;
    server.ctl(&["delete_user", &user]);
}

async fn a_limit_of_the_address_is_exact() {
    let place = Place::new(RabbitMqServer::shared());
    let url = place.on(&RabbitMqServer::shared().url("/"));
    let mut lane = lane(&open(&format!("{url}&max_event_bytes=10")).unwrap()).await;
    let events = [
        SuiteEvent::new(None, "0123456789"),
        SuiteEvent::new(None, "0123456789a"),
        SuiteEvent::new(None, ""),
    ];
    let outcomes = send(&mut lane, &events).await;
    let Outcome::Rejected(why) = &outcomes[1] else {
        panic!("11 bytes passed a limit of 10");
    };
    assert_eq!(why.kind, RejectionKind::TooLarge);
    assert!(why.reason.contains("11 bytes"), "{}", why.reason);
    assert!(why.reason.contains("max_event_bytes=10"), "{}", why.reason);
    assert!(accepted(&outcomes[0]) && accepted(&outcomes[2]));
    assert_eq!(place.events(), [events[0].clone(), events[2].clone()]);
}
