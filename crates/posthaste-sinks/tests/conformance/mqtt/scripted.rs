//! Answers that no broker here gives, and others may: the packets stand in these tests.

use std::{
    io::{BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Outcome, Sink};
use posthaste_sinks::open;
use posthaste_testkit::sink_suite::lane_spec;

use super::{
    place::{cause, put_off, rejection},
    trial,
};
use crate::driving::{accepted, impatient_lane, lane, plain, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_silent_message_is_put_off_alone",
            a_silent_message_is_put_off_alone,
        ),
        trial(
            "a_message_of_qos_2_has_two_halves",
            a_message_of_qos_2_has_two_halves,
        ),
        trial(
            "refusals_are_of_their_message",
            refusals_are_of_their_message,
        ),
        trial("a_broker_says_why_it_ends", a_broker_says_why_it_ends),
        trial(
            "large_silent_messages_hold_up_no_others",
            large_silent_messages_hold_up_no_others,
        ),
        trial(
            "a_broker_that_kept_a_session_gets_nothing",
            a_broker_that_kept_a_session_gets_nothing,
        ),
    ]
}

/// The packets that answer a message, by its place and its packet id; and those that answer its
/// second half. None: the broker hangs up.
#[derive(Clone, Copy)]
struct Script {
    message: fn(usize, u8) -> Option<Vec<u8>>,
    second_half: fn(u8) -> Option<Vec<u8>>,
}

const NO_SECOND_HALF: fn(u8) -> Option<Vec<u8>> = |_| None;

/// A sink whose broker answers one connection so. Packet ids stay below 256.
fn scripted(script: Script, options: &str) -> Arc<dyn Sink> {
    scripted_from(b"\x20\x03\0\0\0", script, options)
}

/// The same with this answer to the connection.
fn scripted_from(connected: &'static [u8], script: Script, options: &str) -> Arc<dyn Sink> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut answers = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        let mut messages = 0;
        // Until the sink hangs up.
        while let Some((kind, body)) = packet(&mut stream) {
            let answer = match kind & 0xF0 {
                0x10 => Some(connected.to_vec()),
                0x30 => {
                    let topic = usize::from(body[1]);
                    messages += 1;
                    (script.message)(messages - 1, body[topic + 3])
                }
                0x60 => (script.second_half)(body[1]),
                0xC0 => Some(b"\xD0\0".to_vec()),
                _ => None,
            };
            let Some(answer) = answer else {
                return;
            };
            answers.write_all(&answer).unwrap();
        }
    });
    open(&format!("mqtt://127.0.0.1:{port}?{options}")).unwrap()
}

fn packet(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    let kind = byte[0];
    let mut length = 0;
    for shift in [0, 7, 14, 21] {
        stream.read_exact(&mut byte).ok()?;
        length |= usize::from(byte[0] & 0x7F) << shift;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((kind, body))
}

#[allow(clippy::unnecessary_wraps)] // As a script has it.
fn acknowledged(id: u8, code: u8) -> Option<Vec<u8>> {
    Some(vec![0x40, 3, 0, id, code])
}

/// The others are answered meanwhile, and the lane goes on, with one packet id less.
async fn a_silent_message_is_put_off_alone() {
    let sink = scripted(
        Script {
            message: |at, id| match at {
                3 => Some(Vec::new()),
                _ => acknowledged(id, 0),
            },
            second_half: NO_SECOND_HALF,
        },
        "max_in_flight=5",
    );
    let mut lane = impatient_lane(&sink).await;
    let outcomes = send(&mut lane, &plain(20)).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(accepted(outcome), at != 3, "{outcome:?}");
    }
    let why = put_off(&outcomes[3]);
    assert!(
        why.is_silent && why.reason.contains("within 4.5s"),
        "{why:?}"
    );
    assert!(send(&mut lane, &plain(20)).await.iter().all(accepted));
}

/// Their bytes counted as under way for as long as the connection lasted.
async fn large_silent_messages_hold_up_no_others() {
    let script = Script {
        message: |at, id| match at {
            0..3 => Some(Vec::new()),
            _ => acknowledged(id, 0),
        },
        second_half: NO_SECOND_HALF,
    };
    let mut lane = impatient_lane(&scripted(script, "")).await;
    let mut events = plain(20);
    for event in &mut events[..3] {
        event.payload = Some(vec![b'x'; 1 << 20]);
    }
    let outcomes = send(&mut lane, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(accepted(outcome), at >= 3, "{at}: {outcome:?}");
    }
    assert!(put_off(&outcomes[0]).is_silent);
}

