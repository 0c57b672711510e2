//! Refusals of the server, and the words of the sink for them.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, CheckedPart, Outcome, RejectionKind, Severity, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::nats::{ADMIN, NatsServer},
    sink_suite::SuiteEvent,
    tls::TestCa,
    unique_name,
};
use serde_json::json;

use super::{
    place::{Place, cause, put_off},
    trial,
};
use crate::driving::{accept, accepted, impatient_lane, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_subject_without_a_stream_is_said",
            a_subject_without_a_stream_is_said,
        ),
        trial("only_a_streams_answer_counts", only_a_streams_answer_counts),
        trial(
            "a_silent_subject_is_put_off_alone",
            a_silent_subject_is_put_off_alone,
        ),
        trial("another_stream_is_refused", another_stream_is_refused),
        trial("a_missing_stream_is_said", a_missing_stream_is_said),
        trial("a_check_tells_of_streams", a_check_tells_of_streams),
        trial("a_repeat_is_suppressed", a_repeat_is_suppressed),
        trial(
            "events_that_no_message_can_hold_are_rejected",
            events_that_no_message_can_hold,
        ),
        trial(
            "a_full_stream_is_no_events_fault",
            a_full_stream_is_no_events_fault,
        ),
        trial("wrong_logins_are_denied", wrong_logins_are_denied),
        trial(
            "a_forbidden_subject_is_rejected_alone",
            a_forbidden_subject_is_rejected_alone,
        ),
        trial(
            "tls_trusts_whom_it_is_told_to",
            tls_trusts_whom_it_is_told_to,
        ),
    ]
}

fn rejection(outcome: &Outcome) -> (RejectionKind, &str) {
    match outcome {
        Outcome::Rejected(why) => (why.kind, &why.reason),
        other => panic!("{other:?}"),
    }
}

/// The others of the lane go on, and so does that subject once it has a stream.
async fn a_subject_without_a_stream_is_said() {
    let server = NatsServer::shared();
    let place = Place::new(server);
    let url = format!("{}?subject={{topic}}", server.url());
    let mut lane = lane(&open(&url).unwrap()).await;
    let mut events = plain(20);
    for event in &mut events {
        event.topic = format!("{}.orders", place.name);
    }
    let missing = unique_name("missing");
    events[7].topic.clone_from(&missing);
    let outcomes = send(&mut lane, &events).await;
    let words = &put_off(&outcomes[7]).reason;
    assert!(
        words.contains(&missing) && words.contains("create a stream"),
        "{words}"
    );
    assert_eq!(
        outcomes.iter().filter(|outcome| accepted(outcome)).count(),
        19
    );
    let stream = missing.to_uppercase();
    server
        .client()
        .create_stream(&stream, &[&missing], &json!({}));
    accept(&mut lane, &events[7..8]).await;
    assert_eq!(server.client().stream_state(&stream), (1, 1));
    server.client().delete_stream(&stream);
}

/// Another client that listens, and even answers, has stored nothing.
async fn only_a_streams_answer_counts() {
    let server = NatsServer::shared();
    let subject = unique_name("service");
    let sink = open(&format!("{}?subject={subject}", server.url())).unwrap();
    let mut service = server.client();
    service.listen(&subject);
    let answering = std::thread::spawn(move || {
        for answer in [&b"+OK"[..], b"", b"{}", br#"{"stream":"S"}"#] {
            let message = service.next_message();
            service.publish(&message.reply.unwrap(), answer);
        }
        // The last one gets no answer.
        service.next_message();
        service
    });
    let mut lane = impatient_lane(&sink).await;
    for _ in 0..4 {
        let outcomes = send(&mut lane, &plain(1)).await;
        let words = &put_off(&outcomes[0]).reason;
        assert!(words.contains("another client"), "{words}");
    }
    let outcomes = send(&mut lane, &plain(1)).await;
    let why = put_off(&outcomes[0]);
    let words = &why.reason;
    assert!(why.is_silent && words.contains("within 4.5s"), "{words}");
    drop(answering.join().unwrap());
}

/// The others of the lane are answered meanwhile, and it goes on.
async fn a_silent_subject_is_put_off_alone() {
    let server = NatsServer::shared();
    let (place, silent) = (Place::new(server), unique_name("silent"));
    let mut service = server.client();
    service.listen(&silent);
    let sink = open(&format!("{}?subject={{topic}}", server.url())).unwrap();
    let mut lane = impatient_lane(&sink).await;
    let mut events = plain(20);
    for (at, event) in (0..).zip(&mut events) {
        event.topic = match at {
            0 | 10 => silent.clone(),
            _ => format!("{}.orders", place.name),
        };
    }
    let outcomes = send(&mut lane, &events).await;
    for at in [0, 10] {
        let why = put_off(&outcomes[at]);
        assert!(
            why.is_silent && why.reason.contains("within 4.5s"),
            "{why:?}"
        );
    }
    let all_others = outcomes.iter().filter(|outcome| accepted(outcome)).count();
    assert_eq!(all_others, 18);
    accept(&mut lane, &events[1..10]).await;
}

