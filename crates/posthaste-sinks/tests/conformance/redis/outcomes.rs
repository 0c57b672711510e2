//! Refusals of the server, and the words of the sink for them.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use posthaste_engine::{Acceptance, Cause, Outcome, RejectionKind, Severity, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::redis::RedisServer,
    sink_suite::{SuiteEvent, lane_spec},
    tls::TestCa,
};

use super::{
    place::{Place, cause, put_off, rejection, spec},
    trial,
};
use crate::driving::{accept, accepted, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_repeat_is_suppressed", a_repeat_is_suppressed),
        trial("only_so_many_ids_are_known", only_so_many_ids_are_known),
        trial(
            "a_stream_that_is_none_is_put_off_alone",
            a_stream_that_is_none_is_put_off_alone,
        ),
        trial("no_memory_is_no_events_fault", no_memory_is_no_events_fault),
        trial(
            "a_forbidden_stream_is_rejected_alone",
            a_forbidden_stream_is_rejected_alone,
        ),
        trial("missing_rights_are_denied", missing_rights_are_denied),
        trial("wrong_logins_are_denied", wrong_logins_are_denied),
        trial("a_check_tells_of_the_server", a_check_tells_of_the_server),
        trial(
            "events_that_no_stream_can_hold_are_rejected",
            events_that_no_stream_can_hold,
        ),
        trial("streams_are_trimmed", streams_are_trimmed),
        trial(
            "a_key_of_several_streams_keeps_its_order",
            a_key_of_several_streams_keeps_its_order,
        ),
        trial(
            "the_database_is_that_of_the_address",
            the_database_is_that_of_the_address,
        ),
        trial(
            "tls_trusts_whom_it_is_told_to",
            tls_trusts_whom_it_is_told_to,
        ),
    ]
}

/// Also on another lane, as after a lost answer, and among new events.
async fn a_repeat_is_suppressed() {
    let place = Place::new(RedisServer::shared());
    let (sink, scope) = (place.sink(), lane_spec(0).scope);
    let events = plain(20);
    let mut first = sink.open_lane(spec(&scope, 1, 1)).await.unwrap();
    accept(&mut first, &events[..10]).await;
    let mut second = sink.open_lane(spec(&scope, 1, 2)).await.unwrap();
    let outcomes = send(&mut second, &events[5..]).await;
    for (at, outcome) in (5..).zip(outcomes) {
        let acceptance = Acceptance {
            receipt: None,
            is_duplicate: at < 10,
        };
        assert_eq!(outcome, Outcome::Accepted(acceptance), "{at}");
    }
    assert_eq!(place.events("suite"), events);
}

async fn only_so_many_ids_are_known() {
    let server = RedisServer::shared();
    let place = Place::new(server);
    let url = format!("{}&known_ids=1000", place.on(&server.url()));
    let sink = open(&url).unwrap();
    let mut lane = lane(&sink).await;
    let events = plain(1_500);
    accept(&mut lane, &events).await;
    let keys = place.keys();
    let ids = keys.iter().find(|key| key.contains(":ids:")).unwrap();
    let mut client = server.client();
    assert_eq!(client.number(&["ZCARD", ids]), 1_000);
    let seconds = client.number(&["TTL", ids]);
    assert!((1..=7 * 24 * 3_600).contains(&seconds), "{seconds}");
    accept(&mut lane, &events[..1]).await;
    accept(&mut lane, &events[501..]).await;
    assert_eq!(place.count("suite"), 1_501);
}

/// The others of the lane go on, and so does that stream once its key is free.
async fn a_stream_that_is_none_is_put_off_alone() {
    let server = RedisServer::shared();
    let place = Place::new(server);
    let bad = place.stream("bad");
    server.client().ask(&["SET", &bad, "text"]);
    let mut lane = lane(&place.sink()).await;
    let mut events = plain(20);
    for event in &mut events[5..10] {
        event.topic = "bad".to_owned();
    }
    // The second of a key follows the first one's failure.
    events[6].key = events[5].key.clone();
    let outcomes = send(&mut lane, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            6 => assert_eq!(cause(outcome).0, Cause::BehindFailure),
            5..10 => {
                let words = put_off(outcome);
                assert!(words.contains(&bad) && words.contains("rename"), "{words}");
            }
            _ => assert!(accepted(outcome), "{outcome:?}"),
        }
    }
    server.client().ask(&["DEL", &bad]);
    accept(&mut lane, &events[5..10]).await;
    assert_eq!(place.events("bad"), events[5..10]);
    assert_eq!(place.count("suite"), 15);
}

