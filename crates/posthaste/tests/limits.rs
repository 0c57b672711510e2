//! Events that are refused before anything reaches a database.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use posthaste::{EmitError, Event, EventBuilder, Timestamp};

fn refusal(event: EventBuilder) -> String {
    event.build().unwrap_err().to_string()
}

#[test]
fn each_limit_names_field_size_and_limit() {
    let event = || Event::builder("t");
    let text = |length| "x".repeat(length);
    let too_large = [
        ("topic", 249, Event::builder(text(250))),
        ("key", 1024, event().key(text(1025))),
        ("type", 255, event().event_type(text(256))),
        ("content_type", 255, event().content_type(text(256))),
        ("correlation_id", 255, event().correlation_id(text(256))),
        ("causation_id", 255, event().causation_id(text(256))),
        ("tenant_id", 255, event().tenant_id(text(256))),
        ("traceparent", 255, event().traceparent(text(256))),
        ("tracestate", 512, event().tracestate(text(513))),
        (
            "headers",
            65_536,
            event()
                .header(text(65_535), text(2))
                .header_without_value(""),
        ),
        ("payload", 67_108_864, event().payload(vec![0; 67_108_865])),
    ];
    for (field, limit, event) in too_large {
        let message = format!("{field} has {} bytes, the limit is {limit}", limit + 1);
        assert_eq!(refusal(event), message);
    }
    // Bytes are counted, not characters.
    assert_eq!(
        refusal(event().key("ü".repeat(513))),
        "key has 1026 bytes, the limit is 1024"
    );
}

#[test]
fn nul_in_any_text_is_refused() {
    let event = || Event::builder("t");
    let with_nul = [
        ("topic", Event::builder("t\0")),
        ("key", event().key("\0")),
        ("type", event().event_type("a\0b")),
        ("content_type", event().content_type("\0")),
        ("correlation_id", event().correlation_id("\0")),
        ("causation_id", event().causation_id("\0")),
        ("tenant_id", event().tenant_id("\0")),
        ("traceparent", event().traceparent("\0")),
        ("tracestate", event().tracestate("\0")),
        ("headers", event().header("a\0", "b")),
        ("headers", event().header("a", "\0")),
        ("headers", event().header_without_value("\0")),
    ];
    for (field, event) in with_nul {
        assert_eq!(
            refusal(event),
            format!("{field} must not hold a NUL character")
        );
    }
}

#[test]
fn topics_that_no_broker_takes_are_refused() {
    for topic in [
        "", ".", "..", "a b", " a", "a\n", "a\t", "a\u{7f}", "a\u{85}", "a\u{a0}b", "\u{3000}",
    ] {
        let error = Event::builder(topic).build().unwrap_err();
        assert!(
            matches!(error, EmitError::Invalid { field: "topic", .. }),
            "{topic:?}: {error}"
        );
        assert!(!error.is_retryable());
    }
    for topic in ["...", "a", "a.b-c_d/e:f", "größe", "🚚"] {
        Event::builder(topic).build().unwrap();
    }
}

#[test]
fn fields_that_no_relay_honours_are_refused() {
    let now = Timestamp::now();
    let event = || Event::builder("t");
    for (field, event) in [
        ("destinations", event().destinations(["a"])),
        ("deliver_after", event().deliver_after(now)),
        ("expires_at", event().expires_at(now)),
    ] {
        assert_eq!(refusal(event), format!("{field} is not honoured yet"));
    }
}

#[test]
fn times_that_cannot_be_written_down_are_refused() {
    for micros in [
        i64::MIN,
        Timestamp::MIN.as_micros() - 1,
        Timestamp::MAX.as_micros() + 1,
        i64::MAX,
    ] {
        let event = Event::builder("t").occurred_at(Timestamp::from_micros(micros));
        assert_eq!(
            refusal(event),
            "occurred_at must lie in the years 1 to 9999"
        );
    }
}

#[test]
fn ids_are_uuids_of_version_7_and_differ() {
    let (a, b) = (
        Event::builder("t").build().unwrap(),
        Event::builder("t").build().unwrap(),
    );
    assert_eq!(a.id().get_version_num(), 7);
    assert_ne!(a.id(), b.id());
}

#[test]
fn debug_output_holds_no_secret() {
    let event = Event::builder("t")
        .key("secret")
        .payload("secret")
        .header("h", "secret");
    assert!(!format!("{:?}", event.build().unwrap()).contains("secret"));
}