async fn another_stream_is_refused() {
    let server = NatsServer::shared();
    let (place, other) = (Place::new(server), Place::new(server));
    let (stream, subject) = (&place.name, &other.name);
    let url = format!(
        "{}?stream={stream}&subject={subject}.{{topic}}",
        server.url()
    );
    let mut lane = lane(&open(&url).unwrap()).await;
    for outcome in send(&mut lane, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Misconfigured, "{words}");
        assert!(words.contains("correct `stream`"), "{words}");
    }
    assert_eq!(other.state(), (0, 0));
}

async fn a_missing_stream_is_said() {
    let name = unique_name("missing");
    let without = NatsServer::start_without_jetstream();
    for (server, fix) in [
        (NatsServer::shared(), "create the stream"),
        (&without, "enable it"),
    ] {
        let sink = open(&format!("{}?stream={name}", server.url())).unwrap();
        let error = sink.check().await.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
        assert!(said.contains(&name) && said.contains(fix), "{said}");
        let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
        assert!(!put_off(&outcomes[0]).is_silent);
    }
}

/// Of the address's stream, or else of all.
async fn a_check_tells_of_streams() {
    let server = NatsServer::start();
    let settings = json!({ "storage": "memory", "duplicate_window": 90_000_000_000_u64 });
    let place = Place::with_stream(&server, &settings);
    for url in [place.on(&server.url()), server.url()] {
        let report = open(&url).unwrap().check().await.unwrap();
        let part = report.parts().iter().find(|part| part.kind == "stream");
        let part = part.expect("the stream is seen");
        assert_eq!(part.name, place.name);
        let fact = |name| facts(part).find(|(fact, _)| *fact == name).unwrap().1;
        assert_eq!(fact("subjects"), Some(&*format!("{}.>", place.name)));
        assert_eq!(fact("duplicate_window"), Some("90s"));
        assert_eq!(fact("replicas"), Some("1"));
        let [finding] = report.findings() else {
            panic!("{report:?}");
        };
        assert_eq!(finding.severity, Severity::Risk);
        assert!(finding.fault.contains("memory"), "{finding:?}");
    }
    let without = NatsServer::start_without_jetstream();
    let report = open(&without.url()).unwrap().check().await.unwrap();
    assert_eq!(report.findings()[0].severity, Severity::Stops);
}

fn facts(part: &CheckedPart) -> impl Iterator<Item = (&str, Option<&str>)> {
    let facts = part.facts.iter();
    facts.map(|fact| (fact.name, fact.value.as_deref()))
}

/// Also on another lane, and by its id alone.
async fn a_repeat_is_suppressed() {
    let place = Place::new(NatsServer::shared());
    let sink = place.sink();
    let events = plain(10);
    accept(&mut lane(&sink).await, &events).await;
    accept(&mut lane(&sink).await, &events).await;
    assert_eq!(place.events(), events);
}

