//! The message of a record: its `basic.publish` and its content header.

use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};

use crate::{
    amqp::{ConfirmChannel, FrameWriter, Message, TooLong},
    jsonl,
};

/// Our own headers, in their order. An event's own header of such a name does not hide ours.
pub(super) const OURS: [&str; 11] = [
    "id",
    "type",
    "content-type",
    "occurred-at",
    "correlation-id",
    "causation-id",
    "tenant-id",
    "traceparent",
    "tracestate",
    "key",
    "tombstone",
];

/// Those among them that stand for parts of a record that AMQP has no field for.
const OF_THE_RECORD: [&str; 2] = ["key", "tombstone"];

/// The broker takes the values of these as further routing keys, removes the second, and closes the
/// channel when a value is not a list.
const ROUTING_HEADERS: [&str; 2] = ["CC", "BCC"];

const CONTENT_TYPE: u16 = 1 << 15;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const CORRELATION_ID: u16 = 1 << 10;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const TYPE: u16 = 1 << 5;

const PERSISTENT: u8 = 2;

/// The value of a field of a header table.
#[derive(Debug, Clone, Copy)]
enum FieldValue<'a> {
    Void,
    Text(&'a str),
    Bytes(&'a [u8]),
    True,
}

/// Why no message can hold a record, as its outcome.
struct Unfit(RejectionKind, String);

/// A channel for records.
pub(super) type Channel = ConfirmChannel<OutgoingRecord>;

/// A record on its way to the broker.
pub(super) struct OutgoingRecord {
    /// Its slot among the lane's records.
    pub(super) slot: usize,
    pub(super) record: Record,
}

impl Message for OutgoingRecord {
    type Refusal = Outcome;

    fn write_start(
        &self,
        out: &mut Vec<u8>,
        exchange: &str,
        frame_max: usize,
    ) -> Result<(), Outcome> {
        let written = write_start(out, exchange, &self.record, frame_max);
        written.map_err(|Unfit(kind, reason)| Outcome::rejected(kind, reason))
    }

    fn has_id(&self, id: &str) -> bool {
        self.record.wire_id(&mut wire_id_room()) == id
    }

    fn routing_key(&self) -> &str {
        self.record.topic()
    }

    fn body(&self) -> &[u8] {
        self.record.value().unwrap_or_default()
    }
}

fn write_start(
    out: &mut Vec<u8>,
    exchange: &str,
    record: &Record,
    frame_max: usize,
) -> Result<(), Unfit> {
    FrameWriter::new(out)
        .publish(exchange, record.topic())
        .map_err(|TooLong| too_long("topic, which is the routing key,", record.topic()))?;
    let size = record.value().map_or(0, <[u8]>::len) as u64;
    let mut occurred_at = Vec::with_capacity(27);
    jsonl::write_time(&mut occurred_at, record.timestamp())
        .map_err(|fault| Unfit(RejectionKind::Invalid, fault.to_string()))?;
    let before = out.len();
    write_content_header(out, record, size, &String::from_utf8_lossy(&occurred_at))?;
    let header = out.len() - before;
    if header > frame_max {
        return Err(Unfit(
            RejectionKind::TooLarge,
            format!(
                "headers and attributes of {header} bytes, over the {frame_max} bytes that the \
                 broker takes in one frame (its frame_max)"
            ),
        ));
    }
    Ok(())
}

fn write_content_header(
    out: &mut Vec<u8>,
    record: &Record,
    size: u64,
    occurred_at: &str,
) -> Result<(), Unfit> {
    let content_type = record.attribute(Field::ContentType);
    let correlation_id = record.attribute(Field::CorrelationId);
    let kind = record.attribute(Field::Type);
    // Whole seconds, and none before 1970.
    let timestamp = u64::try_from(record.timestamp().div_euclid(1_000_000)).ok();
    let mut flags = HEADERS | DELIVERY_MODE | MESSAGE_ID;
    for (flag, present) in [
        (CONTENT_TYPE, content_type.is_some()),
        (CORRELATION_ID, correlation_id.is_some()),
        (TIMESTAMP, timestamp.is_some()),
        (TYPE, kind.is_some()),
    ] {
        flags |= if present { flag } else { 0 };
    }
    let mut room = wire_id_room();
    let id = record.wire_id(&mut room);
    FrameWriter::new(out).content_header(size, flags, |w| {
        let short = |w: &mut FrameWriter<'_>, name: &str, text: &str| {
            w.short(text).map_err(|TooLong| too_long(name, text))
        };
        if let Some(text) = content_type {
            short(w, "content_type", text)?;
        }
        write_headers(w, record, id, occurred_at)?;
        w.u8(PERSISTENT);
        if let Some(text) = correlation_id {
            short(w, "correlation_id", text)?;
        }
        short(w, "id", id)?;
        if let Some(seconds) = timestamp {
            w.u64(seconds);
        }
        if let Some(text) = kind {
            short(w, "type", text)?;
        }
        Ok(())
    })
}

