//! Reading messages again, as a consumer does.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_testkit::{
    servers::sqs::Message,
    sink_suite::{SuiteEvent, WireRecord},
};

use crate::lines;

/// A message's attributes, which are taken out, and its payload.
struct Parts {
    attributes: BTreeMap<String, String>,
    payload: Option<Vec<u8>>,
}

impl Parts {
    fn of(message: Message) -> Self {
        let Message { body, attributes } = message;
        assert!(attributes.len() <= 10, "{attributes:?}");
        let mut attributes: BTreeMap<_, _> = attributes.into_iter().collect();
        if let Some(more) = attributes.remove("more") {
            let more: BTreeMap<String, String> = serde_json::from_str(&more).unwrap();
            attributes.extend(more);
        }
        let payload = match attributes.remove("encoding").as_deref() {
            None => Some(body.into_bytes()),
            Some("base64") => Some(STANDARD.decode(body).unwrap()),
            Some("empty") => Some(Vec::new()),
            Some("tombstone") => None,
            Some(other) => panic!("an encoding `{other}`"),
        };
        Self {
            attributes,
            payload,
        }
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.attributes.remove(name)
    }

    fn headers(&mut self) -> Vec<(String, Option<String>)> {
        let headers = self.take("headers");
        headers.map_or_else(Vec::new, |text| serde_json::from_str(&text).unwrap())
    }
}

/// The event of a message. Anything unexpected in it fails.
pub(crate) fn event(message: Message) -> SuiteEvent {
    let mut parts = Parts::of(message);
    let event = SuiteEvent {
        id: parts.take("id").unwrap().parse().unwrap(),
        topic: parts.take("topic").unwrap(),
        key: parts.take("key"),
        kind: parts.take("type"),
        content_type: parts.take("content-type"),
        headers: parts.headers(),
        payload: parts.payload.take(),
        occurred_at: lines::micros(&parts.take("occurred-at").unwrap()),
        correlation_id: parts.take("correlation-id"),
        causation_id: parts.take("causation-id"),
        tenant_id: parts.take("tenant-id"),
        traceparent: parts.take("traceparent"),
        tracestate: parts.take("tracestate"),
    };
    assert!(
        parts.attributes.is_empty(),
        "unknown: {:?}",
        parts.attributes
    );
    event
}

/// The record of a message: its attributes are headers.
pub(crate) fn record(message: Message) -> WireRecord {
    let mut parts = Parts::of(message);
    let own = parts.headers();
    let encoded = parts.take("key-base64");
    let key = parts.take("key").map(String::into_bytes);
    assert!(key.is_none() || encoded.is_none());
    let wire_id = parts.take("id");
    let timestamp = parts.take("occurred-at").map(|text| lines::micros(&text));
    parts.take("topic").unwrap();
    let attributes = parts.attributes.into_iter();
    let attributes = attributes.map(|(name, value)| (name, Some(value)));
    WireRecord {
        key: key.or(encoded.map(|text| STANDARD.decode(text).unwrap())),
        value: parts.payload,
        headers: attributes.chain(own).collect(),
        timestamp,
        partition: None,
        wire_id,
    }
}
