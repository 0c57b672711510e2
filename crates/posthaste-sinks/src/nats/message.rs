//! The message of a record: headers of a record, as NATS has them, and its payload.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};

use crate::jsonl;

/// Our own headers, in their order. An event's own header of such a name does not hide ours.
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

/// Those among them that stand for parts of a record that NATS has no field for.
const OF_THE_RECORD: [&str; 3] = ["key", "key-base64", "tombstone"];

/// Headers of such names are orders to the server: some make it delete messages.
const RESERVED: &str = "Nats-";

/// Stands for a name that is empty, and for a value that is none. No percent escape is so short.
const NOTHING: &[u8] = b"%";

const HEXADECIMAL: &[u8; 16] = b"0123456789ABCDEF";

/// Where a record goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    /// The subject.
    pub(super) subject: &'a str,
    /// The subject of the answer.
    pub(super) reply: &'a str,
    /// The stream that must take it; none: any.
    pub(super) stream: Option<&'a str>,
    /// The server's limit.
    pub(super) bytes_max: usize,
}

/// Appends the record's `HPUB`. On failure nothing was appended, and the answer is its outcome.
pub(super) fn write(
    out: &mut Vec<u8>,
    record: &Record,
    envelope: &Envelope<'_>,
) -> Result<(), Outcome> {
    let headers = headers(record, envelope.stream)?;
    let payload = record.value().unwrap_or_default();
    let size = headers.len() + payload.len();
    if size > envelope.bytes_max {
        return Err(Outcome::rejected(
            RejectionKind::TooLarge,
            format!(
                "{size} bytes with its headers, over the {} that the server takes (its \
                 max_payload)",
                envelope.bytes_max
            ),
        ));
    }
    let Envelope { subject, reply, .. } = envelope;
    let line = format!("HPUB {subject} {reply} {} {size}\r\n", headers.len());
    for part in [line.as_bytes(), &headers, payload, b"\r\n"] {
        out.extend_from_slice(part);
    }
    Ok(())
}

fn headers(record: &Record, stream: Option<&str>) -> Result<Vec<u8>, Outcome> {
    if let Some((name, _)) = record.own_headers().find(|(name, _)| is_reserved(name)) {
        return Err(invalid(format!(
            "it has a header `{name}`; NATS takes headers that begin with `{RESERVED}` for orders"
        )));
    }
    let mut room = wire_id_room();
    let mut occurred_at = Vec::with_capacity(27);
    jsonl::write_time(&mut occurred_at, record.timestamp())
        .map_err(|fault| invalid(fault.to_string()))?;
    let occurred_at = String::from_utf8_lossy(&occurred_at);
    let mut out = b"NATS/1.0\r\n".to_vec();
    write_header(&mut out, "Nats-Msg-Id", Some(record.dedup_id(&mut room)));
    let is_given = record.has_given_headers();
    // Headers are lines of text.
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
        record.attribute(Field::ContentType),
        record.attribute(Field::CorrelationId),
        record.attribute(Field::CausationId),
        record.attribute(Field::TenantId),
        record.attribute(Field::Traceparent),
        record.attribute(Field::Tracestate),
        key,
        key_base64,
        record.value().is_none().then_some("true"),
    ];
    if stream.is_some() {
        write_header(&mut out, "Nats-Expected-Stream", stream);
    }
    for (name, value) in OURS.into_iter().zip(ours) {
        // The first of a name is ours, so that nobody takes the event's own for it. Where headers
        // are given, that counts for the names that stand for parts of the record alone.
        let is_ours = !is_given || OF_THE_RECORD.contains(&name);
        if value.is_some() || is_ours && record.own_headers().any(|(own, _)| own == name) {
            write_header(&mut out, name, value);
        }
    }
    for (name, value) in record.own_headers() {
        write_header(&mut out, name, value);
    }
    out.extend_from_slice(b"\r\n");
    Ok(out)
}

fn is_reserved(name: &str) -> bool {
    let start = name.get(..RESERVED.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}

fn invalid(reason: String) -> Outcome {
    Outcome::rejected(RejectionKind::Invalid, reason)
}

fn write_header(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if name.is_empty() {
        out.extend_from_slice(NOTHING);
    } else {
        write_escaped(out, name, |_, byte| byte.is_ascii_graphic() && byte != b':');
    }
    out.extend_from_slice(b": ");
    match value {
        None => out.extend_from_slice(NOTHING),
        // Clients remove white space at both ends.
        Some(value) => write_escaped(out, value, |at, byte| {
            let is_inside = at > 0 && at + 1 < value.len();
            !byte.is_ascii_control() && (is_inside || byte != b' ')
        }),
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes bytes as they are where they may stand so, and others as percent escapes.
fn write_escaped(out: &mut Vec<u8>, text: &str, may_stand: impl Fn(usize, u8) -> bool) {
    for (at, byte) in text.bytes().enumerate() {
        if byte != b'%' && may_stand(at, byte) {
            out.push(byte);
        } else {
            let digit = |number: u8| HEXADECIMAL[usize::from(number)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 0xf)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;

    fn written(event: SuiteEvent, bytes_max: usize) -> Result<String, Outcome> {
        let mut out = Vec::new();
        let envelope = Envelope {
            subject: "s",
            reply: "r",
            stream: Some("S"),
            bytes_max,
        };
        let written = write(&mut out, &records(&[event], 0)[0], &envelope);
        written.map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn headers_are_lines_in_their_order() {
        let mut event = SuiteEvent::new(Some(" k\n"), "payload");
        event.tenant_id = Some("100 % ü".to_owned());
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        event.headers = vec![
            pair("b:ä", Some("1")),
            pair("type", Some("theirs")),
            pair("", None),
            pair("b:ä", Some("")),
        ];
        let id = event.id;
        let written = written(event, 1_000).unwrap();
        let (line, rest) = written.split_once("\r\n").unwrap();
        let expected = format!(
            "NATS/1.0\r\n\
             Nats-Msg-Id: {id}\r\n\
             Nats-Expected-Stream: S\r\n\
             id: {id}\r\n\
             occurred-at: 2023-11-14T22:13:20.123456Z\r\n\
             type: %\r\n\
             tenant-id: 100 %25 ü\r\n\
             key: %20k%0A\r\n\
             b%3A%C3%A4: 1\r\n\
             type: theirs\r\n\
             %: %\r\n\
             b%3A%C3%A4: \r\n\
             \r\n"
        );
        assert_eq!(rest, format!("{expected}payload\r\n"));
        let (headers, size) = (expected.len(), expected.len() + 7);
        assert_eq!(line, format!("HPUB s r {headers} {size}"));
    }

    #[test]
    fn records_that_no_message_can_hold_are_rejected() {
        let plain = SuiteEvent::new(None, "x".repeat(700));
        let mut order = SuiteEvent::new(None, "");
        order.headers = vec![("nATS-Rollup".to_owned(), Some("all".to_owned()))];
        let mut late = SuiteEvent::new(None, "");
        late.occurred_at = i64::MAX;
        for (event, kind) in [
            (plain, RejectionKind::TooLarge),
            (order, RejectionKind::Invalid),
            (late, RejectionKind::Invalid),
        ] {
            match written(event, 800) {
                Err(Outcome::Rejected(why)) => assert_eq!(why.kind, kind),
                other => panic!("{other:?}"),
            }
        }
    }
}