/// A table has no order and holds a name once. A name that the event repeats becomes the list of
/// its values; a name of ours that the event has too becomes a list that begins with ours, void
/// when the event has none of that, so that nobody takes the one for the other.
fn write_headers(
    w: &mut FrameWriter<'_>,
    record: &Record,
    id: &str,
    occurred_at: &str,
) -> Result<(), Unfit> {
    let mut own: Vec<(&str, Option<&str>)> = record.own_headers().collect();
    // Stable: the values of one name keep their order.
    own.sort_by_key(|(name, _)| *name);
    if let Some(name) = ROUTING_HEADERS
        .iter()
        .find(|name| own.binary_search_by_key(*name, |(own, _)| own).is_ok())
    {
        return Err(Unfit(
            RejectionKind::Invalid,
            format!("it has a header `{name}`, which RabbitMQ takes for further routing keys"),
        ));
    }
    let text = |text| Option::map(text, FieldValue::Text);
    let is_given = record.has_given_headers();
    // Where headers are given, ours are those alone that stand for parts of the record.
    let is_ours = |name: &str| match is_given {
        true => OF_THE_RECORD.contains(&name),
        false => OURS.contains(&name),
    };
    let ours = [
        text((!is_given).then_some(id)),
        text(record.attribute(Field::Type)),
        text(record.attribute(Field::ContentType)),
        text((!is_given).then_some(occurred_at)),
        text(record.attribute(Field::CorrelationId)),
        text(record.attribute(Field::CausationId)),
        text(record.attribute(Field::TenantId)),
        text(record.attribute(Field::Traceparent)),
        text(record.attribute(Field::Tracestate)),
        record.key().map(key),
        record.value().is_none().then_some(FieldValue::True),
    ];
    let mut too_long_name = None;
    let written = w.try_table(|w| {
        for (name, value) in OURS.into_iter().zip(ours).filter(|(name, _)| is_ours(name)) {
            let from = own.partition_point(|(own, _)| *own < name);
            let clashing = own[from..].chunk_by(|a, b| a.0 == b.0).next();
            let clashing = clashing.filter(|group| group[0].0 == name);
            match (value, clashing) {
                (None, None) => {}
                (Some(value), None) => write_field(w, name, value)?,
                (value, Some(group)) => {
                    let first = value.unwrap_or(FieldValue::Void);
                    write_list(w, name, Some(first), group)?;
                }
            }
        }
        for group in own.chunk_by(|a, b| a.0 == b.0) {
            let (name, value) = group[0];
            if is_ours(name) {
                continue;
            }
            let written = match group.len() {
                1 => write_field(w, name, value.map_or(FieldValue::Void, FieldValue::Text)),
                _ => write_list(w, name, None, group),
            };
            written.inspect_err(|TooLong| too_long_name = Some(name))?;
        }
        Ok(())
    });
    written.map_err(|TooLong| too_long("a header's name", too_long_name.unwrap_or_default()))
}

fn write_field(w: &mut FrameWriter<'_>, name: &str, value: FieldValue<'_>) -> Result<(), TooLong> {
    w.short(name)?;
    write_value(w, value);
    Ok(())
}

fn write_list(
    w: &mut FrameWriter<'_>,
    name: &str,
    first: Option<FieldValue<'_>>,
    rest: &[(&str, Option<&str>)],
) -> Result<(), TooLong> {
    w.short(name)?;
    w.u8(b'A');
    w.table(|w| {
        let rest = rest
            .iter()
            .map(|(_, value)| value.map_or(FieldValue::Void, FieldValue::Text));
        for value in first.into_iter().chain(rest) {
            write_value(w, value);
        }
    });
    Ok(())
}

fn write_value(w: &mut FrameWriter<'_>, value: FieldValue<'_>) {
    match value {
        FieldValue::Void => w.u8(b'V'),
        FieldValue::Text(text) => {
            w.u8(b'S');
            w.long(&[text.as_bytes()]);
        }
        FieldValue::Bytes(bytes) => {
            w.u8(b'x');
            w.long(&[bytes]);
        }
        FieldValue::True => {
            w.u8(b't');
            w.u8(1);
        }
    }
}

fn key(key: &[u8]) -> FieldValue<'_> {
    match std::str::from_utf8(key) {
        Ok(text) => FieldValue::Text(text),
        Err(_) => FieldValue::Bytes(key),
    }
}

fn too_long(what: &str, text: &str) -> Unfit {
    let size = text.len();
    Unfit(
        RejectionKind::Invalid,
        format!("{what} has {size} bytes, AMQP 0-9-1 takes 255"),
    )
}
