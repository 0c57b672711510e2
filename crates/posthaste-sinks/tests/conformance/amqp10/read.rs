//! Reading messages again, as a consumer does.

use posthaste_testkit::{
    servers::artemis::{ArtemisMessage, Property},
    sink_suite::{SuiteEvent, WireRecord},
};

use crate::lines;

/// The event of a message, whose fields and properties must agree.
pub(super) fn event(message: ArtemisMessage) -> SuiteEvent {
    let mut properties = Properties(message.properties);
    assert!(message.is_durable);
    let id = properties.ours("id").unwrap();
    assert_eq!(message.message_id.as_ref(), Some(&id));
    let occurred_at = lines::micros(&properties.ours("occurred-at").unwrap());
    assert_eq!(message.creation_time, Some(occurred_at.div_euclid(1_000)));
    let key = properties.ours("key");
    let group = key.as_ref().filter(|key| (1..=128).contains(&key.len()));
    if group.is_some() {
        assert_eq!(message.group_id.as_ref(), group);
    }
    assert_eq!(message.group_id.is_some(), key.is_some());
    let is_tombstone = properties.is_tombstone();
    assert!(!is_tombstone || message.body.is_empty());
    let content_type = properties.ours("content-type");
    SuiteEvent {
        id: id.parse().unwrap(),
        topic: properties.ours("topic").unwrap(),
        key,
        kind: message.subject,
        content_type: message.content_type.or(content_type),
        payload: (!is_tombstone).then_some(message.body),
        occurred_at,
        correlation_id: message.correlation_id,
        causation_id: properties.ours("causation-id"),
        tenant_id: properties.ours("tenant-id"),
        traceparent: properties.ours("traceparent"),
        tracestate: properties.ours("tracestate"),
        headers: properties.rest(),
    }
}

/// The record of a message, whoever made its headers, and its dedup id. Fields count as headers.
pub(super) fn record(message: ArtemisMessage) -> WireRecord {
    let mut properties = Properties(message.properties);
    assert!(message.message_id.is_some());
    properties.ours("topic").unwrap();
    let key = match properties.take("key") {
        None => None,
        Some(Property::Text(text)) => Some(text.into_bytes()),
        Some(Property::Bytes(bytes)) => Some(bytes),
        other => panic!("key is {other:?}"),
    };
    let is_tombstone = properties.is_tombstone();
    let mut record = WireRecord {
        key,
        value: (!is_tombstone).then_some(message.body),
        headers: properties.rest(),
        ..WireRecord::default()
    };
    for (name, field) in [
        ("type", message.subject),
        ("content-type", message.content_type),
        ("correlation-id", message.correlation_id),
    ] {
        if field.is_some() {
            record.headers.push((name.to_owned(), field));
        }
    }
    record.wire_id = record.header("id");
    record.timestamp = match record.header("occurred-at") {
        Some(time) => Some(lines::micros(&time)),
        None => message.creation_time.map(|millis| millis * 1_000),
    };
    record
}

struct Properties(Vec<(String, Property)>);

impl Properties {
    fn take(&mut self, name: &str) -> Option<Property> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        Some(self.0.remove(at).1)
    }

    fn ours(&mut self, name: &str) -> Option<String> {
        text(self.take(name)?)
    }

    fn is_tombstone(&mut self) -> bool {
        match self.take("tombstone") {
            None => false,
            Some(Property::Bool(true)) => true,
            other => panic!("tombstone is {other:?}"),
        }
    }

    /// The event's own headers: those that are properties, and the list of all others.
    fn rest(mut self) -> Vec<(String, Option<String>)> {
        let listed = self.ours("headers");
        let listed: Vec<(String, Option<String>)> =
            listed.map_or_else(Vec::new, |json| serde_json::from_str(&json).unwrap());
        let own = self.0.into_iter().map(|(name, value)| (name, text(value)));
        own.chain(listed).collect()
    }
}

fn text(value: Property) -> Option<String> {
    match value {
        Property::Null => None,
        Property::Text(text) => Some(text),
        other => panic!("a header is {other:?}"),
    }
}
