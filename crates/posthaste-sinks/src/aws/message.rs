//! The message of a record: a body that is text, and at most ten attributes.
//!
//! SQS takes ten attributes. They are always the same ones, whatever an event has, so that a
//! consumer knows where to look: what has no attribute of its own stands in two that are JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};
use serde_json::{Map, Value};

use super::digest::sha256;
use crate::{
    descriptors::sqs::CALLS_MAX,
    jsonl,
    requests::target::{CallLimits, Encoded, Target},
};

/// Messages of a request at the most, of SQS and SNS.
const CALL_EVENTS_MAX: usize = 10;

/// The attributes of an event that are attributes of the message too.
const OWN_ATTRIBUTES: [(&str, Field); 3] = [
    ("type", Field::Type),
    ("content-type", Field::ContentType),
    ("traceparent", Field::Traceparent),
];

/// Those that stand in [`MORE`].
const MORE_ATTRIBUTES: [(&str, Field); 4] = [
    ("correlation-id", Field::CorrelationId),
    ("causation-id", Field::CausationId),
    ("tenant-id", Field::TenantId),
    ("tracestate", Field::Tracestate),
];

const ENCODING: &str = "encoding";
const HEADERS: &str = "headers";
/// A JSON object of what has no attribute of its own.
const MORE: &str = "more";

/// The body of a message that has none: no body is empty.
const NO_BODY: &str = "-";

/// The data type of all attributes.
pub(crate) const STRING: &str = "String";

/// Bytes of an id by which messages are grouped, or repeats are told.
const FIFO_ID_BYTES_MAX: usize = 128;

/// A message that was not sent yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) body: String,
    pub(crate) attributes: Vec<(&'static str, String)>,
    pub(crate) fifo: Option<FifoIds>,
    bytes: usize,
}

/// The ids of a message for a FIFO queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FifoIds {
    /// Messages of a group keep their order.
    pub(crate) group: String,
    pub(crate) dedup: String,
}

/// The size of requests of SQS and SNS, with so many bytes at the most.
pub(crate) fn call_limits(bytes: usize) -> CallLimits {
    CallLimits {
        events: CALL_EVENTS_MAX,
        bytes,
        events_of_all: CALLS_MAX as usize * CALL_EVENTS_MAX,
    }
}

impl Message {
    /// The message of a record, with so many bytes at the most.
    ///
    /// # Errors
    /// The outcome of a record that has none.
    fn of(record: &Record, is_fifo: bool, bytes_max: usize) -> Result<Self, Outcome> {
        let mut attributes = Attributes::default();
        let mut room = wire_id_room();
        attributes.add("id", record.wire_id(&mut room));
        attributes.add("topic", record.topic());
        match record.key().map(|key| (key, std::str::from_utf8(key))) {
            None => {}
            Some((_, Ok(text))) => attributes.add("key", text),
            Some((key, Err(_))) => attributes.add("key-base64", &STANDARD.encode(key)),
        }
        let mut occurred_at = Vec::with_capacity(27);
        jsonl::write_time(&mut occurred_at, record.timestamp())
            .map_err(|fault| Outcome::rejected(RejectionKind::Invalid, fault.to_string()))?;
        if !record.has_given_headers() {
            attributes.add("occurred-at", &String::from_utf8_lossy(&occurred_at));
        }
        for (name, field) in OWN_ATTRIBUTES {
            if let Some(value) = record.attribute(field) {
                attributes.add(name, value);
            }
        }
        for (name, field) in MORE_ATTRIBUTES {
            if let Some(value) = record.attribute(field) {
                attributes.add_to_more(name, value);
            }
        }
        let (body, encoding) = body(record.value());
        if let Some(encoding) = encoding {
            attributes.add(ENCODING, encoding);
        }
        // Pairs, not an object: a repeated name and the order survive (I9).
        let mut headers = Vec::new();
        jsonl::write_headers(&mut headers, record);
        if headers != b"[]" {
            attributes.add_json(HEADERS, &String::from_utf8_lossy(&headers));
        }
        let attributes = attributes.finish();
        let sizes = attributes.iter();
        let sizes = sizes.map(|(name, value)| name.len() + STRING.len() + value.len());
        let message = Self {
            bytes: body.len() + sizes.sum::<usize>(),
            fifo: is_fifo.then(|| FifoIds::of(record)),
            body,
            attributes,
        };
        match message.bytes > bytes_max {
            true => Err(too_large(&message, bytes_max, encoding)),
            false => Ok(message),
        }
    }
}