/// Nothing is evicted, nothing is half there, and what was accepted stays.
async fn no_memory_is_no_events_fault() {
    let server = RedisServer::start_with(&["maxmemory 8mb", "maxmemory-policy noeviction"]);
    let place = Place::new(&server);
    let sink = place.sink();
    let scope = lane_spec(0).scope;
    let mut lane = sink.open_lane(spec(&scope, 1, 1)).await.unwrap();
    let events: Vec<SuiteEvent> = (0..200)
        .map(|n| SuiteEvent::new(Some(&format!("key-{n}")), vec![b'x'; 100_000]))
        .collect();
    let outcomes = send(&mut lane, &events).await;
    let mut taken = BTreeSet::new();
    let mut words_seen = false;
    for (event, outcome) in events.iter().zip(&outcomes) {
        if accepted(outcome) {
            taken.insert(event.id);
            continue;
        }
        let (why, words) = cause(outcome);
        assert!(
            [Cause::Throttled, Cause::LaneEnded].contains(&why),
            "{words}"
        );
        words_seen |= why == Cause::Throttled && words.contains("`maxmemory`");
        assert!(!words.contains("posthaste:"), "no key is at fault: {words}");
    }
    assert!(words_seen && !taken.is_empty());
    let there: BTreeSet<_> = place.events("suite").iter().map(|event| event.id).collect();
    assert_eq!(there, taken);
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let said = sink.check().await.unwrap_err().to_string();
    assert!(said.contains("`maxmemory`"), "{said}");
    client.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let mut next = sink.open_lane(spec(&scope, 1, 2)).await.unwrap();
    accept(&mut next, &events).await;
    assert_eq!(place.count("suite"), 200);
}

/// The rights that the page names.
pub(super) const RIGHTS: [&str; 13] = [
    "+eval",
    "+evalsha",
    "+xadd",
    "+zadd",
    "+zcard",
    "+zmscore",
    "+zrange",
    "+zremrangebyrank",
    "+expire",
    "+hexists",
    "+hgetall",
    "+hset",
    "+hdel",
];

pub(super) fn set_user(server: &RedisServer, name: &str, keys: &[&str], rights: &[&str]) {
    let rules = [
        &["ACL", "SETUSER", name, "reset", "on", ">p:w"],
        keys,
        rights,
    ]
    .concat();
    server.client().ask(&rules);
}

/// The least rights that the sink needs, and a stream outside them.
async fn a_forbidden_stream_is_rejected_alone() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    let allowed = format!("~{}", place.stream("allowed"));
    set_user(&server, "relay", &["~posthaste:*", &allowed], &RIGHTS);
    let sink = open(&place.on(&server.url_of("relay:p%3Aw"))).unwrap();
    let report = sink.check().await.unwrap();
    // It may not ask, and need not.
    assert!(
        report.parts()[0]
            .facts
            .iter()
            .all(|fact| fact.value.is_none())
    );
    let mut lane = lane(&sink).await;
    let mut events = plain(20);
    for event in &mut events {
        event.topic = "allowed".to_owned();
    }
    events[7].topic = "forbidden".to_owned();
    let outcomes = send(&mut lane, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(accepted(outcome), at != 7, "{outcome:?}");
    }
    let (kind, words) = rejection(&outcomes[7]);
    assert_eq!(kind, RejectionKind::Denied);
    assert!(words.contains(":forbidden"), "{words}");
    // A stream that the address names is tried before.
    let url = format!("{}?stream=other", server.url_of("relay:p%3Aw"));
    let error = open(&url).unwrap().check().await.unwrap_err();
    assert!(matches!(error, SinkError::Denied { .. }), "{error}");
}

