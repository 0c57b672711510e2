//! Reading messages again, as a consumer does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_testkit::{
    servers::mqtt::MqttMessage,
    sink_suite::{SuiteEvent, WireRecord},
};

use crate::{cloud_event::Parts, lines};

/// The content type of a CloudEvent. With 3.1.1 a message has none: it is a CloudEvent always.
const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

fn structured(message: &MqttMessage) -> Option<Parts> {
    let has_type = message.content_type.as_deref() == Some(STRUCTURED);
    let is_one = message.user_properties.is_empty()
        && (has_type || message.payload.starts_with(b"{\"specversion\":"));
    is_one.then(|| Parts::of_structured(&message.payload))
}

/// The event of a message, whose topic begins so.
pub(super) fn event(message: MqttMessage, start: &str) -> SuiteEvent {
    let topic = message.topic.strip_prefix(start).unwrap().to_owned();
    if let Some(parts) = structured(&message) {
        let event = parts.into_event();
        assert_eq!(event.topic, topic);
        return event;
    }
    let mut properties = Properties(message.user_properties);
    let content_type = properties.ours("content-type");
    let is_plain = |text: &String| !text.contains(char::is_control);
    let plain = content_type.clone().filter(is_plain);
    assert_eq!(message.content_type, plain);
    let correlation_id = properties.ours("correlation-id");
    let data = message.correlation_data;
    assert_eq!(data, correlation_id.clone().map(String::into_bytes));
    let tombstone = properties.ours("tombstone");
    assert!(tombstone.is_none() || message.payload.is_empty());
    SuiteEvent {
        id: properties.ours("id").unwrap().parse().unwrap(),
        topic,
        key: properties.ours("key"),
        kind: properties.ours("type"),
        content_type,
        payload: tombstone.is_none().then_some(message.payload),
        occurred_at: lines::micros(&properties.ours("occurred-at").unwrap()),
        correlation_id,
        causation_id: properties.ours("causation-id"),
        tenant_id: properties.ours("tenant-id"),
        traceparent: properties.ours("traceparent"),
        tracestate: properties.ours("tracestate"),
        headers: properties.rest(),
    }
}

/// The record of a message, whoever made its headers.
pub(super) fn record(message: MqttMessage) -> WireRecord {
    if let Some(parts) = structured(&message) {
        return parts.into_record();
    }
    let mut record = WireRecord {
        headers: Properties(message.user_properties).rest(),
        ..WireRecord::default()
    };
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

struct Properties(Vec<(String, String)>);

impl Properties {
    /// The first value of a name is ours.
    fn ours(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        decoded(&self.0.remove(at).1)
    }

    fn rest(self) -> Vec<(String, Option<String>)> {
        let rest = self.0.into_iter();
        rest.map(|(name, value)| (decoded(&name).unwrap(), decoded(&value)))
            .collect()
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
