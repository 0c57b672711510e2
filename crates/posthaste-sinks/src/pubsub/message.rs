//! The message of a record: its payload, its ordering key, and attributes, which are text.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use posthaste_engine::{Outcome, Record, RejectionKind, wire_id_room};
use prost::Message as _;

use super::wire::{Attribute, PubsubMessage};
use crate::{
    header_map, jsonl,
    requests::target::{Encoded, Target},
};

/// Attributes of a message.
const ATTRIBUTES_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 1_024;
const ORDERING_KEY_BYTES_MAX: usize = 1_024;
/// Attributes of such names are Google's.
const RESERVED: &str = "goog";
/// Bytes of a message in its request, beside its own: a tag, and its length.
const FRAME_BYTES: usize = 6;

/// A JSON array of pairs: headers that cannot be attributes, in their order.
const HEADERS: &str = "headers";

/// The names that are ours. An event's own header of such a name stands in [`HEADERS`].
const OURS: [&str; 14] = [
    "topic",
    "key",
    "key-base64",
    "tombstone",
    HEADERS,
    "id",
    "occurred-at",
    "type",
    "content-type",
    "correlation-id",
    "causation-id",
    "tenant-id",
    "traceparent",
    "tracestate",
];

/// How many of them stand for parts of a record that Pub/Sub has no field for.
const OF_THE_RECORD: usize = 5;

/// A message that was not published yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its encoding.
    pub(super) encoded: Bytes,
}

impl Encoded for Message {
    fn encode(record: &Record, target: &Target) -> Result<Self, Outcome> {
        let message = PubsubMessage {
            data: Bytes::copy_from_slice(record.value().unwrap_or_default()),
            attributes: attributes(record)?,
            ordering_key: ordering_key(record).unwrap_or_default(),
        };
        let message = Self {
            encoded: message.encode_to_vec().into(),
        };
        let (bytes, bytes_max) = (message.bytes(), target.message_bytes_max);
        match bytes > bytes_max {
            true => Err(Outcome::rejected(
                RejectionKind::TooLarge,
                format!(
                    "a message of {bytes} bytes, its attributes included; it has {bytes_max} at \
                     the most"
                ),
            )),
            false => Ok(message),
        }
    }

    fn bytes(&self) -> usize {
        self.encoded.len() + FRAME_BYTES
    }
}

/// Messages of one ordering key keep their order. It is the record's key, where that may be one; or
/// else a hash of the key of order, of which every relay makes the same.
fn ordering_key(record: &Record) -> Option<String> {
    let key = record.key().and_then(|key| std::str::from_utf8(key).ok());
    match key {
        Some(key) if (1..=ORDERING_KEY_BYTES_MAX).contains(&key.len()) => Some(key.to_owned()),
        _ => record.order_key().map(|hash| format!("{hash:016x}")),
    }
}

fn attributes(record: &Record) -> Result<Vec<Attribute>, Outcome> {
    let invalid = |reason: String| Outcome::rejected(RejectionKind::Invalid, reason);
    let mut occurred_at = Vec::with_capacity(27);
    jsonl::write_time(&mut occurred_at, record.timestamp())
        .map_err(|fault| invalid(fault.to_string()))?;
    let mut out = Vec::new();
    add(&mut out, "topic", record.topic());
    match record.key().map(|key| (key, std::str::from_utf8(key))) {
        None => {}
        Some((_, Ok(text))) => add(&mut out, "key", text),
        Some((key, Err(_))) => add(&mut out, "key-base64", &STANDARD.encode(key)),
    }
    if record.value().is_none() {
        add(&mut out, "tombstone", "true");
    }
    if !record.has_given_headers() {
        add(&mut out, "id", record.wire_id(&mut wire_id_room()));
        add(
            &mut out,
            "occurred-at",
            &String::from_utf8_lossy(&occurred_at),
        );
    }
    for (name, value) in record.attributes() {
        add(&mut out, name, value);
    }
    add_own(&mut out, record);
    match out.len() > ATTRIBUTES_MAX {
        true => Err(invalid(format!(
            "{} attributes, which its headers are; a message has {ATTRIBUTES_MAX} at the most",
            out.len()
        ))),
        false => Ok(out),
    }
}

/// The event's own headers.
fn add_own(out: &mut Vec<Attribute>, record: &Record) {
    let ours = match record.has_given_headers() {
        true => &OURS[..OF_THE_RECORD],
        false => &OURS,
    };
    let as_attribute = |name: &str, value: Option<&str>| {
        may_be_name(name, ours) && value.is_some_and(|value| value.len() <= VALUE_BYTES_MAX)
    };
    let (standing, rest) = header_map::split(record, as_attribute);
    for (name, value) in standing {
        add(out, name, value.unwrap_or_default());
    }
    if !rest.is_empty() {
        add(out, HEADERS, &serde_json::json!(rest).to_string());
    }
}