async fn missing_rights_are_denied() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    for missing in RIGHTS {
        let rights: Vec<&str> = RIGHTS
            .into_iter()
            .filter(|right| *right != missing)
            .collect();
        set_user(&server, "poor", &["~*"], &rights);
        let sink = open(&place.on(&server.url_of("poor:p%3Aw"))).unwrap();
        // Without a hash it is sent as text.
        let is_seen_at_check = !["+evalsha", "+hset"].contains(&missing);
        match sink.check().await {
            Err(SinkError::Denied { reason, .. }) if is_seen_at_check => {
                let command = &missing[1..];
                assert!(
                    reason.to_lowercase().contains(command),
                    "{missing}: {reason}"
                );
            }
            found => assert!(!is_seen_at_check && found.is_ok(), "{missing}: {found:?}"),
        }
        match sink.open_lane(lane_spec(1)).await {
            Err(SinkError::Denied { .. }) => {}
            Err(error) => panic!("{missing}: {error}"),
            Ok(mut lane) => {
                let all = plain(2);
                for outcome in send(&mut lane, &all).await {
                    let is_needed = !["+zremrangebyrank", "+hdel"].contains(&missing);
                    if is_needed {
                        let (why, words) = cause(&outcome);
                        let is_denied = [Cause::Denied, Cause::LaneEnded].contains(&why);
                        assert!(is_denied, "{missing}: {words}");
                    }
                }
            }
        }
    }
}

async fn wrong_logins_are_denied() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    set_user(&server, "relay", &["~*"], &["+@all"]);
    let by_user = place.on(&server.url_of("relay:p%3Aw"));
    accept(&mut lane(&open(&by_user).unwrap()).await, &plain(3)).await;
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "requirepass", "open/sesame"]);
    let by_password = place.on(&server.url_of("default:open%2Fsesame"));
    accept(&mut lane(&open(&by_password).unwrap()).await, &plain(3)).await;
    for url in [
        server.url_of("relay:s3cret"),
        server.url_of("nobody:s3cret"),
        server.url_of("default:s3cret"),
        server.url(),
    ] {
        let sink = open(&place.on(&url)).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Denied { .. }), "{said}");
            assert!(said.contains("correct user and password"), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}

async fn a_check_tells_of_the_server() {
    let good = RedisServer::shared();
    let place = Place::new(good);
    let report = place.sink().check().await.unwrap();
    assert_eq!(report.findings(), []);
    let facts = &report.parts()[0].facts;
    let fact = |name| {
        facts
            .iter()
            .find(|fact| fact.name == name)
            .unwrap()
            .value
            .clone()
    };
    assert_eq!(fact("appendfsync").as_deref(), Some("always"));
    assert_eq!(fact("maxmemory_policy").as_deref(), Some("noeviction"));
    assert!(fact("version").is_some());

    let lines = [
        "maxmemory 100mb",
        "maxmemory-policy allkeys-lru",
        "appendfsync everysec",
    ];
    let bad = RedisServer::start_with(&lines);
    bad.client().ask(&["SET", "orders", "text"]);
    let sink = open(&format!("{}?stream=orders&wait=1", bad.url())).unwrap();
    let mut found = Vec::new();
    for appendonly in ["yes", "no"] {
        bad.client()
            .ask(&["CONFIG", "SET", "appendonly", appendonly]);
        let report = sink.check().await.unwrap();
        let words = report.findings().iter();
        found.push(
            words
                .map(|f| (f.severity, f.fault.clone()))
                .collect::<Vec<_>>(),
        );
    }
    for (found, log) in found.iter().zip(["each second", "`appendonly no`"]) {
        for (at, (severity, words)) in [
            (Severity::Risk, log),
            (Severity::Risk, "allkeys-lru"),
            (Severity::Stops, "0 of the 1 replicas"),
            (Severity::Stops, "holds a string"),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(found[at].0, severity);
            assert!(found[at].1.contains(words), "{found:?}");
        }
        assert_eq!(found.len(), 4);
    }
}

async fn events_that_no_stream_can_hold() {
    let server = RedisServer::shared();
    let place = Place::new(server);
    let url = format!("{}?stream={{topic}}&max_event_bytes=1000", server.url());
    let sink = open(&url).unwrap();
    let mut events = plain(10);
    for event in &mut events {
        event.topic = place.stream("orders");
    }
    events[2].payload = Some(vec![b'x'; 1_001]);
    events[4].topic = String::new();
    events[6].topic = "posthaste:x".to_owned();
    events[8].occurred_at = i64::MAX;
    let outcomes = send(&mut lane(&sink).await, &events).await;
    for (at, kind, words) in [
        (2, RejectionKind::TooLarge, "max_event_bytes"),
        (4, RejectionKind::Invalid, "it is empty"),
        (6, RejectionKind::Invalid, "own keys"),
        (8, RejectionKind::Invalid, "9999"),
    ] {
        let (found, said) = rejection(&outcomes[at]);
        assert_eq!(found, kind, "{said}");
        assert!(said.contains(words), "{said}");
    }
    let others = outcomes.iter().filter(|outcome| accepted(outcome));
    assert_eq!(others.count(), 6);
    assert_eq!(place.count("orders"), 6);
}

