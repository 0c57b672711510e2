//! A record as a message of the client library.

use posthaste_engine::{Outcome, Record, RejectionKind, wire_id_room};
use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
};

use crate::jsonl::{Unwritable, write_time};

/// Bytes that the protocol adds to a record and to each header, at most.
const RECORD_OVERHEAD: usize = 64;
const HEADER_OVERHEAD: usize = 10;
/// Our own two headers beside the id: their names, and a time as text.
const OWN_HEADERS: usize = 64;

/// About how many bytes the record has in a batch, never fewer than it really has.
pub(super) fn bytes(record: &Record) -> usize {
    let headers: usize = record
        .headers()
        .map(|(name, value)| name.len() + value.map_or(0, str::len) + HEADER_OVERHEAD)
        .sum();
    record.key().map_or(0, <[u8]>::len)
        + record.value().map_or(0, <[u8]>::len)
        + headers
        + RECORD_OVERHEAD
        + OWN_HEADERS
        + record.wire_id_len()
}

/// Why Kafka cannot hold the event; then [`message`] refuses it too.
pub(super) fn refusal(record: &Record) -> Option<Outcome> {
    let occurred_at = record.timestamp();
    let checked = timestamp(occurred_at).and_then(|_| time(occurred_at));
    checked.err()
}

/// The message for a partition; `at` comes back with its delivery report.
///
/// # Errors
/// The rejection of an event that Kafka cannot hold.
pub(super) fn message(
    record: &Record,
    partition: i32,
    at: usize,
) -> Result<BaseRecord<'_, [u8], [u8], usize>, Outcome> {
    Ok(BaseRecord {
        topic: record.topic(),
        partition: Some(partition),
        payload: record.value(),
        key: record.key(),
        timestamp: Some(timestamp(record.timestamp())?),
        headers: Some(headers(record)?),
        delivery_opaque: at,
    })
}

/// Milliseconds since 1970. The client takes 0 for "now", so the very first millisecond is sent as
/// the second.
fn timestamp(occurred_at: i64) -> Result<i64, Outcome> {
    let millis = occurred_at.div_euclid(1_000);
    if millis < 0 {
        return Err(Outcome::rejected(
            RejectionKind::Invalid,
            format!(
                "occurred_at is {occurred_at} microseconds since 1970, and Kafka's timestamps \
                 begin in 1970: emit the event again with a later one"
            ),
        ));
    }
    Ok(millis.max(1))
}

fn time(occurred_at: i64) -> Result<Vec<u8>, Outcome> {
    let mut time = Vec::with_capacity(27);
    write_time(&mut time, occurred_at).map_err(
        |fault @ (Unwritable::OccurredAt(_) | Unwritable::Memory(_))| {
            Outcome::rejected(RejectionKind::Invalid, fault.to_string())
        },
    )?;
    Ok(time)
}

fn headers(record: &Record) -> Result<OwnedHeaders, Outcome> {
    let mut own = OwnedHeaders::new_with_capacity(8);
    let time = time(record.timestamp())?;
    if !record.has_given_headers() {
        let mut room = wire_id_room();
        let id = record.wire_id(&mut room).as_bytes();
        own = own
            .insert(header("id", Some(id)))
            .insert(header("occurred-at", Some(&time)));
    }
    Ok(record.headers().fold(own, |headers, (name, value)| {
        headers.insert(header(name, value.map(str::as_bytes)))
    }))
}

fn header<'a>(key: &'a str, value: Option<&'a [u8]>) -> Header<'a, &'a [u8]> {
    Header { key, value }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};
    use rdkafka::message::Headers as _;

    use super::*;

    #[test]
    fn our_headers_stand_in_front_and_absent_values_stay_absent() {
        let mut event = SuiteEvent::new(Some("k"), "v");
        event.kind = Some("y".to_owned());
        event.headers = vec![
            ("b".to_owned(), None),
            ("a".to_owned(), Some(String::new())),
            ("b".to_owned(), Some("1".to_owned())),
        ];
        let record = records(std::slice::from_ref(&event), 0).remove(0);
        let message = message(&record, 3, 7).unwrap();
        let id = event.id.to_string();
        let found = message.headers.unwrap();
        let found: Vec<_> = (0..found.count())
            .map(|at| found.get(at))
            .map(|header| (header.key, header.value))
            .collect();
        let expected: [(&str, Option<&[u8]>); 6] = [
            ("id", Some(id.as_bytes())),
            ("occurred-at", Some(b"2023-11-14T22:13:20.123456Z")),
            ("type", Some(b"y")),
            ("b", None),
            ("a", Some(b"")),
            ("b", Some(b"1")),
        ];
        assert_eq!(found, expected);
        assert_eq!(message.timestamp, Some(1_700_000_000_123));
        assert_eq!((message.partition, message.delivery_opaque), (Some(3), 7));
    }

    #[test]
    fn times_that_kafka_cannot_hold_are_rejected() {
        for (micros, expected) in [
            (-1, None),
            (i64::MAX, None),
            (0, Some(1)),
            (999, Some(1)),
            (2_000, Some(2)),
        ] {
            let mut event = SuiteEvent::new(None, "v");
            event.occurred_at = micros;
            let record = records(&[event], 0).remove(0);
            assert_eq!(refusal(&record).is_some(), expected.is_none(), "{micros}");
            match (message(&record, 0, 0), expected) {
                (Ok(message), expected) => assert_eq!(message.timestamp, expected, "{micros}"),
                (Err(Outcome::Rejected(why)), None) => {
                    assert_eq!(why.kind, RejectionKind::Invalid);
                }
                (Err(other), _) => panic!("{micros}: {other:?}"),
            }
        }
    }
}
