//! Bytes from outside: frames of a broker, or of something that is none.

use bolero::check;
use posthaste_testkit::fuzz::iterations;

use super::wire::{self, FRAME_END, FRAME_OVERHEAD, HEADER, Incoming, METHOD};

const FRAME_MAX: usize = 4_096;

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 0, 1], &length[..], payload, &[FRAME_END]].concat()
}

/// Class and number of every method that a broker may say, and one that none says.
const METHODS: [[u8; 4]; 16] = [
    [0, 10, 0, 10],
    [0, 10, 0, 30],
    [0, 10, 0, 41],
    [0, 10, 0, 50],
    [0, 10, 0, 51],
    [0, 10, 0, 60],
    [0, 10, 0, 61],
    [0, 20, 0, 11],
    [0, 20, 0, 40],
    [0, 40, 0, 11],
    [0, 85, 0, 11],
    [0, 60, 0, 50],
    [0, 60, 0, 80],
    [0, 60, 0, 120],
    [0, 60, 0, 60],
    [0, 99, 0, 1],
];

/// Bytes of any kind are read alike however they are cut, and the result is no larger than they.
#[test]
fn fuzz_frames() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(80)
        .for_each(|input: &[u8]| {
            read_in_pieces(input);
            let Some((&choice, rest)) = input.split_first() else {
                return;
            };
            let method = METHODS[usize::from(choice) % METHODS.len()];
            read_in_pieces(&frame(METHOD, &[&method, rest].concat()));
            read_in_pieces(&frame(HEADER, rest));
            read_in_pieces(&frame(choice, rest));
        });
}

fn read_in_pieces(input: &[u8]) {
    let whole = wire::read(input, FRAME_MAX);
    if let Ok(Some((incoming, length))) = &whole {
        assert!((FRAME_OVERHEAD..=input.len()).contains(length));
        // A byte that is no UTF-8 becomes U+FFFD, of three.
        let held = match incoming {
            Incoming::Start { mechanisms: text }
            | Incoming::ConnectionClose { text, .. }
            | Incoming::Blocked { reason: text }
            | Incoming::ChannelClose { text, .. }
            | Incoming::Content {
                message_id: text, ..
            } => text.len(),
            Incoming::Return {
                text, routing_key, ..
            } => text.len() + routing_key.len(),
            _ => 0,
        };
        assert!(
            held <= 3 * input.len(),
            "{held} bytes out of {}",
            input.len()
        );
    }
    for end in 0..input.len() {
        match (wire::read(&input[..end], FRAME_MAX), &whole) {
            (Ok(None), _) => {}
            (early, whole) => assert_eq!(&early, whole, "after {end} of {input:?}"),
        }
    }
    let longer = [input, &[METHOD]].concat();
    if !matches!(whole, Ok(None)) {
        assert_eq!(wire::read(&longer, FRAME_MAX), whole, "{input:?}");
    }
}

/// Every method of a broker is understood as it is meant.
#[test]
fn fuzz_methods() {
    check!()
        .with_iterations(iterations(1_000))
        .with_type::<(u16, u32, u64, bool, String)>()
        .for_each(|(code, size, tag, multiple, text)| {
            let (code, size, tag, multiple) = (*code, *size, *tag, *multiple);
            let text: String = text.chars().take(60).collect();
            let short = [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            let length = u32::try_from(text.len()).unwrap().to_be_bytes();
            let long = [&length[..], text.as_bytes()].concat();
            let code_and_text = [&code.to_be_bytes()[..], &short, &[0, 0, 0, 0]].concat();
            let returned = [&code.to_be_bytes()[..], &short, &[1, b'x'], &short].concat();
            let mark = [&tag.to_be_bytes()[..], &[u8::from(multiple)]].concat();
            let tune = [&[0, 9][..], &size.to_be_bytes(), &code.to_be_bytes()].concat();
            for (method, arguments, meant) in [
                (
                    METHODS[0],
                    [&[0, 9, 0, 0, 0, 2, 1, b'x'][..], &long, &long].concat(),
                    Incoming::Start {
                        mechanisms: text.clone(),
                    },
                ),
                (
                    METHODS[1],
                    tune,
                    Incoming::Tune {
                        frame_max: size,
                        heartbeat: code,
                    },
                ),
                (
                    METHODS[3],
                    code_and_text.clone(),
                    Incoming::ConnectionClose {
                        code,
                        text: text.clone(),
                    },
                ),
                (
                    METHODS[5],
                    short.clone(),
                    Incoming::Blocked {
                        reason: text.clone(),
                    },
                ),
                (
                    METHODS[8],
                    code_and_text,
                    Incoming::ChannelClose {
                        code,
                        text: text.clone(),
                    },
                ),
                (
                    METHODS[11],
                    returned,
                    Incoming::Return {
                        code,
                        routing_key: text.clone(),
                        text,
                    },
                ),
                (METHODS[12], mark.clone(), Incoming::Ack { tag, multiple }),
                (METHODS[13], mark, Incoming::Nack { tag, multiple }),
            ] {
                let bytes = frame(METHOD, &[&method, &arguments[..]].concat());
                assert_eq!(
                    wire::read(&bytes, FRAME_MAX),
                    Ok(Some((meant, bytes.len())))
                );
            }
        });
}
