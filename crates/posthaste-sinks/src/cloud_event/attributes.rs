//! The attributes of a record that its message bears, and their names.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};

use crate::jsonl;

/// The `type` of an event that has none: CloudEvents ask for one.
pub(crate) const NO_TYPE: &str = "posthaste.event";

/// The version of CloudEvents.
pub(crate) const SPEC_VERSION: &str = "1.0";

/// An attribute of an event, by its name in CloudEvents and in the requests of HTTP's `raw`.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "http"), allow(dead_code))]
pub(crate) struct Name {
    pub(crate) cloud_event: &'static str,
    pub(crate) raw: &'static str,
}

const ID: Name = name("id", "id");
pub(crate) const TYPE: Name = name("type", "type");
const TIME: Name = name("time", "occurred-at");
const TOPIC: Name = name("topic", "topic");
const KEY: Name = name("partitionkey", "key");
const KEY_BASE64: Name = name("partitionkeybase64", "key-base64");
pub(crate) const TOMBSTONE: Name = name("tombstone", "tombstone");
const HEADERS: Name = name("headers", "headers");

/// The attributes of an event that are text, but for its type and its content type.
const TEXTS: [(Name, Field); 5] = [
    (
        name("correlationid", "correlation-id"),
        Field::CorrelationId,
    ),
    (name("causationid", "causation-id"), Field::CausationId),
    (name("tenantid", "tenant-id"), Field::TenantId),
    (name("traceparent", "traceparent"), Field::Traceparent),
    (name("tracestate", "tracestate"), Field::Tracestate),
];

const fn name(cloud_event: &'static str, raw: &'static str) -> Name {
    Name { cloud_event, raw }
}

/// The attributes that a record has, in their order, as text.
pub(crate) fn attributes(record: &Record) -> Result<Vec<(Name, String)>, Outcome> {
    let mut all = Vec::with_capacity(16);
    let mut room = wire_id_room();
    all.push((ID, record.wire_id(&mut room).to_owned()));
    // An empty type is none for CloudEvents.
    let kind = record.attribute(Field::Type).unwrap_or_default();
    let kind = if kind.is_empty() { NO_TYPE } else { kind };
    all.push((TYPE, kind.to_owned()));
    let mut occurred_at = Vec::with_capacity(27);
    jsonl::write_time(&mut occurred_at, record.timestamp())
        .map_err(|fault| Outcome::rejected(RejectionKind::Invalid, fault.to_string()))?;
    if !record.has_given_headers() {
        all.push((TIME, String::from_utf8_lossy(&occurred_at).into_owned()));
    }
    all.push((TOPIC, record.topic().to_owned()));
    match record.key().map(|key| (key, std::str::from_utf8(key))) {
        None => {}
        Some((_, Ok(text))) => all.push((KEY, text.to_owned())),
        Some((key, Err(_))) => all.push((KEY_BASE64, STANDARD.encode(key))),
    }
    for (name, field) in TEXTS {
        let value = record.attribute(field);
        all.extend(value.map(|value| (name, value.to_owned())));
    }
    if record.value().is_none() {
        all.push((TOMBSTONE, "true".to_owned()));
    }
    // Pairs, not headers of HTTP: names in any letters, repeats, absent values and the order
    // survive (I9), and none is an order to a server or to a proxy.
    let mut headers = Vec::new();
    jsonl::write_headers(&mut headers, record);
    if headers != b"[]" {
        all.push((HEADERS, String::from_utf8_lossy(&headers).into_owned()));
    }
    Ok(all)
}
