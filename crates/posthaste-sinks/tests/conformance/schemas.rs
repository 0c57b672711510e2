//! Payloads in the form that a registry's schemas tell. The suite has no rows here: its payloads
//! are any bytes.

use std::{sync::Arc, time::Duration};

use libtest_mimic::Trial;
use posthaste_engine::{CheckReport, Finding, LaneSpec, Outcome, RejectionKind, Severity, Sink};
use posthaste_sinks::{PayloadSettings, around};
use posthaste_testkit::{
    ports::Port,
    servers::registry::RegistryServer,
    sink_suite::{Fixture, SuiteEvent, lane_spec, poll_once, records},
    tls::TestCa,
    unique_name,
};

use crate::driving::{accept, accepted, lane, send};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("each_format_is_written", each_format_is_written),
        trial(
            "schemas_are_found_behind_references",
            schemas_are_found_behind_references,
        ),
        trial(
            "what_has_its_form_already_keeps_it",
            what_has_its_form_already_keeps_it,
        ),
        trial(
            "a_payload_that_fits_no_schema_is_refused_alone",
            a_payload_that_fits_no_schema_is_refused_alone,
        ),
        trial(
            "a_newer_schema_is_asked_for_before_a_payload_is_refused",
            a_newer_schema_is_asked_for_before_a_payload_is_refused,
        ),
        trial("a_header_names_the_version", a_header_names_the_version),
        trial(
            "a_subject_may_be_made_of_the_type",
            a_subject_may_be_made_of_the_type,
        ),
        trial(
            "an_unknown_subject_holds_up_its_events_alone",
            an_unknown_subject_holds_up_its_events_alone,
        ),
        trial(
            "a_registry_that_is_away_puts_off_what_it_is_needed_for",
            a_registry_that_is_away_puts_off_what_it_is_needed_for,
        ),
        trial(
            "a_slow_registry_holds_up_its_keys_alone",
            a_slow_registry_holds_up_its_keys_alone,
        ),
        trial(
            "a_schema_of_no_use_is_told_and_mended",
            a_schema_of_no_use_is_told_and_mended,
        ),
        trial(
            "a_check_tells_of_the_registry",
            a_check_tells_of_the_registry,
        ),
        trial(
            "a_registry_has_to_show_a_certificate_that_is_trusted",
            a_registry_has_to_show_a_certificate_that_is_trusted,
        ),
        trial(
            "many_large_payloads_are_written_on_threads",
            many_large_payloads_are_written_on_threads,
        ),
    ]
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("schema-registry::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

const ORDER: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"},
    {"name": "note", "type": ["null", "string"], "default": null}]}"#;

/// A file, before which payloads get their form.
struct Place {
    file: Box<dyn Fixture>,
    sink: Arc<dyn Sink>,
}

impl Place {
    fn new(url: &str, subject: Option<&str>) -> Self {
        let file = (crate::file::rows()[0].fixture)();
        let settings = PayloadSettings {
            schema_registry: Some(url.to_owned()),
            schema_subject: subject.map(str::to_owned),
            ..PayloadSettings::default()
        };
        let sink = around(file.sink(), &settings).unwrap();
        Self { file, sink }
    }

    /// Asks until the registry answers: where processors are busy, a check waits too short for the
    /// first answer of a server of Java.
    async fn answered_check(&self) -> CheckReport {
        let is_silent = |found: &Finding| found.fault.contains("no answer within");
        loop {
            let report = self.sink.check().await.unwrap();
            if !report.findings().iter().any(is_silent) {
                return report;
            }
        }
    }

    fn shared() -> Self {
        Self::new(&RegistryServer::shared().url(), None)
    }

    async fn values(&self) -> Vec<Vec<u8>> {
        let arrived = self.file.arrived().await;
        arrived
            .into_iter()
            .filter_map(|event| event.payload)
            .collect()
    }
}

fn event(topic: &str, key: &str, payload: impl Into<Vec<u8>>) -> SuiteEvent {
    SuiteEvent {
        topic: topic.to_owned(),
        ..SuiteEvent::new(Some(key), payload)
    }
}

/// A topic with a schema, and the schema's number.
fn topic(server: &RegistryServer, kind: &str, schema: &str) -> (String, u32) {
    let topic = unique_name("topic");
    let id = server.register(&format!("{topic}-value"), kind, schema);
    (topic, id)
}

