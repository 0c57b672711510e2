//! Events of any content on their way into frames.

use std::collections::BTreeMap;

use bolero::check;
use posthaste_engine::{Field, Record};
use posthaste_testkit::fuzz::iterations;

use super::message::{OURS, OutgoingRecord};
use crate::{
    amqp::{
        BODY, FRAME_END, FRAME_OVERHEAD, HEADER, Incoming, METHOD, Message as _, read, write_frame,
    },
    fuzz::AnyEvent,
};

const FRAME_MAX: usize = 4_096;

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 0, 1], &length[..], payload, &[FRAME_END]].concat()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Void,
    Text(String),
    True,
    List(Vec<Value>),
}

/// An AMQP table, read by the protocol's own rules; panics where it breaks them.
struct Table<'a>(&'a [u8]);

impl<'a> Table<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn short(&mut self) -> &'a str {
        let length = usize::from(self.take(1)[0]);
        std::str::from_utf8(self.take(length)).unwrap()
    }

    fn long(&mut self) -> &'a [u8] {
        let length = u32::from_be_bytes(self.take(4).try_into().unwrap());
        self.take(length as usize)
    }

    fn value(&mut self) -> Value {
        match self.take(1)[0] {
            b'V' => Value::Void,
            b'S' => Value::Text(String::from_utf8(self.long().to_vec()).unwrap()),
            b't' if self.take(1) == [1] => Value::True,
            b'A' => {
                let mut list = Table(self.long());
                let mut values = Vec::new();
                while !list.0.is_empty() {
                    values.push(list.value());
                }
                Value::List(values)
            }
            other => panic!("no kind of value: {other}"),
        }
    }

    fn fields(&mut self) -> BTreeMap<String, Value> {
        let mut fields = BTreeMap::new();
        let mut table = Table(self.long());
        while !table.0.is_empty() {
            let name = table.short().to_owned();
            let value = table.value();
            assert_eq!(fields.insert(name.clone(), value), None, "`{name}` twice");
        }
        fields
    }
}

/// A record becomes frames that another reader takes apart into the same record; one that does not
/// fit is refused for a reason that is true.
#[test]
fn fuzz_messages() {
    check!()
        .with_iterations(iterations(300))
        .with_type::<(AnyEvent, bool)>()
        .for_each(|(event, large_frames)| {
            let record = event.record();
            let frame_max = if *large_frames { 131_072 } else { FRAME_MAX };
            let mut out = Vec::new();
            let outgoing = OutgoingRecord {
                slot: 0,
                record: record.clone(),
            };
            if let Err(outcome) = outgoing.write_start(&mut out, "exchange", frame_max) {
                assert!(may_be_refused(&record, frame_max), "{outcome:?}");
                return;
            }
            let payload = record.value().unwrap_or_default();
            let mut at = 0;
            while at < payload.len() {
                at = write_frame(&mut out, payload, at, frame_max);
            }
            let mut frames = frames(&out, frame_max).into_iter();
            let (kind, publish) = frames.next().unwrap();
            let mut publish = Table(publish);
            assert_eq!((kind, publish.take(6)), (METHOD, &[0, 60, 0, 40, 0, 0][..]));
            assert_eq!(publish.short(), "exchange");
            assert_eq!(publish.short(), record.topic());
            assert_eq!(publish.0, [1], "mandatory");
            let (kind, header) = frames.next().unwrap();
            assert_eq!(kind, HEADER);
            check_header(&record, header);
            let bodies: Vec<u8> = frames
                .flat_map(|(kind, body)| {
                    assert_eq!(kind, BODY);
                    body.to_vec()
                })
                .collect();
            assert_eq!(bodies, payload);
        });
}

/// The payloads of the frames, each with its kind; the last ends with the bytes.
fn frames(mut bytes: &[u8], frame_max: usize) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[1..3], [0, 1], "the channel");
        let length = u32::from_be_bytes(bytes[3..7].try_into().unwrap()) as usize;
        assert!(length + FRAME_OVERHEAD <= frame_max);
        assert_eq!(bytes[7 + length], FRAME_END);
        frames.push((bytes[0], &bytes[7..7 + length]));
        bytes = &bytes[length + FRAME_OVERHEAD..];
    }
    frames
}

