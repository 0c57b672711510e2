//! Bytes from outside: the progress topic's records; and events of any content on their way to
//! Kafka.

use std::collections::{BTreeMap, BTreeSet};

use bolero::{TypeGenerator, check};
use posthaste_engine::{EventRef, LaneScope, Partitions};
use posthaste_testkit::fuzz::{iterations, spelled};
use rdkafka::message::Headers as _;
use uuid::Uuid;

use super::{
    super::message,
    progress::{Keys, Progress},
};
use crate::fuzz::AnyEvent;

fn scope(count: u16) -> LaneScope {
    LaneScope {
        store_id: Uuid::nil(),
        destination: "orders".to_owned(),
        destination_id: 12,
        registration: Uuid::nil(),
        partitions: Partitions::all_of(count).unwrap(),
        former: Vec::new(),
    }
}

const KEY_WORDS: &[&str] = &[
    "00000000-0000-0000-0000-000000000000/12/",
    "/",
    "-",
    "+",
    "0",
    "16383",
    "65536",
    "4096-8191",
    "ü",
];

/// A key is taken for ours only if it is the very key that we would write.
#[test]
fn fuzz_progress_keys() {
    check!()
        .with_iterations(iterations(1_000))
        .with_max_len(12)
        .for_each(|input: &[u8]| {
            let keys = Keys::of(&scope(4));
            assert!(keys.slots(input).is_none());
            let key = format!("{}{}", keys.prefix(), spelled(input, KEY_WORDS));
            if let Some(slots) = keys.slots(key.as_bytes()) {
                let written = format!("{}{}-{}", keys.prefix(), slots.start(), slots.end());
                assert_eq!(written, key);
            }
        });
}

/// A value is taken whole or refused, and what is taken is written again.
#[test]
fn fuzz_progress_values() {
    check!()
        .with_iterations(iterations(1_000))
        .with_max_len(100)
        .for_each(|input: &[u8]| {
            for value in [
                input.to_vec(),
                [&[1], input].concat(),
                [&[2], input].concat(),
            ] {
                let mut progress = Progress::new(&scope(1));
                let size = match value.first() {
                    Some(1) => 16,
                    Some(2) => 24,
                    _ => 0,
                };
                let ours = size > 0 && value.len() % size == 1;
                match progress.learn(&(0..=16_383), &value) {
                    Ok(()) => {
                        assert!(ours);
                        let (_, written) = progress.record(0, &[]);
                        let of_ids = i64::MIN.to_be_bytes();
                        let events = value[1..].chunks(size);
                        let events: BTreeSet<_> = events
                            .map(|event| [event, &of_ids[..24 - size]].concat())
                            .collect();
                        let found: BTreeSet<_> =
                            written[1..].chunks(24).map(<[u8]>::to_vec).collect();
                        assert_eq!(found, events);
                    }
                    Err(reason) => assert!(!ours && !reason.is_empty()),
                }
            }
        });
}

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    Submit { slot: u16, id: u8, seq: bool },
    Stored { tickets: u8 },
    HandOver { partitions: u8 },
    CaughtUp,
}

/// A suppressed event was accepted before, by any owner of its partition; and everything accepted
/// is suppressed until the store has it behind it, or nobody who took over has asked for it.
#[test]
fn fuzz_progress_histories() {
    check!()
        .with_iterations(iterations(400))
        .with_type::<Vec<Step>>()
        .for_each(|steps| {
            let mut progress = Progress::new(&scope(4));
            let mut count = 4;
            // Slots of the events that were ever accepted.
            let mut accepted: BTreeMap<EventRef, u16> = BTreeMap::new();
            // Those that must be known, each with the ticket that stands for it on this lane.
            let mut held: BTreeMap<EventRef, Option<u64>> = BTreeMap::new();
            let (mut ticket, mut behind) = (0, 0);
            for step in steps {
                match step {
                    Step::Submit { slot, id, seq } => {
                        let event = EventRef {
                            seq: i64::from(*seq),
                            id: Uuid::from_u128(u128::from(*id % 16)),
                        };
                        let known = accepted.contains_key(&event);
                        let slot = *accepted.entry(event).or_insert(slot % 16_384);
                        let partition = progress.partition_of(slot);
                        let suppressed = progress.suppresses(partition, event, ticket);
                        assert!(!suppressed || known, "{event:?} was never accepted");
                        assert!(
                            suppressed || !held.contains_key(&event),
                            "{event:?} is repeated"
                        );
                        if !suppressed {
                            progress.accepted(partition, event, ticket);
                        }
                        held.insert(event, Some(ticket));
                        ticket += 1;
                    }
                    Step::Stored { tickets } => {
                        let to = (behind + u64::from(*tickets % 8)).min(ticket);
                        progress.stored(behind..to);
                        held.retain(|_, own| own.is_none_or(|own| own >= to));
                        behind = to;
                    }
                    Step::HandOver { partitions } => {
                        let records: Vec<_> = (0..count)
                            .map(|partition| progress.record(partition, &[]))
                            .collect();
                        count = 1 << (partitions % 5);
                        let next = scope(count);
                        progress = Progress::new(&next);
                        for (key, value) in records {
                            let slots = Keys::of(&next).slots(key.as_bytes()).unwrap();
                            progress.learn(&slots, &value).unwrap();
                        }
                        held.values_mut().for_each(|own| *own = None);
                    }
                    Step::CaughtUp => {
                        progress.caught_up();
                        held.retain(|_, own| own.is_some());
                    }
                }
            }
        });
}

/// A message holds the record byte for byte, and is in a batch no larger than we count it.
#[test]
fn fuzz_messages() {
    check!()
        .with_iterations(iterations(400))
        .with_type::<AnyEvent>()
        .for_each(|event| {
            let record = event.record();
            let message = message::message(&record, 3, 7);
            assert_eq!(message.is_err(), message::refusal(&record).is_some());
            let Ok(message) = message else {
                return;
            };
            assert_eq!((message.topic, message.key), (record.topic(), record.key()));
            assert_eq!(message.payload, record.value());
            let headers = message.headers.unwrap();
            let mut found = headers.iter().map(|header| (header.key, header.value));
            assert_eq!(found.next().unwrap().0, "id");
            assert_eq!(found.next().unwrap().0, "occurred-at");
            let own = record.headers();
            assert!(found.eq(own.map(|(name, value)| (name, value.map(str::as_bytes)))));
            // Attributes, differences of time and offset, and the lengths of all that may be there.
            let varint = |number: usize| {
                1 + number
                    .checked_ilog2()
                    .map_or(0, |bits| (bits as usize + 1) / 7)
            };
            let text = |len: Option<usize>| len.map_or(1, |len| varint(len) + len);
            let headers: usize = headers
                .iter()
                .map(|header| text(Some(header.key.len())) + text(header.value.map(<[u8]>::len)))
                .sum();
            let body = text(message.key.map(<[u8]>::len))
                + text(message.payload.map(<[u8]>::len))
                + headers;
            let record_bytes = 5 + 1 + 10 + 5 + 5 + body;
            assert!(record_bytes <= message::bytes(&record), "{record_bytes}");
        });
}