fn may_be_name(name: &str, ours: &[&str]) -> bool {
    let start = name.get(..RESERVED.len()).unwrap_or_default();
    let is_reserved = start.eq_ignore_ascii_case(RESERVED);
    // The pieces of ours have numbers.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let stem = match name.rsplit_once('.') {
        Some((stem, number)) if is_number(number) => stem,
        _ => name,
    };
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !is_reserved
        && !ours.contains(&name)
        && !ours.contains(&stem)
}

/// Adds an attribute. A value that is too long goes on in those with a number: `headers.2`.
fn add(out: &mut Vec<Attribute>, name: &str, value: &str) {
    let (first, mut rest) = value.split_at(value.floor_char_boundary(VALUE_BYTES_MAX));
    let mut push = |name: String, value: &str| {
        out.push(Attribute {
            name,
            value: value.to_owned(),
        });
    };
    push(name.to_owned(), first);
    for number in 2.. {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(rest.floor_char_boundary(VALUE_BYTES_MAX));
        push(format!("{name}.{number}"), piece);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    fn record(event: &SuiteEvent) -> Record {
        records(std::slice::from_ref(event), 0).remove(0)
    }

    fn pairs(record: &Record) -> Vec<(String, String)> {
        let found = attributes(record).unwrap();
        let found = found.into_iter().map(|found| (found.name, found.value));
        found.collect()
    }

    fn header(name: &str, value: Option<&str>) -> (String, Option<String>) {
        (name.to_owned(), value.map(str::to_owned))
    }

    #[test]
    fn headers_that_cannot_be_attributes_stand_in_one() {
        let long = "ü".repeat(513);
        let mut event = SuiteEvent::new(Some("k"), "x");
        event.headers = vec![
            header("b", Some("1")),
            header("a", None),
            header("b", Some("2")),
            header("Google", Some("g")),
            header("headers.2", Some("h")),
            header("own.2", Some("o")),
            header("long", Some(&long)),
        ];
        let found = pairs(&record(&event));
        let own: Vec<_> = found[4..].iter().map(|(name, _)| &**name).collect();
        assert_eq!(own, ["own.2", "headers", "headers.2"]);
        assert!(
            found
                .iter()
                .all(|(_, value)| value.len() <= VALUE_BYTES_MAX)
        );
        let json: String = found[5..].iter().map(|(_, value)| &**value).collect();
        let listed: Vec<(String, Option<String>)> = serde_json::from_str(&json).unwrap();
        event.headers.remove(5);
        assert_eq!(listed, event.headers);
    }

    #[test]
    fn a_long_value_goes_on_in_others() {
        for (bytes, pieces) in [(0, 1), (1_024, 1), (1_026, 2), (3_072, 4)] {
            let mut out = Vec::new();
            // Each has three bytes: a piece ends behind the last that it has as a whole.
            let value = "馬".repeat(bytes / 3);
            add(&mut out, "key", &value);
            assert_eq!(out.len(), pieces, "{bytes}");
            let joined: String = out.iter().map(|piece| &*piece.value).collect();
            assert_eq!(joined, value);
        }
    }

    #[test]
    fn an_ordering_key_is_the_records_where_it_may_be() {
        let event = SuiteEvent::new(Some("k"), "x");
        let record = record(&event);
        let hash = format!("{:016x}", record.order_key().unwrap());
        let longest = "k".repeat(ORDERING_KEY_BYTES_MAX);
        let longer = "k".repeat(ORDERING_KEY_BYTES_MAX + 1);
        for (key, expected) in [
            (Some(&b"order 1\n"[..]), "order 1\n"),
            (Some(longest.as_bytes()), &*longest),
            (Some(longer.as_bytes()), &*hash),
            (Some(b""), &*hash),
            (Some(b"\xff"), &*hash),
            (None, &*hash),
        ] {
            let found = ordering_key(&record.clone().with_key(key.map(<[u8]>::to_vec)));
            assert_eq!(found.as_deref(), Some(expected));
        }
        let free = super::tests::record(&SuiteEvent::new(None, "x"));
        assert_eq!(ordering_key(&free), None);
    }

    #[test]
    fn records_that_no_message_can_hold_are_rejected() {
        let mut late = SuiteEvent::new(None, "");
        late.occurred_at = i64::MAX;
        let mut many = SuiteEvent::new(None, "");
        many.headers = (0..98)
            .map(|n| header(&format!("h-{n}"), Some("")))
            .collect();
        assert!(attributes(&record(&many)).is_err());
        many.headers.pop();
        assert_eq!(attributes(&record(&many)).unwrap().len(), ATTRIBUTES_MAX);
        match attributes(&record(&late)) {
            Err(Outcome::Rejected(why)) => assert_eq!(why.kind, RejectionKind::Invalid),
            other => panic!("{other:?}"),
        }
    }
}
