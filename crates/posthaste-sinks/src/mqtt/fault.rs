//! The meaning of a broker's refusals, with the fix.

use std::{io, time::Duration};

use posthaste_engine::{Cause, Outcome, RejectionKind, SinkError};

use super::client::{ClientError, Ending, LOGGING_IN, NotPublished, Reason};
use crate::transport::{TransportError, refused_us};

/// Nobody has subscribed to the topic: the broker has dropped the message.
const NO_SUBSCRIBERS: u8 = 0x10;

/// Why a connection was not made, or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BrokerFault {
    pub(super) cause: Cause,
    /// In words, with the fix where one is known.
    pub(super) reason: String,
}

impl BrokerFault {
    fn new(cause: Cause, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { cause, reason }
    }

    /// The two sides do not fit together.
    pub(super) fn setup(reason: impl Into<String>) -> Self {
        Self::new(Cause::Misconfigured, reason)
    }

    /// It took too long.
    pub(super) fn slow(doing: &str, limit: Duration) -> Self {
        Self::new(
            Cause::Connection,
            format!("{doing}: no answer within {limit:?}"),
        )
    }

    fn lost(doing: &str, error: &io::Error) -> Self {
        if let Some(refused) = refused_us(error) {
            return refused.into();
        }
        let mut reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!("{doing}: the broker closed the connection without saying why; see its log")
            }
            _ => format!("{doing}: {error}"),
        };
        if doing == LOGGING_IN {
            reason += "; does only one side speak TLS (`mqtts:`)?";
        }
        Self::new(Cause::Connection, reason)
    }

    fn said(doing: &str, reason: &Reason) -> Self {
        let (name, cause, fix) = meaning(reason.code);
        let mut words = format!("the broker {doing}: {}", told(name, reason));
        if let Some(server) = &reason.server {
            words += &format!("; it names `{server}`");
        }
        Self::new(cause, words + fix)
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

impl From<TransportError> for BrokerFault {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Connection(words) => Self::new(Cause::Connection, words),
            TransportError::Setup(words) => Self::setup(words),
            TransportError::Certificate(words) => Self::new(Cause::Denied, words),
        }
    }
}

impl From<ClientError> for BrokerFault {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Transport(error) => error.into(),
            ClientError::LoginTooLong => {
                Self::setup("user or password has more than the 65535 bytes that MQTT has room for")
            }
            ClientError::Lost { doing, error } => Self::lost(doing, &error),
            ClientError::Silent { limit } => Self::slow("the broker says nothing", limit),
            ClientError::Malformed => Self::setup(
                "what answers there does not speak MQTT, or not this version; correct host and \
                 port (a broker listens on 1883, with TLS on 8883), or `version`",
            ),
            ClientError::Unexpected { packet } => Self::new(
                Cause::Connection,
                format!("the broker broke the protocol: it sent {packet}"),
            ),
            ClientError::AuthAsked => Self::setup(
                "the broker asks for an exchange of AUTH packets; let it take a user and a \
                 password, or a certificate",
            ),
            ClientError::Refused(reason) => Self::said("refused the connection", &reason),
            ClientError::Ended(reason) => Self::said("ended the connection", &reason),
        }
    }
}

/// The code by its name in the protocol, and the broker's own words.
fn told(name: &str, reason: &Reason) -> String {
    let code = reason.code;
    match &reason.words {
        Some(words) => format!("{name} (0x{code:02X}): {words}"),
        None => format!("{name} (0x{code:02X})"),
    }
}