async fn streams_are_trimmed() {
    let server = RedisServer::shared();
    for (maxlen, fits) in [("10", 10..=10), ("~10", 10..=399)] {
        let place = Place::new(server);
        let url = format!("{}&maxlen={maxlen}", place.on(&server.url()));
        let events = plain(400);
        accept(&mut lane(&open(&url).unwrap()).await, &events).await;
        let kept = place.events("suite");
        assert!(fits.contains(&kept.len()), "{maxlen}: {}", kept.len());
        assert_eq!(kept, events[events.len() - kept.len()..]);
    }
}

/// No event of a key is sent before those of other streams are answered.
async fn a_key_of_several_streams_keeps_its_order() {
    let server = RedisServer::shared();
    let place = Place::new(server);
    let mut events: Vec<_> = (0..300)
        .map(|n| SuiteEvent::new(Some(&format!("key-{}", n % 3)), format!("{n}")))
        .collect();
    for (n, event) in events.iter_mut().enumerate() {
        event.topic = format!("t{}", n / 3 % 25);
    }
    accept(&mut lane(&place.sink()).await, &events).await;
    let mut found: Vec<((u64, usize), usize)> = Vec::new();
    for topic in 0..25 {
        let entries = server.client().entries(&place.stream(&format!("t{topic}")));
        for (at, entry) in entries.iter().enumerate() {
            let (millis, _) = entry.id.split_once('-').unwrap();
            let payload = entry
                .fields
                .iter()
                .find(|(name, _)| name == "payload")
                .unwrap();
            let number: usize = String::from_utf8_lossy(&payload.1).parse().unwrap();
            found.push(((millis.parse().unwrap(), at), number));
        }
    }
    assert_eq!(found.len(), events.len());
    for key in 0..3 {
        let of_key = found.iter().filter(|(_, number)| number % 3 == key);
        let mut of_key: Vec<_> = of_key
            .map(|((millis, _), number)| (*number, *millis))
            .collect();
        of_key.sort_unstable();
        assert!(of_key.is_sorted_by_key(|(_, millis)| *millis), "{of_key:?}");
    }
}

async fn the_database_is_that_of_the_address() {
    let server = RedisServer::start();
    let place = Place::new(&server);
    let url = |database: u32| place.on(&format!("{}/{database}", server.url()));
    accept(&mut lane(&open(&url(3)).unwrap()).await, &plain(3)).await;
    assert_eq!(place.count("suite"), 0);
    let mut client = server.client();
    client.ask(&["SELECT", "3"]);
    assert_eq!(client.entries(&place.stream("suite")).len(), 3);
    let error = open(&url(99)).unwrap().check().await.unwrap_err();
    assert!(matches!(error, SinkError::Misconfigured { .. }), "{error}");
}

async fn tls_trusts_whom_it_is_told_to() {
    let ca = TestCa::new();
    let server = RedisServer::start_tls(&ca.server_certificate(&["localhost"]));
    let place = Place::new(&server);
    let by_address = place.on(&server.url().replace("redis:", "rediss:"));
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let other = TestCa::new();
    let (ours, theirs) = (ca.certificate_file(), other.certificate_file());
    let with =
        |url: &str, ca_file: &std::path::Path| format!("{url}&ca_file={}", ca_file.display());
    let sink = open(&with(&by_name, &ours)).unwrap();
    sink.check().await.unwrap();
    let events = plain(500);
    accept(&mut lane(&sink).await, &events).await;
    assert_eq!(place.events("suite"), events);
    for (url, fix) in [
        (with(&by_name, &theirs), "correct `ca_file`"),
        (with(&by_address, &ours), "the host's name"),
        (by_name.clone(), "with `ca_file`"),
        (with(&by_name, std::path::Path::new("/absent")), "`/absent`"),
    ] {
        let sink = open(&url).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(
                matches!(error, SinkError::Misconfigured { .. }),
                "{url}: {said}"
            );
            assert!(said.contains(fix), "{said}");
        }
    }
    let without = open(&by_name.replace("rediss:", "redis:")).unwrap();
    let said = without.check().await.unwrap_err().to_string();
    assert!(said.contains("`rediss:"), "{said}");
    let plain = place.on(&RedisServer::shared().url());
    let other = open(&plain.replace("redis:", "rediss:")).unwrap();
    let said = other.check().await.unwrap_err().to_string();
    assert!(said.contains("write `redis:"), "{said}");
}