impl Encoded for Message {
    fn encode(record: &Record, target: &Target) -> Result<Self, Outcome> {
        Self::of(record, target.names.is_fifo(), target.message_bytes_max)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl FifoIds {
    fn of(record: &Record) -> Self {
        let dedup = fifo_id(record.dedup_id(&mut wire_id_room()));
        let group = match record.order_key() {
            Some(key) => format!("{key:016x}"),
            // No order binds it.
            None => dedup.clone(),
        };
        Self { group, dedup }
    }
}

/// The id as it is, or a hash of one that is too long or has other characters than such ids have.
fn fifo_id(id: &str) -> String {
    let is_one = (1..=FIFO_ID_BYTES_MAX).contains(&id.len());
    if is_one && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return id.to_owned();
    }
    sha256(id.as_bytes())
}

fn too_large(message: &Message, bytes_max: usize, encoding: Option<&str>) -> Outcome {
    let in_base64 = match encoding {
        Some("base64") => ", with its payload in base64",
        _ => "",
    };
    let reason = format!(
        "a message of {} bytes, its attributes included{in_base64}; it has {bytes_max} at the most",
        message.bytes
    );
    Outcome::rejected(RejectionKind::TooLarge, reason)
}

/// A body, and the value of the attribute that says how to read it, if it is not the payload.
fn body(payload: Option<&[u8]>) -> (String, Option<&'static str>) {
    match payload.map(|payload| (payload, std::str::from_utf8(payload))) {
        None => (NO_BODY.to_owned(), Some("tombstone")),
        Some(([], _)) => (NO_BODY.to_owned(), Some("empty")),
        Some((_, Ok(text))) if text.chars().all(may_stand) => (text.to_owned(), None),
        Some((payload, _)) => (STANDARD.encode(payload), Some("base64")),
    }
}

/// Whether a message may have this character: those of XML 1.0.
fn may_stand(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{fffd}' | '\u{10000}'..)
}

/// Attributes on their way into a message.
#[derive(Debug, Default)]
struct Attributes {
    all: Vec<(&'static str, String)>,
    more: Map<String, Value>,
}

impl Attributes {
    /// No attribute is empty, or has a character that no message may have.
    fn add(&mut self, name: &'static str, value: &str) {
        match !value.is_empty() && value.chars().all(may_stand) {
            true => self.all.push((name, value.to_owned())),
            false => self.add_to_more(name, value),
        }
    }

    fn add_to_more(&mut self, name: &str, value: &str) {
        self.more.insert(name.to_owned(), value.into());
    }

    /// JSON escapes all that may not stand but these two.
    fn add_json(&mut self, name: &'static str, json: &str) {
        let json = json.replace('\u{fffe}', "\\ufffe");
        self.all.push((name, json.replace('\u{ffff}', "\\uffff")));
    }