/// The name of a code that refuses or ends a connection, the blame for it, and the fix. Numbers
/// below 0x80 are of 3.1.1.
fn meaning(code: u8) -> (&'static str, Cause, &'static str) {
    use Cause::{Connection, Denied, LaneEnded, Misconfigured, Throttled};
    const LOGIN: &str = "; correct user and password";
    const VERSION: &str = "; it does not know MQTT 5: add `version=3.1.1`";
    match code {
        0x00 => ("normal disconnection", Connection, ""),
        0x01 => ("unacceptable protocol version", Misconfigured, VERSION),
        0x02 => ("identifier rejected", Misconfigured, CLIENT_ID),
        0x03 => ("server unavailable", Connection, ""),
        0x04 => ("bad user name or password", Denied, LOGIN),
        0x05 => ("not authorized", Denied, LOGIN),
        0x80 => ("unspecified error", Connection, ""),
        0x81 => ("malformed packet", Connection, ""),
        0x82 => ("protocol error", Connection, ""),
        0x83 => ("implementation specific error", Connection, ""),
        0x84 => ("unsupported protocol version", Misconfigured, VERSION),
        0x85 => ("client identifier not valid", Misconfigured, CLIENT_ID),
        0x86 => ("bad user name or password", Denied, LOGIN),
        0x87 => ("not authorized", Denied, "; give the user the right"),
        0x88 => ("server unavailable", Connection, ""),
        0x89 => ("server busy", Throttled, ""),
        0x8A => ("banned", Denied, "; lift the ban"),
        0x8B => ("server shutting down", Connection, ""),
        0x8C => ("bad authentication method", Misconfigured, ""),
        0x8D => ("keep alive timeout", Connection, ""),
        0x8E => (
            "session taken over",
            LaneEnded,
            "; a newer lane has its client id",
        ),
        0x90 => ("topic name invalid", Connection, ""),
        0x93 => (
            "receive maximum exceeded",
            Connection,
            "; lower `max_in_flight`",
        ),
        0x94 => ("topic alias invalid", Connection, ""),
        0x95 => ("packet too large", Connection, "; lower `max_event_bytes`"),
        0x96 => ("message rate too high", Throttled, ""),
        0x97 => ("quota exceeded", Throttled, ""),
        0x98 => ("administrative action", Connection, ""),
        0x99 => ("payload format invalid", Connection, ""),
        0x9A => (
            "retain not supported",
            Misconfigured,
            "; leave out `retain=true`",
        ),
        0x9B => ("QoS not supported", Misconfigured, "; lower `qos`"),
        0x9C => ("use another server", Connection, ""),
        0x9D => ("server moved", Misconfigured, "; correct the address"),
        0x9F => ("connection rate exceeded", Throttled, ""),
        0xA0 => ("maximum connect time", Connection, ""),
        _ => ("a reason of no name", Connection, ""),
    }
}

const CLIENT_ID: &str = "; let it take client ids that begin with `posthaste`";

/// A broker's answer that a message was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It keeps it for its subscribers, as far as it tells.
    Kept,
    /// Nobody has subscribed, and it has dropped it.
    Dropped,
}

/// The outcome of a message that was published to this topic, where it is not plainly taken.
pub(super) fn outcome(ending: &Ending, topic: &str) -> Result<Taken, Outcome> {
    match ending {
        Ending::Answered(reason) if reason.code == NO_SUBSCRIBERS => Ok(Taken::Dropped),
        Ending::Answered(reason) if !reason.is_refusal() => Ok(Taken::Kept),
        Ending::Answered(reason) => Err(refused(reason, topic)),
        Ending::Silent { limit, was_read } => {
            let reason = format!("no answer for topic `{topic}` within {limit:?}");
            Err(match was_read {
                true => Outcome::silent(reason),
                false => Outcome::unavailable(Cause::Unknown, reason),
            })
        }
    }
}

/// The outcome of a message that nobody has subscribed to, where somebody must have.
pub(super) fn no_subscribers(topic: &str) -> Outcome {
    Outcome::later(format!(
        "nobody has subscribed to topic `{topic}`, and `require_subscribers=true` asks for it"
    ))
}

fn refused(reason: &Reason, topic: &str) -> Outcome {
    let rejected = |kind, name: &str, fix: &str| {
        Outcome::rejected(
            kind,
            format!("topic `{topic}`: {}{fix}", told(name, reason)),
        )
    };
    match reason.code {
        0x87 => rejected(
            RejectionKind::Denied,
            "not authorized",
            "; let the user publish to it",
        ),
        0x90 => rejected(RejectionKind::Invalid, "topic name invalid", ""),
        0x95 => rejected(
            RejectionKind::TooLarge,
            "packet too large",
            "; raise the broker's limit",
        ),
        0x97 => {
            let words = told("quota exceeded", reason);
            Outcome::later(format!("topic `{topic}`: {words}; see the broker's limits"))
        }
        0x99 => rejected(RejectionKind::Invalid, "payload format invalid", ""),
        code => {
            let name = match code {
                0x91 => "packet identifier in use",
                0x92 => "packet identifier not found",
                code => meaning(code).0,
            };
            // The broker refuses this message, and goes on: its topic may be at fault, or it alone.
            Outcome::silent(format!("topic `{topic}`: {}", told(name, reason)))
        }
    }
}

