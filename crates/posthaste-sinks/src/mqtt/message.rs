//! The message of a record: its payload with user properties, or a CloudEvent in JSON.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};

use super::{
    client::{StringTooLong, property},
    topic::is_refused,
};
use crate::{
    cloud_event::{attributes::attributes, structured},
    jsonl,
};

/// Our own user properties, in their order. An event's own header of such a name does not hide
/// ours.
pub(super) const OURS: [&str; 12] = [
    "id",
    "occurred-at",
    "type",
    "content-type",
    "correlation-id",
    "causation-id",
    "tenant-id",
    "traceparent",
    "tracestate",
    "key",
    "key-base64",
    "tombstone",
];

/// Those among them that stand for parts of a record that MQTT has no field for.
const OF_THE_RECORD: [&str; 3] = ["key", "key-base64", "tombstone"];

/// Stands for a value that is none. No percent escape is so short.
const NOTHING: &str = "%";

/// How an event stands in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Format {
    /// Its payload, and user properties.
    Raw,
    /// A CloudEvent that is one JSON object, whose `source` this is.
    Structured { source: String },
}

/// The parts of a message that a record makes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content<'a> {
    /// As they stand in a packet of MQTT 5.
    pub(super) properties: Vec<u8>,
    pub(super) payload: Cow<'a, [u8]>,
}

impl<'a> Content<'a> {
    /// The content of a record.
    ///
    /// # Errors
    /// The outcome of a record that no message can hold.
    pub(super) fn of(record: &'a Record, format: &Format) -> Result<Self, Outcome> {
        let mut properties = Vec::new();
        let payload = match format {
            Format::Raw => {
                write_properties(&mut properties, record)?;
                record.value().unwrap_or_default().into()
            }
            Format::Structured { source } => {
                property::content_type(&mut properties, structured::CONTENT_TYPE)
                    .map_err(too_long)?;
                structured::write(record, &attributes(record)?, source).into()
            }
        };
        Ok(Self {
            properties,
            payload,
        })
    }
}

fn write_properties(out: &mut Vec<u8>, record: &Record) -> Result<(), Outcome> {
    let mut room = wire_id_room();
    let mut occurred_at = Vec::with_capacity(27);
    jsonl::write_time(&mut occurred_at, record.timestamp())
        .map_err(|fault| Outcome::rejected(RejectionKind::Invalid, fault.to_string()))?;
    let occurred_at = String::from_utf8_lossy(&occurred_at);
    let content_type = record.attribute(Field::ContentType);
    let correlation_id = record.attribute(Field::CorrelationId);
    // The protocol's own place has no escapes.
    if let Some(text) = content_type.filter(|text| !text.contains(is_refused)) {
        property::content_type(out, text).map_err(too_long)?;
    }
    if let Some(text) = correlation_id {
        property::correlation_data(out, text).map_err(too_long)?;
    }
    let is_given = record.has_given_headers();
    // Properties are text.
    let key = record.key();
    let key_text = key.map(|key| std::str::from_utf8(key).map_err(|_| STANDARD.encode(key)));
    let (key, key_base64) = match &key_text {
        None => (None, None),
        Some(Ok(text)) => (Some(*text), None),
        Some(Err(encoded)) => (None, Some(&**encoded)),
    };
    let ours = [
        (!is_given).then(|| record.wire_id(&mut room)),
        (!is_given).then_some(&*occurred_at),
        record.attribute(Field::Type),
        content_type,
        correlation_id,
        record.attribute(Field::CausationId),
        record.attribute(Field::TenantId),
        record.attribute(Field::Traceparent),
        record.attribute(Field::Tracestate),
        key,
        key_base64,
        record.value().is_none().then_some("true"),
    ];
    for (name, value) in OURS.into_iter().zip(ours) {
        // The first of a name is ours, so that nobody takes the event's own for it. Where headers
        // are given, that counts for the names that stand for parts of the record alone.
        let is_ours = !is_given || OF_THE_RECORD.contains(&name);
        if value.is_some() || is_ours && record.own_headers().any(|(own, _)| own == name) {
            write_user(out, name, value)?;
        }
    }
    for (name, value) in record.own_headers() {
        write_user(out, name, value)?;
    }
    Ok(())
}

fn write_user(out: &mut Vec<u8>, name: &str, value: Option<&str>) -> Result<(), Outcome> {
    let value = value.map_or(NOTHING.into(), escaped);
    property::user(out, &escaped(name), &value).map_err(too_long)
}

/// The text with percent escapes for what a broker may refuse, and for the percent sign.
fn escaped(text: &str) -> Cow<'_, str> {
    let is_escaped = |c| c == '%' || is_refused(c);
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                out += &format!("%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    out.into()
}

fn too_long(StringTooLong(bytes): StringTooLong) -> Outcome {
    Outcome::rejected(
        RejectionKind::TooLarge,
        format!("a property of {bytes} bytes, over the 65535 that MQTT has room for"),
    )
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    fn properties(event: SuiteEvent) -> Result<Vec<u8>, Outcome> {
        let records = records(&[event], 0);
        let content = Content::of(&records[0], &Format::Raw)?;
        Ok(content.properties)
    }

    #[test]
    fn properties_stand_in_their_order() {
        let mut event = SuiteEvent::new(Some(" k\n"), "payload");
        event.content_type = Some("text/plain".to_owned());
        event.correlation_id = Some("c".to_owned());
        event.tenant_id = Some("100 % ü".to_owned());
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        event.headers = vec![
            pair("b:ä", Some("1")),
            pair("type", Some("theirs")),
            pair("", None),
            pair("b:ä", Some("\u{85}")),
        ];
        let id = event.id.to_string();
        let mut expected = Vec::new();
        property::content_type(&mut expected, "text/plain").unwrap();
        property::correlation_data(&mut expected, "c").unwrap();
        for (name, value) in [
            ("id", &*id),
            ("occurred-at", "2023-11-14T22:13:20.123456Z"),
            ("type", "%"),
            ("content-type", "text/plain"),
            ("correlation-id", "c"),
            ("tenant-id", "100 %25 ü"),
            ("key", " k%0A"),
            ("b:ä", "1"),
            ("type", "theirs"),
            ("", "%"),
            ("b:ä", "%C2%85"),
        ] {
            property::user(&mut expected, name, value).unwrap();
        }
        assert_eq!(properties(event), Ok(expected));
    }

    #[test]
    fn records_that_no_message_can_hold_are_rejected() {
        let mut long = SuiteEvent::new(None, "");
        long.headers = vec![("h".to_owned(), Some("x".repeat(65_536)))];
        let mut late = SuiteEvent::new(None, "");
        late.occurred_at = i64::MAX;
        for (event, kind) in [
            (long, RejectionKind::TooLarge),
            (late, RejectionKind::Invalid),
        ] {
            match properties(event) {
                Err(Outcome::Rejected(why)) => assert_eq!(why.kind, kind),
                other => panic!("{other:?}"),
            }
        }
    }
}