    fn finish(mut self) -> Vec<(&'static str, String)> {
        if !self.more.is_empty() {
            let more = Value::Object(std::mem::take(&mut self.more)).to_string();
            self.add_json(MORE, &more);
        }
        self.all
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    fn message(event: &SuiteEvent) -> Result<Message, Outcome> {
        Message::of(&records(std::slice::from_ref(event), 0)[0], true, 2_000)
    }

    fn full() -> SuiteEvent {
        let mut event = SuiteEvent::new(Some("k"), [0xff]);
        for attribute in [
            &mut event.kind,
            &mut event.content_type,
            &mut event.correlation_id,
            &mut event.causation_id,
            &mut event.tenant_id,
            &mut event.traceparent,
            &mut event.tracestate,
        ] {
            *attribute = Some("x".to_owned());
        }
        event.headers = vec![("a".to_owned(), Some("\u{fffe}\u{1}".to_owned()))];
        event
    }

    #[test]
    fn an_event_with_all_that_there_is_has_ten_attributes() {
        let event = full();
        let message = message(&event).unwrap();
        let id = event.id.to_string();
        let expected = [
            ("id", &*id),
            ("topic", "suite"),
            ("key", "k"),
            ("occurred-at", "2023-11-14T22:13:20.123456Z"),
            ("type", "x"),
            ("content-type", "x"),
            ("traceparent", "x"),
            ("encoding", "base64"),
            ("headers", r#"[["a","\ufffe\u0001"]]"#),
            (
                "more",
                r#"{"correlation-id":"x","causation-id":"x","tenant-id":"x","tracestate":"x"}"#,
            ),
        ];
        let found = message.attributes.iter();
        let found: Vec<_> = found.map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(found, expected);
        assert_eq!(message.body, "/w==");
        let sizes = expected.map(|(name, value)| name.len() + value.len() + 6);
        assert_eq!(message.bytes, 4 + sizes.iter().sum::<usize>());
    }

    #[test]
    fn a_body_is_the_payload_where_it_may_be() {
        for (payload, text, encoding) in [
            (Some("{\"a\":\"ü\u{7f}\t\r\n\"}"), None, None),
            (Some("\u{1}"), Some("AQ=="), Some("base64")),
            (Some("\u{ffff}"), Some("77+/"), Some("base64")),
            (Some(""), Some("-"), Some("empty")),
            (None, Some("-"), Some("tombstone")),
        ] {
            let (found, told) = body(payload.map(str::as_bytes));
            assert_eq!(Some(&*found), text.or(payload));
            assert_eq!(told, encoding);
        }
    }

    #[test]
    fn what_no_attribute_may_hold_stands_in_more() {
        let mut event = SuiteEvent::new(Some(""), "x");
        event.kind = Some("a\u{0}".to_owned());
        let message = message(&event).unwrap();
        let more = message.attributes.last().unwrap();
        assert_eq!(more.1, r#"{"key":"","type":"a\u0000"}"#);
    }

    #[test]
    fn ids_of_fifo_are_the_events_where_they_may_be() {
        let mut event = SuiteEvent::new(None, "x");
        let record = |event: &SuiteEvent| records(std::slice::from_ref(event), 0).remove(0);
        let ids = FifoIds::of(&record(&event));
        assert_eq!(ids.dedup, event.id.to_string());
        assert_eq!(ids.group, ids.dedup);
        event.key = Some("k".to_owned());
        let [one, other] = ["a b", "b c"].map(|id| {
            let record = record(&event).with_dedup_id(id.to_owned());
            FifoIds::of(&record)
        });
        assert_eq!(one.group, other.group);
        assert_ne!(one.dedup, other.dedup);
        assert_eq!((one.group.len(), one.dedup.len()), (16, 64));
    }

    #[test]
    fn records_that_no_message_can_hold_are_rejected() {
        let large = SuiteEvent::new(None, "x".repeat(2_000));
        let mut late = SuiteEvent::new(None, "");
        late.occurred_at = i64::MAX;
        for (event, kind) in [
            (large, RejectionKind::TooLarge),
            (late, RejectionKind::Invalid),
        ] {
            match message(&event) {
                Err(Outcome::Rejected(why)) => assert_eq!(why.kind, kind),
                other => panic!("{other:?}"),
            }
        }
    }
}