/// The outcome of a record that the broker would not take as it is.
pub(super) fn not_published(fault: NotPublished, topic: &str) -> Outcome {
    match fault {
        NotPublished::TooLarge { bytes, max } => Outcome::rejected(
            RejectionKind::TooLarge,
            format!(
                "a packet of {bytes} bytes, over the {max} that the broker takes; raise its limit, \
                 and start the relay again, which asks for it once a connection"
            ),
        ),
        NotPublished::TopicTooLong(bytes) => Outcome::rejected(
            RejectionKind::Invalid,
            format!("its topic `{topic}` has {bytes} bytes, over 65535"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(code: u8) -> Reason {
        Reason {
            code,
            words: Some("why".to_owned()),
            server: Some("b:1883".to_owned()),
        }
    }

    #[test]
    fn reasons_of_a_connection_have_a_blame() {
        use Cause::{Connection, Denied, LaneEnded, Misconfigured, Throttled};
        for (code, cause, words) in [
            (1, Misconfigured, "add `version=3.1.1`"),
            (2, Misconfigured, "client ids"),
            (3, Connection, "server unavailable"),
            (4, Denied, "user and password"),
            (5, Denied, "user and password"),
            (0x84, Misconfigured, "add `version=3.1.1`"),
            (0x85, Misconfigured, "client ids"),
            (0x86, Denied, "user and password"),
            (0x87, Denied, "give the user the right"),
            (0x89, Throttled, "server busy"),
            (0x8A, Denied, "ban"),
            (0x8B, Connection, "shutting down"),
            (0x8E, LaneEnded, "a newer lane"),
            (0x95, Connection, "max_event_bytes"),
            (0x97, Throttled, "quota exceeded"),
            (0x9B, Misconfigured, "lower `qos`"),
            (0x9C, Connection, "`b:1883`"),
            (0x9D, Misconfigured, "`b:1883`; correct the address"),
            (0x9F, Throttled, "rate"),
            (0xFE, Connection, "0xFE"),
        ] {
            for error in [
                ClientError::Refused(reason(code)),
                ClientError::Ended(reason(code)),
            ] {
                let fault = BrokerFault::from(error);
                assert_eq!(fault.cause, cause, "{}", fault.reason);
                assert!(fault.reason.contains(words), "{}", fault.reason);
                assert!(fault.reason.contains("why"), "{}", fault.reason);
            }
        }
    }

    #[test]
    fn answers_to_messages_have_an_outcome() {
        for (code, expected) in [
            (0x00, "kept"),
            (0x10, "dropped"),
            (0x80, "silent"),
            (0x83, "silent"),
            (0x87, "denied"),
            (0x90, "invalid"),
            (0x91, "silent"),
            (0x92, "silent"),
            (0x95, "too_large"),
            (0x97, "later"),
            (0x99, "invalid"),
            (0xFE, "silent"),
        ] {
            let found = match outcome(&Ending::Answered(reason(code)), "a/b") {
                Ok(Taken::Kept) => "kept",
                Ok(Taken::Dropped) => "dropped",
                Err(Outcome::Rejected(why)) => {
                    assert!(why.reason.contains("`a/b`"), "{}", why.reason);
                    why.kind.as_str()
                }
                Err(Outcome::Later(why)) if why.is_silent => "silent",
                Err(Outcome::Later(_)) => "later",
                Err(Outcome::Unavailable(why)) => why.cause.as_str(),
                Err(Outcome::Accepted(_)) => "accepted",
            };
            assert_eq!(found, expected, "0x{code:02X}");
        }
        let limit = Duration::from_secs(1);
        for was_read in [false, true] {
            let ended = outcome(&Ending::Silent { limit, was_read }, "t").unwrap_err();
            assert_eq!(matches!(ended, Outcome::Later(_)), was_read);
        }
    }
}