/// A record of one field.
fn record(name: &str, field: &str, kind: &str) -> String {
    let field = format!(r#"{{"name": "{field}", "type": "{kind}"}}"#);
    format!(r#"{{"type": "record", "name": "{name}", "fields": [{field}]}}"#)
}

/// Of these rules. This registry takes what has no `$schema` for no schema.
fn json_schema(rules: &str) -> String {
    format!(r#"{{"$schema": "http://json-schema.org/draft-07/schema#", {rules}}}"#)
}

fn framed(id: u32, value: &[u8]) -> Vec<u8> {
    [&[0], &id.to_be_bytes()[..], value].concat()
}

fn put_off(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Later(why) => &why.reason,
        other => panic!("{other:?}"),
    }
}

fn refused(outcome: &Outcome) -> (RejectionKind, &str) {
    match outcome {
        Outcome::Rejected(why) => (why.kind, &why.reason),
        other => panic!("{other:?}"),
    }
}

async fn each_format_is_written() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let (avro, avro_id) = topic(server, "AVRO", ORDER);
    let (json, json_id) = topic(
        server,
        "JSON",
        r#"{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}"#,
    );
    let (proto, proto_id) = topic(
        server,
        "PROTOBUF",
        "syntax = \"proto3\"; package shop; message Customer { string name = 1; } \
         message Order { int32 id = 1; string note = 2; message Line { int32 n = 1; } }",
    );
    let of_kind = |kind: &str, payload: &str| SuiteEvent {
        kind: Some(kind.to_owned()),
        ..event(&proto, "p", payload)
    };
    let events = [
        event(&avro, "a", r#"{"id": 7, "note": "hi"}"#),
        event(&avro, "a", r#"{"id": -1}"#),
        event(&json, "j", r#"{ "id": 7 }"#),
        event(&proto, "p", r#"{"name": "Ann"}"#),
        of_kind("Order", r#"{"id": 7}"#),
        of_kind("shop.Order.Line", r#"{"n": 1}"#),
        of_kind("unknown", r#"{"name": "B"}"#),
    ];
    accept(&mut lane(&place.sink).await, &events).await;
    let mut values = place.values().await;
    let mut wanted = vec![
        framed(avro_id, &[14, 2, 4, b'h', b'i']),
        framed(avro_id, &[1, 0]),
        framed(json_id, br#"{ "id": 7 }"#),
        framed(proto_id, &[0, 10, 3, b'A', b'n', b'n']),
        framed(proto_id, &[2, 2, 8, 7]),
        framed(proto_id, &[4, 2, 0, 8, 1]),
        framed(proto_id, &[0, 10, 1, b'B']),
    ];
    values.sort();
    wanted.sort();
    assert_eq!(values, wanted);
}

async fn schemas_are_found_behind_references() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let name = unique_name("money").replace('-', "_");
    let money = format!("{name}-money");
    server.register(&money, "AVRO", &record(&name, "cents", "long"));
    let avro = unique_name("topic");
    let avro_id = server.register_with(
        &format!("{avro}-value"),
        "AVRO",
        &record("Bill", "sum", &name),
        &[(&name, &money)],
    );
    let line = unique_name("line");
    server.register(
        &line,
        "PROTOBUF",
        "syntax = \"proto3\"; package inner; message Line { int32 count = 1; }",
    );
    let proto = unique_name("topic");
    let proto_id = server.register_with(
        &format!("{proto}-value"),
        "PROTOBUF",
        "syntax = \"proto3\"; import \"line.proto\"; import \"google/protobuf/timestamp.proto\"; \
         message Bill { inner.Line line = 1; google.protobuf.Timestamp at = 2; }",
        &[("line.proto", &line)],
    );
    let id = unique_name("id");
    server.register(&id, "JSON", &json_schema(r#""type": "integer""#));
    let json = unique_name("topic");
    let json_id = server.register_with(
        &format!("{json}-value"),
        "JSON",
        &json_schema(r#""properties": {"id": {"$ref": "id.json"}}"#),
        &[("id.json", &id)],
    );
    let events = [
        event(&avro, "a", r#"{"sum": {"cents": 5}}"#),
        event(
            &proto,
            "p",
            r#"{"line": {"count": 3}, "at": "1970-01-01T00:00:01Z"}"#,
        ),
        event(&json, "j", r#"{"id": 1}"#),
        event(&json, "k", r#"{"id": "one"}"#),
    ];
    let outcomes = send(&mut lane(&place.sink).await, &events).await;
    assert!(outcomes[..3].iter().all(accepted), "{outcomes:?}");
    let (kind, words) = refused(&outcomes[3]);
    assert_eq!(kind, RejectionKind::Invalid);
    assert!(words.contains("`/id`"), "{words}");
    let mut values = place.values().await;
    let mut wanted = vec![
        framed(avro_id, &[10]),
        framed(proto_id, &[0, 10, 2, 8, 3, 18, 2, 8, 1]),
        framed(json_id, br#"{"id": 1}"#),
    ];
    values.sort();
    wanted.sort();
    assert_eq!(values, wanted);
}

async fn what_has_its_form_already_keeps_it() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let (avro, id) = topic(server, "AVRO", ORDER);
    let written = framed(4_711, b"by the application");
    let raw = SuiteEvent {
        content_type: Some("Application/Avro".to_owned()),
        // A zero is a value of its own.
        ..event(&avro, "b", [0, 0])
    };
    let framed_raw = SuiteEvent {
        content_type: Some("application/avro".to_owned()),
        ..event(&avro, "c", framed(id, &[0, 0]))
    };
    let tombstone = SuiteEvent {
        payload: None,
        ..event("has-no-schema", "d", "")
    };
    let first = event(&avro, "a", written.clone());
    let events = [first, raw, framed_raw, tombstone];
    let outcomes = send(&mut lane(&place.sink).await, &events).await;
    assert!(outcomes.iter().all(accepted), "{outcomes:?}");
    let values = place.values().await;
    assert_eq!(values, [written, framed(id, &[0, 0]), framed(id, &[0, 0])]);
}

async fn a_payload_that_fits_no_schema_is_refused_alone() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let (avro, id) = topic(server, "AVRO", ORDER);
    let (proto, _) = topic(
        server,
        "PROTOBUF",
        "syntax = \"proto3\"; message Order { int32 id = 1; }",
    );
    let events = [
        event(&avro, "a", r#"{"id": 7, "other": 1}"#),
        event(&avro, "a", r#"{"id": 8}"#),
        event(&avro, "b", r#"{"id": "secret"}"#),
        event(&avro, "c", "no JSON"),
        event(&proto, "d", r#"{"id": "secret"}"#),
        event(&proto, "e", r#"{"other": 1}"#),
        event(&avro, "f", r#"{"id": 9}"#),
    ];
    let outcomes = send(&mut lane(&place.sink).await, &events).await;
    for (at, said) in [
        (0, "`other`: the schema's record `Order` has no such field"),
        (2, "`id`: a number of 32 bits is wanted, and it is a text"),
        (3, "it is no JSON"),
        (4, "as `Order`: a value that does not fit at line 1"),
        (5, "'other'"),
    ] {
        let (kind, words) = refused(&outcomes[at]);
        assert_eq!(kind, RejectionKind::Invalid);
        assert!(words.contains(said), "{words}");
        assert!(!words.contains("secret"), "{words}");
    }
    assert!(!accepted(&outcomes[1]), "it is behind a refused event");
    assert!(accepted(&outcomes[6]), "{outcomes:?}");
    assert_eq!(place.values().await, [framed(id, &[18, 0])]);
}

async fn a_newer_schema_is_asked_for_before_a_payload_is_refused() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let (avro, _) = topic(server, "AVRO", ORDER);
    let mut lane = lane(&place.sink).await;
    accept(&mut lane, &[event(&avro, "a", r#"{"id": 1}"#)]).await;
    let newer = ORDER.replace(
        "]}",
        r#", {"name": "extra", "type": "int", "default": 0}]}"#,
    );
    let newer = server.register(&format!("{avro}-value"), "AVRO", &newer);
    accept(&mut lane, &[event(&avro, "a", r#"{"id": 1, "extra": 2}"#)]).await;
    let values = place.values().await;
    assert_eq!(values[1], framed(newer, &[2, 0, 4]));
}

async fn a_header_names_the_version() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let (avro, first) = topic(server, "AVRO", ORDER);
    let newer = ORDER.replace("\"int\"", "\"long\"");
    let newer = server.register(&format!("{avro}-value"), "AVRO", &newer);
    let of_version = |key: &str, version: &str| SuiteEvent {
        headers: vec![("schema-version".to_owned(), Some(version.to_owned()))],
        ..event(&avro, key, r#"{"id": 1}"#)
    };
    let events = [
        of_version("a", "1"),
        event(&avro, "a", r#"{"id": 1}"#),
        of_version("b", "9"),
        of_version("c", "first"),
    ];
    let outcomes = send(&mut lane(&place.sink).await, &events).await;
    assert_eq!(refused(&outcomes[2]).0, RejectionKind::Unroutable);
    let (kind, words) = refused(&outcomes[3]);
    assert_eq!(kind, RejectionKind::Invalid);
    assert!(words.contains("`schema-version`"), "{words}");
    let values = place.values().await;
    assert_eq!(values, [framed(first, &[2, 0]), framed(newer, &[2, 0])]);
}

async fn a_subject_may_be_made_of_the_type() {
    let server = RegistryServer::shared();
    let place = Place::new(&server.url(), Some("{topic}-{type}"));
    let topic = unique_name("topic");
    let id = server.register(&format!("{topic}-Order"), "AVRO", ORDER);
    let typed = SuiteEvent {
        kind: Some("Order".to_owned()),
        ..event(&topic, "a", r#"{"id": 1}"#)
    };
    let outcomes = send(
        &mut lane(&place.sink).await,
        &[typed, event(&topic, "b", r#"{"id": 1}"#)],
    )
    .await;
    let (kind, words) = refused(&outcomes[1]);
    assert_eq!(kind, RejectionKind::Invalid);
    assert!(words.contains("needs a type"), "{words}");
    assert_eq!(place.values().await, [framed(id, &[2, 0])]);
}

async fn an_unknown_subject_holds_up_its_events_alone() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let (known, _) = topic(server, "AVRO", ORDER);
    let late = unique_name("topic");
    let mut lane = lane(&place.sink).await;
    let event = |topic: &str| event(topic, topic, r#"{"id": 1}"#);
    let outcomes = send(&mut lane, &[event(&late), event(&known)]).await;
    let (kind, words) = refused(&outcomes[0]);
    assert_eq!(kind, RejectionKind::Unroutable);
    assert!(words.contains("register the schema"), "{words}");
    assert!(accepted(&outcomes[1]));
    server.register(&format!("{late}-value"), "AVRO", ORDER);
    while !accepted(&send(&mut lane, &[event(&late)]).await[0]) {
        tokio::task::yield_now().await;
    }
}

async fn a_registry_that_is_away_puts_off_what_it_is_needed_for() {
    let server = RegistryServer::start();
    let url = server.url().replace("://", "://ann:hidden@");
    let place = Place::new(&url, None);
    let (known, _) = topic(&server, "AVRO", ORDER);
    let (other, _) = topic(&server, "AVRO", ORDER);
    let mut lane = lane(&place.sink).await;
    let event = |topic: &str| event(topic, topic, r#"{"id": 1}"#);
    accept(&mut lane, &[event(&known)]).await;
    server.kill9();
    let outcomes = send(&mut lane, &[event(&other), event(&known)]).await;
    let words = put_off(&outcomes[0]);
    assert!(words.contains("connecting to 127.0.0.1"), "{words}");
    assert!(!words.contains("hidden"), "{words}");
    assert!(accepted(&outcomes[1]));
    server.start_again();
    server.register(&format!("{other}-value"), "AVRO", ORDER);
    while !accepted(&send(&mut lane, &[event(&other)]).await[0]) {
        tokio::task::yield_now().await;
    }
}

async fn a_slow_registry_holds_up_its_keys_alone() {
    let server = RegistryServer::start();
    let place = Place::new(&server.url(), None);
    let (known, _) = topic(&server, "AVRO", ORDER);
    let (other, _) = topic(&server, "AVRO", ORDER);
    let spec = LaneSpec {
        publish_timeout: Duration::from_secs(2),
        ..lane_spec(1)
    };
    let mut lane = place.sink.open_lane(spec).await.unwrap();
    accept(&mut lane, &[event(&known, "a", r#"{"id": 1}"#)]).await;
    server.pause();
    let events = [
        event(&other, "b", r#"{"id": 1}"#),
        event(&known, "b", r#"{"id": 2}"#),
        event(&known, "c", r#"{"id": 3}"#),
    ];
    lane.submit(records(&events, 0)).await;
    let first = lane.outcomes().await;
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].ticket, 2);
    assert!(poll_once(lane.outcomes()).await.is_none());
    let mut rest = Vec::new();
    while rest.len() < 2 {
        rest.extend(lane.outcomes().await);
    }
    rest.sort_by_key(|verdict| verdict.ticket);
    let words = put_off(&rest[0].outcome);
    assert!(words.contains("is still being asked for"), "{words}");
    assert!(
        !accepted(&rest[1].outcome),
        "it is behind another of its key"
    );
    server.resume();
    while !accepted(&send(&mut lane, &events[..1]).await[0]) {
        tokio::task::yield_now().await;
    }
}

async fn a_schema_of_no_use_is_told_and_mended() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    // The registry does not look behind this name.
    let (json, _) = topic(
        server,
        "JSON",
        &json_schema(r#""properties": {"id": {"$ref": "http://127.0.0.1:1/x"}}"#),
    );
    let mut lane = lane(&place.sink).await;
    let event = event(&json, "a", "{}");
    let outcomes = send(&mut lane, std::slice::from_ref(&event)).await;
    let (kind, words) = refused(&outcomes[0]);
    assert_eq!(kind, RejectionKind::Unroutable);
    assert!(
        words.contains("none of the references of the schema"),
        "{words}"
    );
    assert!(words.contains("register a better version"), "{words}");
    server.register(
        &format!("{json}-value"),
        "JSON",
        &json_schema(r#""type": "object""#),
    );
    while !accepted(&send(&mut lane, std::slice::from_ref(&event)).await[0]) {
        tokio::task::yield_now().await;
    }
}

async fn a_check_tells_of_the_registry() {
    let url = RegistryServer::shared().url();
    let report = Place::new(&url, None).answered_check().await;
    let mut parts = report.parts().iter();
    let part = parts.find(|part| part.kind == "schema registry").unwrap();
    assert_eq!(part.name, url);
    assert_eq!(part.facts[0].value.as_deref(), Some("{topic}-value"));
    assert_eq!(part.facts[1].value.as_deref(), Some("yes"));
    assert!(report.findings().is_empty(), "{report:?}");

    let wrong = Place::new(&format!("{url}/wrong"), None);
    let report = wrong.answered_check().await;
    let found = &report.findings()[0];
    assert_eq!(found.severity, Severity::Stops);
    assert!(found.mend.contains("correct the path"), "{found:?}");

    let port = Port::reserve();
    let url = format!("http://ann:hidden@127.0.0.1:{}", port.number());
    let report = Place::new(&url, None).sink.check().await.unwrap();
    let found = &report.findings()[0];
    assert!(found.fault.contains("connecting to"), "{found:?}");
    assert!(!format!("{report:?}").contains("hidden"), "{report:?}");
}

async fn a_registry_has_to_show_a_certificate_that_is_trusted() {
    let authority = TestCa::new();
    let server = RegistryServer::start_tls(&authority.server_certificate(&["localhost"]));
    let url = server.url();
    let file = authority.certificate_file();
    let trusting = Place::new(&format!("{url}?ca_file={}", file.display()), None);
    let report = trusting.answered_check().await;
    assert!(report.findings().is_empty(), "{report:?}");
    let doubtful = Place::new(&url, None);
    let report = doubtful.answered_check().await;
    let fault = &report.findings()[0].fault;
    assert!(fault.contains("certificate"), "{fault}");
}

async fn many_large_payloads_are_written_on_threads() {
    let (server, place) = (RegistryServer::shared(), Place::shared());
    let (avro, id) = topic(server, "AVRO", ORDER);
    let note = "x".repeat(300_000);
    let events: Vec<_> = (0..60)
        .map(|n| {
            let payload = format!(r#"{{"id": {n}, "note": "{note}"}}"#);
            event(&avro, &format!("key-{}", n % 7), payload)
        })
        .collect();
    let mut lane = lane(&place.sink).await;
    accept(&mut lane, &events).await;
    let values = place.values().await;
    assert_eq!(values.len(), events.len());
    assert!(
        values
            .iter()
            .all(|value| value.starts_with(&framed(id, &[])))
    );
}
