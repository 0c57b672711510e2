//! Reading entries again, as a consumer does.

use posthaste_testkit::{
    servers::redis::StreamEntry,
    sink_suite::{SuiteEvent, WireRecord},
};

use crate::lines;

/// The fields of an entry, which are taken out by name.
struct Fields(Vec<(String, Vec<u8>)>);

impl Fields {
    fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        Some(self.0.remove(at).1)
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.bytes(name)
            .map(|text| String::from_utf8(text).unwrap())
    }

    fn headers(&mut self) -> Vec<(String, Option<String>)> {
        let headers = self.text("headers");
        headers.map_or_else(Vec::new, |text| serde_json::from_str(&text).unwrap())
    }
}

/// The event of an entry. Anything unexpected in it fails.
pub(super) fn event(entry: StreamEntry) -> SuiteEvent {
    let mut fields = Fields(entry.fields);
    let event = SuiteEvent {
        id: fields.text("id").unwrap().parse().unwrap(),
        topic: fields.text("topic").unwrap(),
        key: fields.text("key"),
        kind: fields.text("type"),
        content_type: fields.text("content_type"),
        headers: fields.headers(),
        payload: fields.bytes("payload"),
        occurred_at: lines::micros(&fields.text("occurred_at").unwrap()),
        correlation_id: fields.text("correlation_id"),
        causation_id: fields.text("causation_id"),
        tenant_id: fields.text("tenant_id"),
        traceparent: fields.text("traceparent"),
        tracestate: fields.text("tracestate"),
    };
    assert!(fields.0.is_empty(), "unknown fields: {:?}", fields.0);
    event
}

/// The record of an entry: its attributes are headers.
pub(super) fn record(entry: StreamEntry) -> WireRecord {
    let mut fields = Fields(entry.fields);
    let own = fields.headers();
    let mut record = WireRecord {
        key: fields.bytes("key"),
        value: fields.bytes("payload"),
        headers: Vec::new(),
        timestamp: fields.text("occurred_at").map(|time| lines::micros(&time)),
        partition: None,
        wire_id: fields.text("id"),
    };
    fields.text("topic").unwrap();
    let attributes = fields.0.into_iter();
    let attributes = attributes.map(|(name, value)| (name, String::from_utf8(value).ok()));
    record.headers = attributes.chain(own).collect();
    record
}
