//! Reading lines again, as a consumer does.

use base64::{Engine, engine::general_purpose::STANDARD};
use posthaste_testkit::sink_suite::{SuiteEvent, WireRecord};
use serde_json::Value;

/// The events of whole lines.
pub(crate) fn parse_all(text: &[u8]) -> Vec<SuiteEvent> {
    let (whole, rest) = text.split_at(
        text.iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1),
    );
    assert!(rest.is_empty(), "the last line is torn");
    whole
        .split_inclusive(|&byte| byte == b'\n')
        .map(|line| parse(line).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(line))))
        .collect()
}

/// The event of one line; none when it is torn. A whole line with anything unexpected in it fails.
pub(crate) fn parse(line: &[u8]) -> Option<SuiteEvent> {
    let Value::Object(mut line) = serde_json::from_slice(line).ok()? else {
        return None;
    };
    let mut text = |name: &str| match line.remove(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text),
        Some(other) => panic!("{name} is {other}"),
    };
    let payload = text("payload").map(String::into_bytes);
    let binary = text("payload_base64").map(|text| STANDARD.decode(text).unwrap());
    assert!(payload.is_none() || binary.is_none());
    let event = SuiteEvent {
        id: text("id").unwrap().parse().unwrap(),
        topic: text("topic").unwrap(),
        key: text("key"),
        kind: text("type"),
        content_type: text("content_type"),
        headers: Vec::new(),
        payload: payload.or(binary),
        occurred_at: micros(&text("occurred_at").unwrap()),
        correlation_id: text("correlation_id"),
        causation_id: text("causation_id"),
        tenant_id: text("tenant_id"),
        traceparent: text("traceparent"),
        tracestate: text("tracestate"),
    };
    let headers = serde_json::from_value(line.remove("headers").unwrap()).unwrap();
    assert!(line.remove("seq").unwrap().is_i64());
    assert!(line.is_empty(), "unknown fields: {line:?}");
    Some(SuiteEvent { headers, ..event })
}

/// A time as it goes over the wire, in microseconds since 1970-01-01 UTC.
pub(crate) fn micros(text: &str) -> i64 {
    assert_eq!(text.len(), "2000-01-01T00:00:00.000000Z".len(), "{text}");
    text.parse::<jiff::Timestamp>().unwrap().as_microsecond()
}

/// The record of one whole line.
pub(crate) fn record(line: &[u8]) -> WireRecord {
    let line: Value = serde_json::from_slice(line).unwrap();
    let text = |name: &str| line[name].as_str().map(str::to_owned);
    let bytes = |name: &str| match line.get(format!("{name}_base64")) {
        None => text(name).map(String::into_bytes),
        Some(encoded) => {
            assert!(line.get(name).is_none(), "{name} twice");
            Some(STANDARD.decode(encoded.as_str().unwrap()).unwrap())
        }
    };
    let attributes = [
        "type",
        "content_type",
        "correlation_id",
        "causation_id",
        "tenant_id",
        "traceparent",
        "tracestate",
    ];
    let attributes = attributes
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), Some(text(name)?))));
    let own: Vec<(String, Option<String>)> =
        serde_json::from_value(line["headers"].clone()).unwrap();
    WireRecord {
        key: bytes("key"),
        value: bytes("payload"),
        headers: attributes.chain(own).collect(),
        timestamp: text("occurred_at").map(|time| micros(&time)),
        partition: None,
        wire_id: text("id"),
    }
}