fn check_header(record: &Record, header: &[u8]) {
    let event = record.event();
    let id = event.id().to_string();
    let size = record.value().map_or(0, <[u8]>::len) as u64;
    let framed = frame(HEADER, header);
    let returned = Incoming::Content {
        message_id: id.clone(),
        size,
    };
    let found = read(&framed, framed.len());
    assert_eq!(found, Ok(Some((returned, framed.len()))));

    let mut header = Table(header);
    assert_eq!(header.take(4), [0, 60, 0, 0]);
    assert_eq!(header.take(8), size.to_be_bytes());
    let flags = u16::from_be_bytes(header.take(2).try_into().unwrap());
    let has = |bit: u32| flags & (1 << bit) != 0;
    let content_type = has(15).then(|| header.short());
    assert_eq!(content_type, event.text(Field::ContentType));
    assert!(has(13) && has(12) && has(7) && flags & 0b0100_1011_0001_1111 == 0);
    assert_eq!(header.fields(), expected_fields(record));
    assert_eq!(header.take(1), [2], "persistent");
    let correlation_id = has(10).then(|| header.short());
    assert_eq!(correlation_id, event.text(Field::CorrelationId));
    assert_eq!(header.short(), id);
    let seconds = event.occurred_at().div_euclid(1_000_000);
    let stated = has(6).then(|| i64::from_be_bytes(header.take(8).try_into().unwrap()));
    assert_eq!(stated, (seconds >= 0).then_some(seconds));
    assert_eq!(has(5).then(|| header.short()), event.text(Field::Type));
    assert!(header.0.is_empty());
}

fn expected_fields(record: &Record) -> BTreeMap<String, Value> {
    let event = record.event();
    let mut time = Vec::new();
    crate::jsonl::write_time(&mut time, event.occurred_at()).unwrap();
    let text = |text: Option<&str>| text.map(|text| Value::Text(text.to_owned()));
    let ours = [
        text(Some(&event.id().to_string())),
        text(event.text(Field::Type)),
        text(event.text(Field::ContentType)),
        text(Some(std::str::from_utf8(&time).unwrap())),
        text(event.text(Field::CorrelationId)),
        text(event.text(Field::CausationId)),
        text(event.text(Field::TenantId)),
        text(event.text(Field::Traceparent)),
        text(event.text(Field::Tracestate)),
        text(event.key()),
        record.value().is_none().then_some(Value::True),
    ];
    let mut own: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, value) in event.headers() {
        let value = text(value).unwrap_or(Value::Void);
        own.entry(name.to_owned()).or_default().push(value);
    }
    let mut fields = BTreeMap::new();
    for (name, value) in OURS.into_iter().zip(ours) {
        match (value, own.remove(name)) {
            (None, None) => {}
            (Some(value), None) => drop(fields.insert(name.to_owned(), value)),
            (value, Some(clashing)) => {
                let first = value.unwrap_or(Value::Void);
                let all = [first].into_iter().chain(clashing).collect();
                fields.insert(name.to_owned(), Value::List(all));
            }
        }
    }
    fields.extend(
        own.into_iter()
            .map(|(name, mut values)| match values.len() {
                1 => (name, values.remove(0)),
                _ => (name, Value::List(values)),
            }),
    );
    fields
}

fn may_be_refused(record: &Record, frame_max: usize) -> bool {
    let event = record.event();
    let shorts = [
        Some(record.topic()),
        event.text(Field::Type),
        event.text(Field::ContentType),
        event.text(Field::CorrelationId),
    ];
    let names = || event.headers().map(|(name, _)| name);
    let too_long = shorts
        .into_iter()
        .flatten()
        .chain(names())
        .any(|text| text.len() > 255);
    let routing = names().any(|name| ["CC", "BCC"].contains(&name));
    let untimely = crate::jsonl::write_time(&mut Vec::new(), event.occurred_at()).is_err();
    // The most that it may take, with a little of our own.
    let held: usize = event
        .headers()
        .map(|(name, value)| name.len() + value.map_or(0, str::len) + 16)
        .sum();
    let too_large = held + 2 * event.footprint() + 512 > frame_max;
    too_long || routing || untimely || too_large
}