/// It would take a message of QoS 2 with a packet id of the session for a repeat.
async fn a_broker_that_kept_a_session_gets_nothing() {
    for (connected, options) in [
        (&b"\x20\x03\x01\0\0"[..], "qos=2"),
        (b"\x20\x02\x01\0", "qos=2&version=3.1.1"),
    ] {
        let script = Script {
            message: |_, id| Some(vec![0x50, 2, 0, id]),
            second_half: |id| Some(vec![0x70, 2, 0, id]),
        };
        let sink = scripted_from(connected, script, options);
        let error = sink.open_lane(lane_spec(1)).await.err().unwrap();
        assert_eq!(error.cause(), Cause::Connection);
        assert!(error.to_string().contains("a session of before"), "{error}");
    }
}

/// The broker drops the first half of one whose second half it has not seen.
async fn a_message_of_qos_2_has_two_halves() {
    let first_half: fn(usize, u8) -> Option<Vec<u8>> = |_, id| Some(vec![0x50, 2, 0, id]);
    for (second_half, is_accepted) in [
        (
            (|id| Some(vec![0x70, 2, 0, id])) as fn(u8) -> Option<Vec<u8>>,
            true,
        ),
        // It does not know the message any more.
        (|id| Some(vec![0x70, 3, 0, id, 0x92]), false),
        (NO_SECOND_HALF, false),
    ] {
        let script = Script {
            message: first_half,
            second_half,
        };
        let outcomes = send(&mut lane(&scripted(script, "qos=2")).await, &plain(1)).await;
        assert_eq!(accepted(&outcomes[0]), is_accepted, "{outcomes:?}");
        match &outcomes[0] {
            Outcome::Later(why) => assert!(why.is_silent, "{why:?}"),
            _ if is_accepted => {}
            outcome => assert_eq!(cause(outcome).0, Cause::Connection),
        }
    }
}

/// In whatever order they come: each has the id of its packet.
async fn refusals_are_of_their_message() {
    let sink = scripted(
        Script {
            message: |at, id| match at {
                // All at once, the last first.
                9 => {
                    let ids = (0..10).rev();
                    let code = |at| match at {
                        2 => 0x87,
                        4 => 0x97,
                        6 => 0x80,
                        _ => 0,
                    };
                    let all = ids.filter_map(|at| acknowledged(id - 9 + at, code(at)));
                    Some(all.flatten().collect())
                }
                _ => Some(Vec::new()),
            },
            second_half: NO_SECOND_HALF,
        },
        "",
    );
    let outcomes = send(&mut lane(&sink).await, &plain(10)).await;
    assert!(rejection(&outcomes[2]).1.contains("0x87"));
    assert!(put_off(&outcomes[4]).reason.contains("quota exceeded"));
    assert!(put_off(&outcomes[6]).is_silent);
    let rest = [0, 1, 3, 5, 7, 8, 9].map(|at| &outcomes[at]);
    assert!(rest.into_iter().all(accepted));
}

async fn a_broker_says_why_it_ends() {
    type Says = fn(usize, u8) -> Option<Vec<u8>>;
    for (message, ends, words) in [
        (
            (|_, _| Some(b"\xE0\x02\x8E\0".to_vec())) as Says,
            Cause::LaneEnded,
            "a newer lane",
        ),
        (
            |_, _| Some(b"\xE0\x06\x97\x04\x1F\0\x01q".to_vec()),
            Cause::Throttled,
            "quota exceeded (0x97): q",
        ),
        (
            |_, _| Some(b"\xE0\x01\x8B".to_vec()),
            Cause::Connection,
            "shutting down",
        ),
        // Of a message that nobody sent.
        (
            |_, id| acknowledged(id + 1, 0),
            Cause::Connection,
            "broke the protocol",
        ),
        (
            |_, _| Some(b"\x30\x03\0\0\0".to_vec()),
            Cause::Misconfigured,
            "does not speak MQTT",
        ),
    ] {
        let script = Script {
            message,
            second_half: NO_SECOND_HALF,
        };
        let outcomes = send(&mut lane(&scripted(script, "")).await, &plain(1)).await;
        let [Outcome::Unavailable(why)] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(why.cause, ends, "{why:?}");
        assert!(why.reason.contains(words), "{why:?}");
    }
}
