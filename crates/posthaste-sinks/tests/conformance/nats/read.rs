//! Reading messages again, as a consumer does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_testkit::{
    servers::nats::NatsMessage,
    sink_suite::{SuiteEvent, WireRecord},
};

use crate::lines;

/// The event of a message.
pub(super) fn event(message: NatsMessage) -> SuiteEvent {
    let mut headers = Headers(message.headers);
    let message_id = headers.ours("Nats-Msg-Id").unwrap();
    headers.ours("Nats-Expected-Stream").unwrap();
    let id = headers.ours("id").unwrap();
    assert_eq!(message_id, id);
    let occurred_at = headers.ours("occurred-at").unwrap();
    let tombstone = headers.ours("tombstone");
    assert!(tombstone.is_none() || message.payload.is_empty());
    SuiteEvent {
        id: id.parse().unwrap(),
        topic: message.subject,
        key: headers.ours("key"),
        kind: headers.ours("type"),
        content_type: headers.ours("content-type"),
        payload: tombstone.is_none().then_some(message.payload),
        occurred_at: occurred_at
            .parse::<jiff::Timestamp>()
            .unwrap()
            .as_microsecond(),
        correlation_id: headers.ours("correlation-id"),
        causation_id: headers.ours("causation-id"),
        tenant_id: headers.ours("tenant-id"),
        traceparent: headers.ours("traceparent"),
        tracestate: headers.ours("tracestate"),
        headers: headers
            .0
            .iter()
            .map(|(name, value)| (decoded(name).unwrap_or_default(), decoded(value)))
            .collect(),
    }
}

/// The record of a message, whoever made its headers, and its dedup id.
pub(super) fn record(message: NatsMessage) -> WireRecord {
    let headers = message.headers.iter();
    let mut record = WireRecord {
        headers: headers
            .map(|(name, value)| (decoded(name).unwrap_or_default(), decoded(value)))
            .collect(),
        ..WireRecord::default()
    };
    record.take_header("Nats-Msg-Id").unwrap();
    record.take_header("Nats-Expected-Stream").unwrap();
    let encoded = record.take_header("key-base64");
    let key = record.take_header("key");
    assert!(key.is_none() || encoded.is_none());
    let encoded = encoded.map(|text| STANDARD.decode(text).unwrap());
    record.key = key.map(String::into_bytes).or(encoded);
    let is_tombstone = record.take_header("tombstone").is_some();
    record.value = (!is_tombstone).then_some(message.payload);
    record.wire_id = record.header("id");
    record.timestamp = record
        .header("occurred-at")
        .map(|time| lines::micros(&time));
    record
}

struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of a name is ours.
    fn ours(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        decoded(&self.0.remove(at).1)
    }
}

/// A text with percent escapes; a percent sign alone is none.
fn decoded(text: &str) -> Option<String> {
    if text == "%" {
        return None;
    }
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).unwrap());
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(String::from_utf8(bytes).unwrap())
}
