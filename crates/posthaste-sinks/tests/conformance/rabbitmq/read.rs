//! Reading messages again, as a consumer does.

use std::collections::BTreeMap;

use posthaste_testkit::{
    servers::rabbitmq::{HeaderValue, RabbitMqMessage},
    sink_suite::{SuiteEvent, WireRecord},
};

use crate::lines;

/// The event of a message, whose properties and headers must agree.
pub(super) fn event(message: RabbitMqMessage) -> SuiteEvent {
    let mut headers = Headers {
        table: message.headers,
        own: Vec::new(),
    };
    let id = headers.ours("id").unwrap();
    assert_eq!(message.message_id.as_ref(), Some(&id));
    let kind = headers.ours("type");
    assert_eq!(message.kind, kind);
    let content_type = headers.ours("content-type");
    assert_eq!(message.content_type, content_type);
    let correlation_id = headers.ours("correlation-id");
    assert_eq!(message.correlation_id, correlation_id);
    let occurred_at = headers.ours("occurred-at").unwrap();
    let occurred_at = occurred_at
        .parse::<jiff::Timestamp>()
        .unwrap()
        .as_microsecond();
    assert_eq!(
        message.timestamp,
        u64::try_from(occurred_at.div_euclid(1_000_000)).ok()
    );
    assert_eq!(message.delivery_mode, Some(2), "not persistent");
    let tombstone = match headers.first("tombstone") {
        HeaderValue::Void => false,
        HeaderValue::Bool(true) => true,
        other => panic!("tombstone is {other:?}"),
    };
    assert!(!tombstone || message.body.is_empty());
    SuiteEvent {
        id: id.parse().unwrap(),
        topic: message.routing_key,
        key: headers.ours("key"),
        kind,
        content_type,
        payload: (!tombstone).then_some(message.body),
        occurred_at,
        correlation_id,
        causation_id: headers.ours("causation-id"),
        tenant_id: headers.ours("tenant-id"),
        traceparent: headers.ours("traceparent"),
        tracestate: headers.ours("tracestate"),
        headers: headers.rest(),
    }
}

/// The record of a message, whoever made its headers. Properties count as headers unless a header
/// says the same.
pub(super) fn record(message: RabbitMqMessage) -> WireRecord {
    let mut headers = Headers {
        table: message.headers,
        own: Vec::new(),
    };
    let key = match headers.first("key") {
        HeaderValue::Void => None,
        HeaderValue::Text(text) => Some(text.into_bytes()),
        HeaderValue::Bytes(bytes) => Some(bytes),
        other => panic!("key is {other:?}"),
    };
    let is_tombstone = headers.first("tombstone") == HeaderValue::Bool(true);
    let mut record = WireRecord {
        key,
        value: (!is_tombstone).then_some(message.body),
        headers: headers.rest(),
        wire_id: message.message_id,
        ..WireRecord::default()
    };
    for (name, property) in [
        ("type", message.kind),
        ("content-type", message.content_type),
        ("correlation-id", message.correlation_id),
    ] {
        if property.is_some() && record.header(name) != property {
            record.headers.push((name.to_owned(), property));
        }
    }
    let stated = message
        .timestamp
        .map(|seconds| i64::try_from(seconds).unwrap());
    record.timestamp = match record.header("occurred-at") {
        Some(time) => {
            let time = lines::micros(&time);
            assert_eq!(stated, Some(time.div_euclid(1_000_000)));
            Some(time)
        }
        None => stated.map(|seconds| seconds * 1_000_000),
    };
    record
}

struct Headers {
    table: BTreeMap<String, HeaderValue>,
    own: Vec<(String, Option<String>)>,
}

impl Headers {
    /// Our value of this name. A list is ours, then the event's own.
    fn first(&mut self, name: &str) -> HeaderValue {
        match self.table.remove(name) {
            None => HeaderValue::Void,
            Some(HeaderValue::List(list)) => {
                let mut list = list.into_iter();
                let first = list.next().unwrap();
                self.own
                    .extend(list.map(|value| (name.to_owned(), text(value))));
                first
            }
            Some(value) => value,
        }
    }

    fn ours(&mut self, name: &str) -> Option<String> {
        text(self.first(name))
    }

    fn rest(self) -> Vec<(String, Option<String>)> {
        let mut own = self.own;
        for (name, value) in self.table {
            match value {
                HeaderValue::List(list) => {
                    own.extend(list.into_iter().map(|value| (name.clone(), text(value))));
                }
                value => own.push((name, text(value))),
            }
        }
        own
    }
}

fn text(value: HeaderValue) -> Option<String> {
    match value {
        HeaderValue::Void => None,
        HeaderValue::Text(text) => Some(text),
        other => panic!("a header is {other:?}"),
    }
}
