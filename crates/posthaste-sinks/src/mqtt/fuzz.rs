//! Bytes from outside: packets of a broker, and events of any content on their way into messages.

use bolero::check;
use posthaste_engine::Outcome;
use posthaste_testkit::fuzz::iterations;

use super::{
    client::{Incoming, Publish, Qos, Version, publish, read},
    message::{Content, Format},
    topic::is_refused,
};
use crate::fuzz::AnyEvent;

/// Bytes of any kind are read alike however they are cut, and the result is no larger than they.
#[test]
fn fuzz_packets_of_a_broker() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(80)
        .for_each(|input: &[u8]| {
            for version in [Version::V3, Version::V5] {
                for first in [0x20, 0x40, 0x50, 0x70, 0xD0, 0xE0, 0xF0] {
                    // With a length that is right, and with whatever comes.
                    let length = u8::try_from(input.len()).unwrap();
                    read_in_pieces(&[&[first, length], input].concat(), version);
                    read_in_pieces(&[&[first], input].concat(), version);
                }
                read_in_pieces(input, version);
            }
        });
}

fn read_in_pieces(input: &[u8], version: Version) {
    let whole = read(input, version);
    if let Ok(Some((incoming, length))) = &whole {
        assert!((1..=input.len()).contains(length));
        let reason = match incoming {
            Incoming::Connected(ack) => &ack.reason,
            Incoming::Answer { reason, .. } | Incoming::Disconnect(reason) => reason,
            Incoming::Pong | Incoming::Auth => return,
        };
        let words = [&reason.words, &reason.server];
        let words: usize = words.into_iter().flatten().map(String::len).sum();
        assert!(words < *length);
    }
    for end in 1..input.len() {
        match (read(&input[..end], version), &whole) {
            (Ok(None), _) => {}
            (early, whole) => assert_eq!(&early, whole, "after {end} of {input:?}"),
        }
    }
}

/// A message is one packet whatever the event holds: its lengths are right, and its properties have
/// no character at which a broker may end the connection.
#[test]
fn fuzz_messages() {
    check!()
        .with_iterations(iterations(500))
        .with_type::<AnyEvent>()
        .for_each(|event| {
            let record = event.record();
            let content = match Content::of(&record, &Format::Raw) {
                Ok(content) => content,
                Err(outcome) => {
                    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
                    return;
                }
            };
            let mut out = b"before".to_vec();
            let message = Publish {
                version: Version::V5,
                id: 7,
                qos: Qos::AtLeastOnce,
                retain: false,
                topic: "topic",
                properties: &content.properties,
                payload: &content.payload,
            };
            publish(&mut out, &message).unwrap();
            let out = out.strip_prefix(b"before\x32").unwrap();
            let (length, body) = variable(out);
            assert_eq!(length, body.len());
            let body = body.strip_prefix(b"\0\x05topic\0\x07").unwrap();
            let (length, rest) = variable(body);
            let (mut properties, payload) = rest.split_at(length);
            assert_eq!(payload, record.value().unwrap_or_default());
            let mut count = 0;
            while let Some((id, rest)) = properties.split_first() {
                properties = rest;
                let parts = if *id == 0x26 { 2 } else { 1 };
                for _ in 0..parts {
                    let length = u16::from_be_bytes([properties[0], properties[1]]);
                    let (text, rest) = properties[2..].split_at(length.into());
                    properties = rest;
                    let text = std::str::from_utf8(text).unwrap();
                    // Correlation data is bytes.
                    assert!(*id == 0x09 || !text.contains(is_refused), "{text:?}");
                }
                count += 1;
            }
            assert!(count >= 2 + record.event().headers().count());
        });
}

fn variable(bytes: &[u8]) -> (usize, &[u8]) {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    let low_first = bytes[..=end].iter().rev();
    let number = low_first.fold(0, |number, byte| number << 7 | usize::from(byte & 0x7F));
    (number, &bytes[end + 1..])
}
