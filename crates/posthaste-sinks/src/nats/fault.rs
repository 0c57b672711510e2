//! The meaning of the server's refusals, with the fix.

use std::{io, time::Duration};

use posthaste_engine::{Acceptance, Cause, Outcome, RejectionKind, SinkError};
use serde::Deserialize;

use super::wire::Malformed;
use crate::transport::{TransportError, refused_us};

const CREATE: &str = "create a stream that has it among its subjects";

/// Why a connection was not made, or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerFault {
    pub(super) cause: Cause,
    /// In words, with the fix where one is known.
    pub(super) reason: String,
}

impl ServerFault {
    fn new(cause: Cause, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { cause, reason }
    }

    /// The two sides do not fit together.
    pub(super) fn setup(reason: impl Into<String>) -> Self {
        Self::new(Cause::Misconfigured, reason)
    }

    /// No right to something.
    pub(super) fn denied(reason: impl Into<String>) -> Self {
        Self::new(Cause::Denied, reason)
    }

    /// It took too long.
    pub(super) fn slow(doing: &str, limit: Duration) -> Self {
        Self::new(
            Cause::Connection,
            format!("{doing}: no answer within {limit:?}"),
        )
    }

    /// The socket failed.
    pub(super) fn lost(doing: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let reason = format!(
                "{doing}: the server closed the connection without saying why; see its log"
            );
            return Self::new(Cause::Connection, reason);
        }
        match refused_us(error) {
            Some(refused) => refused.into(),
            None => Self::new(Cause::Connection, format!("{doing}: {error}")),
        }
    }

    /// The server said `-ERR`, with these words.
    pub(super) fn said(words: &str) -> Self {
        let (cause, fix) = classify(words);
        Self::new(cause, format!("the server said: {words}{fix}"))
    }

    /// The same as the answer of `check` and `open_lane`.
    pub(super) fn into_error(self, target: String) -> SinkError {
        SinkError::new(self.cause, target, self.reason)
    }

    /// The same as the outcome of a record.
    pub(super) fn outcome(&self) -> Outcome {
        Outcome::unavailable(self.cause, self.reason.as_str())
    }
}

impl From<TransportError> for ServerFault {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Connection(words) => Self::new(Cause::Connection, words),
            TransportError::Setup(words) => Self::setup(words),
            TransportError::Certificate(words) => Self::denied(words),
        }
    }
}

impl From<Malformed> for ServerFault {
    fn from(Malformed: Malformed) -> Self {
        Self::setup(
            "what answers there does not speak NATS; correct host and port (a server listens on \
             4222)",
        )
    }
}

/// The blame for the words of `-ERR`, and the fix.
fn classify(words: &str) -> (Cause, &'static str) {
    let words = words.to_ascii_lowercase();
    let says = |part: &str| words.contains(part);
    if says("permissions violation for subscription") {
        let fix = "; allow the user to subscribe to `_INBOX.>`, where answers come";
        return (Cause::Denied, fix);
    }
    if says("permissions violation") {
        return (Cause::Denied, "; allow it");
    }
    if says("authorization violation") || says("authentication") {
        return (Cause::Denied, "; correct user and password, or the token");
    }
    if says("tls required") {
        return (Cause::Misconfigured, "; add `tls=true` to the address");
    }
    (Cause::Connection, "")
}

/// The subject of a refused publish, if these words of `-ERR` refuse one.
pub(super) fn refused_subject(words: &str) -> Option<&str> {
    let (_, subject) = words.split_once("Permissions Violation for Publish to ")?;
    Some(subject.trim_matches('"'))
}

/// How a message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Somebody answered so.
    Payload(Vec<u8>),
    /// Nobody listens to its subject.
    NoResponders,
    /// We may not publish to its subject.
    Refused,
    /// Nobody answered in time.
    None {
        limit: Duration,
        /// The server has read the message.
        was_read: bool,
    },
}

/// The answer of a stream.
#[derive(Debug, Deserialize)]
struct PubAck {
    stream: Option<String>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
    error: Option<StreamError>,
}

/// An error of JetStream.
#[derive(Debug, Deserialize)]
pub(super) struct StreamError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u16,
    #[serde(default)]
    description: String,
}

impl Answer {
    /// The outcome of the record that was published to this subject.
    pub(super) fn outcome(&self, subject: &str) -> Outcome {
        match self {
            Self::Payload(payload) => match serde_json::from_slice(payload) {
                Ok(ack) => ack_outcome(ack, subject),
                Err(_) => no_stream_answered(subject),
            },
            Self::NoResponders => {
                Outcome::later(format!("no stream takes subject `{subject}`; {CREATE}"))
            }
            Self::Refused => Outcome::rejected(
                RejectionKind::Denied,
                format!("the user may not publish to subject `{subject}`; allow it"),
            ),
            Self::None { limit, was_read } => {
                let reason = format!(
                    "no answer for subject `{subject}` within {limit:?}; the server is slow, its \
                     stream is without the majority of its replicas, or no stream has the subject \
                     and another client listens to it"
                );
                match was_read {
                    true => Outcome::silent(reason),
                    false => Outcome::unavailable(Cause::Unknown, reason),
                }
            }
        }
    }
}

