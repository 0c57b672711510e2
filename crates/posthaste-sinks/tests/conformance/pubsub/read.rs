//! Reading messages again, as a consumer does.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_testkit::{
    servers::pubsub::PubSubMessage,
    sink_suite::{SuiteEvent, WireRecord},
};

use crate::lines;

/// The names whose values may go on in attributes with a number.
const OURS: [&str; 14] = [
    "causation-id",
    "content-type",
    "correlation-id",
    "headers",
    "id",
    "key",
    "key-base64",
    "occurred-at",
    "tenant-id",
    "tombstone",
    "topic",
    "traceparent",
    "tracestate",
    "type",
];

/// A message's attributes, which are taken out.
struct Attributes(BTreeMap<String, String>);

impl Attributes {
    fn take(&mut self, name: &str) -> Option<String> {
        assert!(OURS.contains(&name));
        let mut value = self.0.remove(name)?;
        for number in 2.. {
            match self.0.remove(&format!("{name}.{number}")) {
                Some(more) => value += &more,
                None => break,
            }
        }
        Some(value)
    }

    /// The event's own headers: those that are attributes, and the list of all others.
    fn headers(mut self) -> Vec<(String, Option<String>)> {
        let listed = self.take("headers");
        let listed: Vec<(String, Option<String>)> =
            listed.map_or_else(Vec::new, |json| serde_json::from_str(&json).unwrap());
        let own = self.0.into_iter().map(|(name, value)| (name, Some(value)));
        own.chain(listed).collect()
    }
}

/// The event of a message.
pub(super) fn event(message: PubSubMessage) -> SuiteEvent {
    let mut attributes = Attributes(message.attributes);
    let key = attributes.take("key");
    match &key {
        Some(key) if !key.is_empty() => assert_eq!(message.ordering_key, *key),
        Some(_) => assert_eq!(message.ordering_key.len(), 16),
        // Routing may have taken it away from the record, and not from the order.
        None => assert!([0, 16].contains(&message.ordering_key.len())),
    }
    let is_tombstone = attributes.take("tombstone").is_some();
    assert!(!is_tombstone || message.data.is_empty());
    SuiteEvent {
        id: attributes.take("id").unwrap().parse().unwrap(),
        topic: attributes.take("topic").unwrap(),
        key,
        kind: attributes.take("type"),
        content_type: attributes.take("content-type"),
        payload: (!is_tombstone).then_some(message.data),
        occurred_at: lines::micros(&attributes.take("occurred-at").unwrap()),
        correlation_id: attributes.take("correlation-id"),
        causation_id: attributes.take("causation-id"),
        tenant_id: attributes.take("tenant-id"),
        traceparent: attributes.take("traceparent"),
        tracestate: attributes.take("tracestate"),
        headers: attributes.headers(),
    }
}

/// The record of a message: its attributes are headers.
pub(super) fn record(message: PubSubMessage) -> WireRecord {
    let mut attributes = Attributes(message.attributes);
    attributes.take("topic").unwrap();
    let encoded = attributes.take("key-base64");
    let key = attributes.take("key").map(String::into_bytes);
    assert!(key.is_none() || encoded.is_none());
    let is_tombstone = attributes.take("tombstone").is_some();
    let timestamp = attributes.take("occurred-at");
    WireRecord {
        key: key.or(encoded.map(|text| STANDARD.decode(text).unwrap())),
        value: (!is_tombstone).then_some(message.data),
        timestamp: timestamp.map(|text| lines::micros(&text)),
        partition: None,
        wire_id: attributes.take("id"),
        headers: attributes.headers(),
    }
}
