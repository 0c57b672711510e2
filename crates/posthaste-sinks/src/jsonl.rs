//! The wire format of `file` and `stdout`: one JSON object a line (JSON Lines).

use std::io::Write;

use base64::{engine::general_purpose::STANDARD, write::EncoderWriter};
use jiff::{SignedDuration, civil::DateTime, fmt::temporal::DateTimePrinter};
use posthaste_engine::{Field, Record, wire_id_room};

/// How every line begins; tells a torn line of ours from somebody else's text.
pub(crate) const LINE_START: &[u8] = br#"{"seq":"#;

/// An event that no line can hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwritable {
    #[error(
        "occurred_at ({0} microseconds since 1970) is outside the years 0000 to 9999 of RFC 3339"
    )]
    OccurredAt(i64),
    #[error("the line could not be written into memory: {0}")]
    Memory(#[from] std::io::Error),
}

/// Appends the record's line, its newline included. On failure nothing was appended.
pub(crate) fn write_line(out: &mut Vec<u8>, record: &Record) -> Result<(), Unwritable> {
    let start = out.len();
    let written = write_object(out, record);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_object(out: &mut Vec<u8>, record: &Record) -> Result<(), Unwritable> {
    out.extend_from_slice(LINE_START);
    write!(out, "{}", record.event().seq())?;
    out.extend_from_slice(br#","id":""#);
    write_bare(out, record.wire_id(&mut wire_id_room()));
    out.extend_from_slice(br#"","topic":"#);
    write_text(out, record.topic());
    write_bytes(out, "key", record.key())?;
    write_field(out, "type", record.attribute(Field::Type));
    write_field(out, "content_type", record.attribute(Field::ContentType));
    out.extend_from_slice(br#","headers":"#);
    write_headers(out, record);
    write_bytes(out, "payload", record.value())?;
    out.extend_from_slice(br#","occurred_at":""#);
    write_time(out, record.timestamp())?;
    out.push(b'"');
    write_field(
        out,
        "correlation_id",
        record.attribute(Field::CorrelationId),
    );
    write_field(out, "causation_id", record.attribute(Field::CausationId));
    write_field(out, "tenant_id", record.attribute(Field::TenantId));
    for (name, field) in [
        ("traceparent", Field::Traceparent),
        ("tracestate", Field::Tracestate),
    ] {
        if let Some(value) = record.attribute(field) {
            write_field(out, name, Some(value));
        }
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// `name` needs no escaping.
fn write_field(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    write_optional(out, value);
}

/// Appends the headers without attributes as a JSON array. Pairs, not an object: a repeated name
/// and the order survive (I9).
pub(crate) fn write_headers(out: &mut Vec<u8>, record: &Record) {
    out.push(b'[');
    for (index, (name, value)) in record.own_headers().enumerate() {
        out.extend_from_slice(if index == 0 { b"[" } else { b",[" });
        write_text(out, name);
        out.push(b',');
        write_optional(out, value);
        out.push(b']');
    }
    out.push(b']');
}

/// Bytes are text where they are UTF-8, else base64 under a name that says so. `name` needs no
/// escaping.
fn write_bytes(out: &mut Vec<u8>, name: &str, bytes: Option<&[u8]>) -> Result<(), Unwritable> {
    match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
        None => write_field(out, name, None),
        Some(Ok(text)) => write_field(out, name, Some(text)),
        Some(Err(bytes)) => {
            write!(out, r#","{name}_base64":""#)?;
            let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
            encoder.write_all(bytes)?;
            encoder.finish()?;
            drop(encoder);
            out.push(b'"');
        }
    }
    Ok(())
}

/// Appends the RFC 3339 time in UTC with microseconds. On failure nothing was appended.
pub(crate) fn write_time(out: &mut Vec<u8>, micros: i64) -> Result<(), Unwritable> {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    // A date and a time of day: a timestamp would have to be one in each zone of the world, and
    // ends a day before the year 9999 does.
    const YEAR_1970: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    let time = YEAR_1970.checked_add(SignedDuration::from_micros(micros));
    // A year before 0000 would print with a sign, which RFC 3339 does not know.
    time.ok()
        .filter(|time| time.year() >= 0)
        .and_then(|time| PRINTER.print_datetime(&time, &mut *out).ok())
        .ok_or(Unwritable::OccurredAt(micros))?;
    out.push(b'Z');
    Ok(())
}

fn write_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => write_text(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

/// A JSON string.
fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_bare(out, text);
    out.push(b'"');
}

/// A JSON string without its quotes. Bytes that need no escape are copied in runs.
fn write_bare(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    let mut copied = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[copied..at]);
        copied = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
        }
    }
    out.extend_from_slice(&bytes[copied..]);
}

#[cfg(test)]
mod tests {
    use posthaste_engine::{PageBuilder, StoredFields};
    use uuid::Uuid;

    use super::*;

    fn line(texts: &[(Field, &str)], payload: Option<&[u8]>, occurred_at: i64) -> String {
        let mut fields = StoredFields {
            seq: 7,
            id: Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001),
            occurred_at,
            inserted_at: 0,
            slot: 0,
            texts: [None; 9],
            payload,
        };
        for &(field, text) in texts {
            fields.texts[field as usize] = Some(text);
        }
        let mut page = PageBuilder::default();
        let headers = [("a", Some("1")), ("a", None)];
        page.push(&fields, headers.into_iter()).unwrap();
        let record = Record::new(0, page.finish().remove(0));
        let mut out = Vec::new();
        match write_line(&mut out, &record) {
            Ok(()) => String::from_utf8(out).unwrap(),
            Err(error) => {
                assert!(out.is_empty());
                error.to_string()
            }
        }
    }

    #[test]
    fn fields_come_in_their_order() {
        assert_eq!(
            line(&[(Field::Topic, "orders")], None, 1_700_000_000_000_001),
            concat!(
                r#"{"seq":7,"id":"01900000-0000-7000-8000-000000000001","topic":"orders","#,
                r#""key":null,"type":null,"content_type":null,"headers":[["a","1"],["a",null]],"#,
                r#""payload":null,"occurred_at":"2023-11-14T22:13:20.000001Z","#,
                r#""correlation_id":null,"causation_id":null,"tenant_id":null}"#,
                "\n"
            )
        );
        let all = [
            (Field::Topic, "t"),
            (Field::Key, "k"),
            (Field::Type, "y"),
            (Field::ContentType, "c"),
            (Field::CorrelationId, "1"),
            (Field::CausationId, "2"),
            (Field::TenantId, "3"),
            (Field::Traceparent, "4"),
            (Field::Tracestate, "5"),
        ];
        assert_eq!(
            line(&all, Some(&[0xff]), 0),
            concat!(
                r#"{"seq":7,"id":"01900000-0000-7000-8000-000000000001","topic":"t","#,
                r#""key":"k","type":"y","content_type":"c","headers":[["a","1"],["a",null]],"#,
                r#""payload_base64":"/w==","occurred_at":"1970-01-01T00:00:00.000000Z","#,
                r#""correlation_id":"1","causation_id":"2","tenant_id":"3","#,
                r#""traceparent":"4","tracestate":"5"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn escapes_as_serde_json_does() {
        let text: String = (0..0x300)
            .chain(0x2020..0x2030)
            .filter_map(char::from_u32)
            .collect();
        let mut out = Vec::new();
        write_text(&mut out, &text);
        assert_eq!(
            String::from_utf8(out)
                .unwrap()
                .replace("\\u0008", "\\b")
                .replace("\\u000c", "\\f"),
            serde_json::to_string(&text).unwrap()
        );
    }

    #[test]
    fn times_outside_rfc_3339_are_refused() {
        let (first, last) = (-62_167_219_200_000_000, 253_402_300_799_999_999);
        for micros in [i64::MAX, last + 1, i64::MIN, first - 1] {
            assert!(line(&[], None, micros).contains("RFC 3339"), "{micros}");
        }
    }

    #[test]
    fn the_first_and_the_last_microsecond_of_rfc_3339_are_written() {
        for (micros, expected) in [
            (-62_167_219_200_000_000, "\"0000-01-01T00:00:00.000000Z\""),
            (-1, "\"1969-12-31T23:59:59.999999Z\""),
            (253_402_300_799_999_999, "\"9999-12-31T23:59:59.999999Z\""),
        ] {
            let line = line(&[], None, micros);
            assert!(line.contains(expected), "{line}");
        }
    }
}
