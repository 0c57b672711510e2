//! Bytes from outside: answers of a server, and events of any content on their way into messages.

use bolero::check;
use hyper::{HeaderMap, header::HeaderValue};
use posthaste_engine::Outcome;
use posthaste_testkit::fuzz::iterations;
use prost::Message as _;

use super::{
    CALL, MESSAGE_BYTES_MAX,
    message::Message,
    status::{Status, unframe},
    wire::{PublishResponse, PubsubMessage, Topic},
};
use crate::{
    fuzz::AnyEvent,
    requests::{
        place_name::{NamePattern, NameRule},
        target::{Encoded as _, Target},
    },
};

/// An answer of any bytes is one, or none; and its words are one short line.
#[test]
fn fuzz_answers() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(80)
        .for_each(|input: &[u8]| {
            let _ = unframe::<PublishResponse>(input);
            let length = u8::try_from(input.len()).unwrap();
            let framed = [&[0, 0, 0, 0, length], input].concat();
            if let Some(answer) = unframe::<PublishResponse>(&framed) {
                let bytes: usize = answer.message_ids.iter().map(String::len).sum();
                assert!(bytes < framed.len());
            }
            let _ = unframe::<Topic>(&framed);
            let mut headers = HeaderMap::new();
            if let Ok(words) = HeaderValue::from_bytes(input) {
                headers.insert("grpc-status", HeaderValue::from_static("5"));
                headers.insert("grpc-message", words.clone());
                let reason = Status::of(&headers).unwrap().refusal().reason;
                assert!(!reason.contains(|c: char| c.is_control()), "{reason:?}");
                headers.insert("grpc-status", words);
                let _ = Status::of(&headers);
            }
        });
}

/// A message keeps to the limits of Pub/Sub whatever the event holds.
#[test]
fn fuzz_messages() {
    let target = Target {
        kind: "topic",
        names: NamePattern::new("{topic}", 255, NameRule::PubSub).unwrap(),
        event_bytes_max: None,
        message_bytes_max: MESSAGE_BYTES_MAX,
        call: CALL,
    };
    check!()
        .with_iterations(iterations(500))
        .with_type::<AnyEvent>()
        .for_each(|event| {
            let record = event.record();
            let message = match Message::encode(&record, &target) {
                Ok(message) => message,
                Err(outcome) => {
                    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
                    return;
                }
            };
            let found = PubsubMessage::decode(message.encoded).unwrap();
            assert_eq!(&*found.data, record.value().unwrap_or_default());
            assert!(found.ordering_key.len() <= 1_024);
            assert!((1..=100).contains(&found.attributes.len()));
            let mut names: Vec<_> = found.attributes.iter().map(|a| &*a.name).collect();
            for attribute in &found.attributes {
                assert!((1..=256).contains(&attribute.name.len()));
                assert!(attribute.value.len() <= 1_024);
                let name = attribute.name.to_ascii_lowercase();
                assert!(!name.starts_with("goog"), "{name}");
            }
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), found.attributes.len());
        });
}
