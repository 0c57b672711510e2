//! Bytes from outside: words of a server, and events of any content on their way into messages.

use bolero::check;
use posthaste_engine::Outcome;
use posthaste_testkit::fuzz::iterations;

use super::{
    message::{self, Envelope},
    wire::{self, Incoming},
};
use crate::fuzz::AnyEvent;

/// Bytes of any kind are read alike however they are cut, and the result is no larger than they.
#[test]
fn fuzz_server_words() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(80)
        .for_each(|input: &[u8]| {
            for start in ["", "INFO ", "-ERR ", "MSG a 1 ", "HMSG a 1 "] {
                read_in_pieces(&[start.as_bytes(), input].concat());
            }
        });
}

fn read_in_pieces(input: &[u8]) {
    let whole = wire::read(input);
    if let Ok(Some((incoming, length))) = &whole {
        assert!((1..=input.len()).contains(length));
        if let Incoming::Message(message) = incoming {
            assert!(message.subject.len() + message.payload.len() < *length);
        }
    }
    for end in 1..input.len() {
        match (wire::read(&input[..end]), &whole) {
            (Ok(None), _) => {}
            (early, whole) => assert_eq!(&early, whole, "after {end} of {input:?}"),
        }
    }
}

/// A message is one command whatever the event holds: its headers are lines, and its lengths are
/// right.
#[test]
fn fuzz_messages() {
    check!()
        .with_iterations(iterations(500))
        .with_type::<AnyEvent>()
        .for_each(|event| {
            let record = event.record();
            let mut out = b"before".to_vec();
            let envelope = Envelope {
                subject: "subject",
                reply: "reply",
                stream: None,
                bytes_max: 1 << 20,
            };
            if let Err(outcome) = message::write(&mut out, &record, &envelope) {
                assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
                assert_eq!(out, b"before");
                return;
            }
            let out = out.strip_prefix(b"before").unwrap();
            let line = out.split(|&byte| byte == b'\r').next().unwrap();
            let words: Vec<_> = std::str::from_utf8(line).unwrap().split(' ').collect();
            let [header, total] = [words[3], words[4]].map(|word| word.parse::<usize>().unwrap());
            let rest = &out[line.len() + 2..];
            assert_eq!(rest.len(), total + 2);
            assert_eq!(&rest[header..total], record.value().unwrap_or_default());
            let headers = std::str::from_utf8(&rest[..header]).unwrap();
            let lines = headers.strip_suffix("\r\n\r\n").unwrap().split("\r\n");
            let own = record.event().headers().count();
            assert!(lines.clone().count() > 3 + own);
            for line in lines.skip(1) {
                let (name, value) = line.split_once(": ").unwrap();
                assert!(!name.is_empty() && !name.contains(char::is_whitespace));
                assert!(!value.contains(|c: char| c.is_ascii_control()));
            }
        });
}
