//! The message of a record: its properties, its application properties, and its payload.

use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};

use super::client::{Elements, Writer};
use crate::{header_map, jsonl};

/// The application properties that are ours. An event's own header of such a name stands in
/// [`HEADERS`].
const OURS: [&str; 11] = [
    "id",
    "occurred-at",
    "content-type",
    "causation-id",
    "tenant-id",
    "traceparent",
    "tracestate",
    "topic",
    "key",
    "tombstone",
    HEADERS,
];

/// Those among them that stand for parts of a record that AMQP has no field for.
const OF_THE_RECORD: [&str; 4] = ["topic", "key", "tombstone", HEADERS];

/// A JSON array of pairs: headers that cannot be application properties, in their order.
const HEADERS: &str = "headers";

/// Characters of a group id at the most, as Service Bus takes them.
const GROUP_CHARS_MAX: usize = 128;

/// The annotation by which Service Bus chooses a partition.
const PARTITION_KEY: &str = "x-opt-partition-key";

/// The options of the sink's address for messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MessageOptions {
    /// Whether the key is the group id too.
    pub(super) has_group: bool,
    /// Whether the group id is the partition key too.
    pub(super) has_partition_key: bool,
}

/// The message of a record.
///
/// # Errors
/// The outcome of a record that has none.
pub(super) fn encode(record: &Record, options: MessageOptions) -> Result<Vec<u8>, Outcome> {
    let mut occurred_at = Vec::with_capacity(27);
    jsonl::write_time(&mut occurred_at, record.timestamp())
        .map_err(|fault| Outcome::rejected(RejectionKind::Invalid, fault.to_string()))?;
    let occurred_at = String::from_utf8_lossy(&occurred_at);
    let value = record.value().unwrap_or_default();
    let mut out = Vec::with_capacity(value.len() + 1_024);
    let mut w = Writer(&mut out);
    // Durable: a broker that has a disk writes the message there before it accepts it.
    w.descriptor(0x70);
    w.list(|header| header.next().bool(true));
    let group = options.has_group.then(|| group(record)).flatten();
    if let Some(group) = group.as_ref().filter(|_| options.has_partition_key) {
        w.descriptor(0x72);
        w.map(|annotations| {
            annotations.next().symbol(PARTITION_KEY);
            annotations.next().string(group);
        });
    }
    w.descriptor(0x73);
    w.list(|fields| properties(fields, record, group.as_deref()));
    w.descriptor(0x74);
    w.map(|map| application_properties(map, record, &occurred_at));
    w.descriptor(0x75);
    w.binary(value);
    Ok(out)
}

/// Messages of a group keep their order where the broker has groups or sessions.
fn group(record: &Record) -> Option<String> {
    let key = record.key()?;
    match std::str::from_utf8(key) {
        Ok(text) if (1..=GROUP_CHARS_MAX).contains(&text.chars().count()) => Some(text.to_owned()),
        // A hash of the key of order, of which every relay makes the same.
        _ => record.order_key().map(|hash| format!("{hash:016x}")),
    }
}

fn properties(fields: &mut Elements<'_>, record: &Record, group: Option<&str>) {
    let optional = |fields: &mut Elements<'_>, text: Option<&str>| match text {
        Some(text) => fields.next().string(text),
        None => fields.nulls(1),
    };
    optional(fields, Some(record.dedup_id(&mut wire_id_room())));
    fields.nulls(2);
    optional(fields, record.attribute(Field::Type));
    fields.nulls(1);
    optional(fields, record.attribute(Field::CorrelationId));
    match content_type(record) {
        Some(text) => fields.next().symbol(text),
        None => fields.nulls(1),
    }
    fields.nulls(2);
    let millis = record.timestamp().div_euclid(1_000);
    fields.next().timestamp(millis);
    optional(fields, group);
}

/// The field is a symbol, which has ASCII only.
fn content_type(record: &Record) -> Option<&str> {
    let text = record.attribute(Field::ContentType);
    text.filter(|text| text.is_ascii())
}

fn application_properties(map: &mut Elements<'_>, record: &Record, occurred_at: &str) {
    let mut add = |name: &str, value: Option<&str>| {
        map.next().string(name);
        match value {
            Some(value) => map.next().string(value),
            None => map.nulls(1),
        }
    };
    if !record.has_given_headers() {
        add("id", Some(record.wire_id(&mut wire_id_room())));
        add("occurred-at", Some(occurred_at));
    }
    add("topic", Some(record.topic()));
    for (name, field) in [
        ("causation-id", Field::CausationId),
        ("tenant-id", Field::TenantId),
        ("traceparent", Field::Traceparent),
        ("tracestate", Field::Tracestate),
    ] {
        if let Some(value) = record.attribute(field) {
            add(name, Some(value));
        }
    }
    if let Some(text) = record
        .attribute(Field::ContentType)
        .filter(|text| !text.is_ascii())
    {
        add("content-type", Some(text));
    }
    let ours = match record.has_given_headers() {
        true => &OF_THE_RECORD[..],
        false => &OURS,
    };
    let may_stand = |name: &str, _: Option<&str>| !name.is_empty() && !ours.contains(&name);
    let (standing, rest) = header_map::split(record, may_stand);
    for (name, value) in standing {
        add(name, value);
    }
    if !rest.is_empty() {
        add(HEADERS, Some(&serde_json::json!(rest).to_string()));
    }
    if let Some(key) = record.key() {
        map.next().string("key");
        match std::str::from_utf8(key) {
            Ok(text) => map.next().string(text),
            Err(_) => map.next().binary(key),
        }
    }
    if record.value().is_none() {
        map.next().string("tombstone");
        map.next().bool(true);
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    fn group_of(key: Option<&[u8]>) -> Option<String> {
        let event = SuiteEvent::new(Some("k"), "x");
        let record = records(std::slice::from_ref(&event), 0).remove(0);
        group(&record.with_key(key.map(<[u8]>::to_vec)))
    }

    #[test]
    fn a_group_is_the_key_where_it_may_be() {
        assert_eq!(group_of(Some(b"k")).as_deref(), Some("k"));
        assert_eq!(group_of(None), None);
        let long = "ü".repeat(GROUP_CHARS_MAX);
        assert_eq!(group_of(Some(long.as_bytes())), Some(long.clone()));
        for key in [&b""[..], b"\xff", (long + "x").as_bytes()] {
            assert_eq!(group_of(Some(key)).unwrap().len(), 16);
        }
    }

    #[test]
    fn a_time_that_cannot_be_told_is_rejected() {
        let mut event = SuiteEvent::new(None, "x");
        event.occurred_at = i64::MAX;
        let record = records(std::slice::from_ref(&event), 0).remove(0);
        match encode(&record, MessageOptions::default()) {
            Err(Outcome::Rejected(why)) => assert_eq!(why.kind, RejectionKind::Invalid),
            other => panic!("{other:?}"),
        }
    }
}
