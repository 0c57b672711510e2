//! Bytes from outside: events of any content on their way into entries, and patterns of streams.

use bolero::check;
use posthaste_engine::{Outcome, wire_id_room};
use posthaste_testkit::fuzz::{iterations, spelled, words};

use super::{entry::Entry, stream_name::StreamPattern};
use crate::fuzz::AnyEvent;

/// An entry is pairs of words whatever the event holds, and has key and value byte for byte.
#[test]
fn fuzz_entries() {
    check!()
        .with_iterations(iterations(500))
        .with_type::<AnyEvent>()
        .for_each(|event| {
            let record = event.record();
            let entry = match Entry::of(&record) {
                Ok(entry) => entry,
                Err(outcome) => {
                    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
                    return;
                }
            };
            let mut command = ::redis::Cmd::new();
            entry.write(&mut command);
            let words: Vec<&[u8]> = command
                .args_iter()
                .map(|arg| match arg {
                    ::redis::Arg::Simple(word) => word,
                    _ => panic!("a cursor"),
                })
                .collect();
            let [id, count, fields @ ..] = &words[..] else {
                panic!("{words:?}");
            };
            assert_eq!(*id, record.dedup_id(&mut wire_id_room()).as_bytes());
            assert_eq!(*count, fields.len().to_string().as_bytes());
            let (pairs, rest) = fields.as_chunks::<2>();
            assert!(rest.is_empty());
            let value = |name: &str| {
                let found = pairs.iter().find(|[found, _]| *found == name.as_bytes());
                found.map(|[_, value]| *value)
            };
            assert_eq!(value("key"), record.key());
            assert_eq!(value("payload"), record.value());
            assert_eq!(value("topic"), Some(record.topic().as_bytes()));
        });
}

/// A pattern is refused, or makes streams that have the topic in them as often as it says.
#[test]
fn fuzz_patterns() {
    let words = words("{topic}|{{|}}|{|}|posthaste:");
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(40)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words);
            let Ok(pattern) = StreamPattern::new(&text) else {
                return;
            };
            // Letters that no pattern here has.
            let [stream, other] = ["ä", "ü"].map(|topic| pattern.stream(topic).unwrap());
            assert_eq!(stream == other, pattern.only_stream().is_some(), "{text}");
            assert_eq!(stream.replace('ä', "ü"), other, "{text}");
            if let Some(tag) = pattern.hash_tag() {
                assert_eq!([hashed(&stream), hashed(&other)], [tag, tag], "{text}");
            }
        });
}

/// The part of a key by which a cluster chooses its slot.
fn hashed(key: &str) -> &str {
    let behind = key.split_once('{').map(|(_, behind)| behind);
    match behind.and_then(|behind| behind.split_once('}')) {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    }
}