async fn events_that_no_message_can_hold() {
    let server = NatsServer::start_with(&[]);
    let place = Place::new(&server);
    let mut events = plain(10);
    // The server ends the connection of a client that sends more.
    events[2].payload = Some(vec![b'x'; 64 << 20]);
    events[4].headers = vec![("Nats-Rollup".to_owned(), Some("all".to_owned()))];
    events[6].topic = "two words".to_owned();
    events[8].occurred_at = i64::MAX;
    let outcomes = send(&mut lane(&place.sink()).await, &events).await;
    for (at, kind, words) in [
        (2, RejectionKind::TooLarge, "max_payload"),
        (4, RejectionKind::Invalid, "`Nats-Rollup`"),
        (6, RejectionKind::Invalid, "white space"),
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

async fn a_full_stream_is_no_events_fault() {
    let place = Place::with_stream(NatsServer::shared(), &json!({ "max_msgs": 5 }));
    let outcomes = send(&mut lane(&place.sink()).await, &plain(8)).await;
    assert!(outcomes[..5].iter().all(accepted));
    for outcome in &outcomes[5..] {
        let why = put_off(outcome);
        assert!(why.reason.contains("maximum messages exceeded"), "{why:?}");
    }
    assert_eq!(place.events().len(), 5);
}

async fn wrong_logins_are_denied() {
    let (user, password) = ADMIN;
    let login = format!("authorization {{ user: {user}, password: \"{password}\" }}");
    let by_password = NatsServer::start_with(&[&login]);
    let by_token = NatsServer::start_with(&["authorization { token: s3cret }"]);
    let place = Place::new(&by_password);
    for (server, right, wrong) in [
        (&by_password, "admin:pass%2Fword", "admin:s3cret"),
        (&by_token, "s3cret", "other"),
    ] {
        let good = open(&server.url_of(right)).unwrap();
        good.check().await.unwrap();
        for url in [server.url_of(wrong), server.url()] {
            let sink = open(&url).unwrap();
            for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
                let said = error.to_string();
                assert!(matches!(error, SinkError::Denied { .. }), "{said}");
                assert!(said.contains("or the token"), "{said}");
                assert!(!said.contains("s3cret"), "{said}");
            }
        }
    }
    let sink = open(&place.on(&by_password.url_of("admin:pass%2Fword"))).unwrap();
    accept(&mut lane(&sink).await, &plain(10)).await;
}

/// The least rights that the sink needs, and a subject outside them.
async fn a_forbidden_subject_is_rejected_alone() {
    let (admin, password) = ADMIN;
    let users = format!(
        "authorization {{ users = [\n\
           {{ user: {admin}, password: \"{password}\" }}\n\
           {{ user: relay, password: pw, permissions: {{\n\
             publish: [\"*.allowed\", \"$JS.API.STREAM.INFO.*\"], subscribe: \"_INBOX.>\" }} }}\n\
           {{ user: blind, password: pw, permissions: {{ publish: \"*.allowed\" }} }}\n\
           {{ user: deaf, password: pw, permissions: {{ subscribe: \"nothing\" }} }}\n\
         ] }}"
    );
    let server = NatsServer::start_with(&[&users]);
    let place = Place::new(&server);
    let sink = open(&place.on(&server.url_of("relay:pw"))).unwrap();
    sink.check().await.unwrap();
    // It may not ask for all streams, and need not.
    let any = open(&server.url_of("relay:pw")).unwrap().check().await;
    let [part] = any.as_ref().unwrap().parts() else {
        panic!("{any:?}");
    };
    assert!(
        facts(part).any(|fact| fact == ("streams", None)),
        "{part:?}"
    );
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

    let blind = open(&place.on(&server.url_of("blind:pw"))).unwrap();
    accept(&mut lane(&blind).await, &events[..3]).await;
    let deaf = open(&place.on(&server.url_of("deaf:pw"))).unwrap();
    for (error, right) in [
        (blind.check().await.unwrap_err(), "$JS.API.STREAM.INFO"),
        (deaf.check().await.unwrap_err(), "`_INBOX.>`"),
        (refusal(&deaf).await, "`_INBOX.>`"),
    ] {
        let said = error.to_string();
        assert!(matches!(error, SinkError::Denied { .. }), "{said}");
        assert!(said.contains(right), "{said}");
    }
}

async fn tls_trusts_whom_it_is_told_to() {
    let ca = TestCa::new();
    let certificate = ca.server_certificate(&["localhost"]);
    let login = "authorization { token: s3cret }";
    let server = NatsServer::start_tls(&certificate, &[login]);
    let plain_server = NatsServer::shared();
    let by_address = server.url_of("s3cret");
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let other = TestCa::new();
    let (ours, theirs) = (ca.certificate_file(), other.certificate_file());
    let with = |url: &str, ca_file: &std::path::Path| {
        format!("{url}?tls=true&ca_file={}", ca_file.display())
    };
    open(&with(&by_name, &ours)).unwrap().check().await.unwrap();

    // The tests' own client speaks no TLS.
    let both = NatsServer::start_tls(&certificate, &["allow_non_tls: true"]);
    let place = Place::new(&both);
    let url = place.on(&both.url().replace("127.0.0.1", "localhost"));
    let sink = open(&format!("{url}&tls=true&ca_file={}", ours.display())).unwrap();
    let events = plain(500);
    accept(&mut lane(&sink).await, &events).await;
    assert_eq!(place.events(), events);

    for (url, fix) in [
        (with(&by_name, &theirs), "correct `ca_file`"),
        (with(&by_address, &ours), "the host's name"),
        (format!("{by_name}?tls=true"), "with `ca_file`"),
        (with(&by_name, std::path::Path::new("/absent")), "`/absent`"),
        (with(&plain_server.url(), &ours), "offers no TLS"),
        (by_name.clone(), "add `tls=true`"),
    ] {
        let sink = open(&url).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
            assert!(said.contains(fix), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}