fn ack_outcome(ack: PubAck, subject: &str) -> Outcome {
    match ack {
        PubAck {
            error: Some(error), ..
        } => error.outcome(subject),
        // A repeat that the stream has suppressed is accepted like any other: it has the message.
        PubAck {
            stream: Some(_),
            seq: Some(sequence),
            duplicate,
            error: None,
        } => Outcome::Accepted(Acceptance {
            receipt: Some(sequence),
            is_duplicate: duplicate,
        }),
        _ => no_stream_answered(subject),
    }
}

fn no_stream_answered(subject: &str) -> Outcome {
    Outcome::later(format!(
        "another client than a stream answered for subject `{subject}`; {CREATE}"
    ))
}

impl StreamError {
    /// The same as a fault of the server, where it is no event's.
    pub(super) fn fault(&self) -> ServerFault {
        let (cause, fix) = match self.class() {
            Class::Setup(fix) => (Cause::Misconfigured, fix),
            _ => (Cause::Connection, ""),
        };
        ServerFault::new(cause, format!("{self}{fix}"))
    }

    fn outcome(&self, subject: &str) -> Outcome {
        let reason = |fix: &str| format!("subject `{subject}`: {self}{fix}");
        match self.class() {
            Class::TooLarge => Outcome::rejected(
                RejectionKind::TooLarge,
                reason("; raise the stream's max_msg_size"),
            ),
            Class::Full => Outcome::later(reason("; see the stream's limits")),
            Class::Setup(fix) => Outcome::unavailable(Cause::Misconfigured, reason(fix)),
            Class::Unknown => Outcome::unavailable(Cause::Unknown, reason("")),
        }
    }

    fn class(&self) -> Class {
        match self.err_code {
            10_054 => Class::TooLarge,
            // Resources of server or account; a limit of the stream; messages that wait for it; a
            // message of this id that is being stored.
            10_002 | 10_023 | 10_028 | 10_047 | 10_077 | 10_158 | 10_167 => Class::Full,
            10_039 | 10_076 => Class::Setup("; enable JetStream for this account"),
            10_059 => Class::Setup("; create the stream, or correct `stream` in the address"),
            10_060 => Class::Setup("; correct `stream` in the address, or the stream's subjects"),
            10_109 => Class::Setup("; it takes nothing more: name another one"),
            _ => Class::Unknown,
        }
    }
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            code,
            err_code,
            description,
        } = self;
        write!(f, "JetStream said {code}/{err_code}: {description}")
    }
}

/// The blame for an error of JetStream.
enum Class {
    TooLarge,
    Full,
    /// Somebody has to change something, and what.
    Setup(&'static str),
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_server_have_a_blame() {
        for (words, cause) in [
            ("Authorization Violation", Cause::Denied),
            ("User Authentication Expired", Cause::Denied),
            ("Authentication Timeout", Cause::Denied),
            (
                r#"Permissions Violation for Subscription to "_INBOX.a.*""#,
                Cause::Denied,
            ),
            (
                r#"Permissions Violation for Publish to "$JS.API.STREAM.INFO.S""#,
                Cause::Denied,
            ),
            ("Secure Connection - TLS Required", Cause::Misconfigured),
            ("maximum connections exceeded", Cause::Connection),
            ("Stale Connection", Cause::Connection),
            ("Maximum Payload Violation", Cause::Connection),
        ] {
            let fault = ServerFault::said(words);
            assert_eq!(fault.cause, cause, "{words}");
            assert!(fault.reason.contains(words), "{}", fault.reason);
        }
        let refused = r#"Permissions Violation for Publish to "a.b""#;
        assert_eq!(refused_subject(refused), Some("a.b"));
        assert_eq!(refused_subject("Authorization Violation"), None);
    }

    #[test]
    fn answers_of_streams_have_an_outcome() {
        let error = |code: u16, err_code: u16| {
            let error = format!(r#"{{"code":{code},"err_code":{err_code},"description":"why"}}"#);
            format!(r#"{{"error":{error},"stream":"S","seq":0}}"#)
        };
        for (payload, expected) in [
            (r#"{"stream":"S","seq":7}"#.to_owned(), "accepted"),
            (
                r#"{"stream":"S","domain":"d","seq":7,"duplicate":true}"#.to_owned(),
                "duplicate",
            ),
            (error(400, 10_054), "too_large"),
            (error(503, 10_077), "later"),
            (error(503, 10_023), "later"),
            (error(400, 10_060), "misconfigured"),
            (error(503, 10_076), "misconfigured"),
            (error(500, 19_999), "unknown"),
            // Not of a stream.
            ("{}".to_owned(), "later"),
            ("thanks".to_owned(), "later"),
            (String::new(), "later"),
        ] {
            let outcome = Answer::Payload(payload.clone().into_bytes()).outcome("s");
            let found = match &outcome {
                Outcome::Accepted(Acceptance {
                    receipt: Some(7),
                    is_duplicate: false,
                }) => "accepted",
                Outcome::Accepted(Acceptance {
                    receipt: Some(7),
                    is_duplicate: true,
                }) => "duplicate",
                Outcome::Accepted(_) => "accepted without its receipt",
                Outcome::Rejected(why) => why.kind.as_str(),
                Outcome::Later(_) => "later",
                Outcome::Unavailable(why) => why.cause.as_str(),
            };
            assert_eq!(found, expected, "{payload}: {outcome:?}");
        }
    }
}
