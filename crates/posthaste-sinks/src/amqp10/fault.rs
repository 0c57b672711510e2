//! The meaning of the broker's refusals, with the fix.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{Cause, Outcome, Postponement, RejectionKind, SinkError, Unavailability};

use super::client::{Condition, Error, State};
use crate::transport::TransportError;

/// How long to wait after a broker asked to slow down, where it does not say how long it wants.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// Service Bus asks for ten seconds.
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// Characters of a broker's own words that are told, at the most.
const EXCERPT_CHARS: usize = 300;

/// The part of the world that is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    Event(RejectionKind),
    /// The address, for now or until somebody changes something.
    Place(Cause),
    /// The broker, our login, or the way to it.
    Service(Cause),
}

/// The thing that ended, which an unknown condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A message was rejected.
    Message,
    /// A link ended.
    Link,
    /// The connection or its session ended.
    Connection,
}

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) blame: Blame,
    /// In words, with the fix where one is known.
    pub(super) reason: String,
    wait: Option<Duration>,
    /// The message alone may be at fault.
    may_be_alone: bool,
}

const INTERNAL_ERROR: &str = "amqp:internal-error";

/// The blame for a condition, and the fix.
fn known(name: &str) -> Option<(Blame, &'static str)> {
    use Blame::{Event, Place, Service};
    Some(match name {
        "amqp:link:message-size-exceeded" => (Event(RejectionKind::TooLarge), ""),
        "amqp:decode-error"
        | "amqp:invalid-field"
        | "amqp:precondition-failed"
        | "com.microsoft:argument-error"
        | "com.microsoft:argument-out-of-range" => (Event(RejectionKind::Invalid), ""),
        "amqp:not-found" | "amqp:resource-deleted" => (
            Place(Cause::Misconfigured),
            "; create the queue or topic, or correct the address behind the `/`",
        ),
        "com.microsoft:entity-disabled" => (Place(Cause::Misconfigured), "; enable it"),
        "amqp:not-allowed" | "amqp:not-implemented" => (Place(Cause::Misconfigured), ""),
        "amqp:unauthorized-access" | "com.microsoft:auth-failed" => (
            Place(Cause::Denied),
            "; give the user the right to send there",
        ),
        "amqp:resource-limit-exceeded" => (Place(Cause::Throttled), "; it may be full"),
        "amqp:resource-locked"
        | "amqp:link:detach-forced"
        | "amqp:link:transfer-limit-exceeded"
        | "amqp:link:stolen" => (Place(Cause::Connection), ""),
        "com.microsoft:server-busy" => (Service(Cause::Throttled), ""),
        INTERNAL_ERROR
        | "com.microsoft:timeout"
        | "com.microsoft:operation-cancelled"
        | "com.microsoft:message-lock-lost"
        | "com.microsoft:session-lock-lost" => (Place(Cause::Unknown), ""),
        _ => return None,
    })
}

impl Refusal {
    pub(super) fn of(condition: &Condition, told: Told) -> Self {
        let (blame, fix) = known(&condition.name).unwrap_or(match told {
            Told::Message => (Blame::Event(RejectionKind::Other), ""),
            Told::Link => (Blame::Place(Cause::Connection), ""),
            Told::Connection => (Blame::Service(Cause::Connection), ""),
        });
        // A connection ends for all.
        let blame = match (blame, told) {
            (Blame::Place(cause), Told::Connection) => Blame::Service(cause),
            (Blame::Event(_), Told::Connection) => Blame::Service(Cause::Connection),
            (blame, _) => blame,
        };
        let said = words(condition);
        let reason = match told {
            Told::Message => format!("the broker rejected the message: {said}{fix}"),
            Told::Link => format!("the broker ended the link: {said}{fix}"),
            Told::Connection => format!("the broker ended the connection: {said}{fix}"),
        };
        let wait = match (condition.name.as_str(), blame) {
            ("com.microsoft:server-busy", _) => Some(BUSY_WAIT),
            (_, Blame::Place(Cause::Throttled)) => Some(RETRY_WAIT),
            _ => None,
        };
        Self {
            blame,
            reason,
            wait,
            may_be_alone: told == Told::Message && blame == Blame::Place(Cause::Unknown),
        }
    }

    /// The address gives no credit, or no link, in this time.
    pub(super) fn no_credit(limit: Duration) -> Self {
        Self {
            blame: Blame::Place(Cause::Throttled),
            reason: format!("the broker gives no credit within {limit:?}: it may be full"),
            wait: Some(RETRY_WAIT),
            may_be_alone: false,
        }
    }

    /// The same, where no message can be at fault, since none was sent.
    pub(super) fn of_address(self) -> Self {
        Self {
            blame: Blame::Place(Cause::Misconfigured),
            ..self
        }
    }

    /// The cause, where the destination is at fault.
    fn cause(&self) -> Cause {
        match self.blame {
            Blame::Place(cause) | Blame::Service(cause) => cause,
            Blame::Event(_) => Cause::Unknown,
        }
    }

    /// As the fault of a connection.
    fn into_fault(self, reason: String) -> BrokerFault {
        BrokerFault(Unavailability {
            wait: self.wait,
            ..Unavailability::new(self.cause(), reason)
        })
    }

    /// As the reason why there is no lane to the only address.
    pub(super) fn of_only_address(self, address: &str) -> BrokerFault {
        let reason = format!("address `{address}`: {}", self.reason);
        self.into_fault(reason)
    }

    /// As the outcome of a record for this address. A fault of the address is the record's where
    /// each topic has its own (`is_own`), and otherwise the destination's.
    pub(super) fn outcome(self, address: &str, is_own: bool) -> Outcome {
        let reason = format!("address `{address}`: {}", self.reason);
        let wait = self.wait;
        match self.blame {
            Blame::Event(kind) => Outcome::rejected(kind, reason),
            Blame::Place(_) if is_own => Outcome::Later(Box::new(Postponement {
                wait,
                is_silent: self.may_be_alone,
                ..Postponement::new(reason)
            })),
            Blame::Place(cause) | Blame::Service(cause) => {
                Outcome::Unavailable(Arc::new(Unavailability {
                    wait,
                    ..Unavailability::new(cause, reason)
                }))
            }
        }
    }
}

/// The outcome of a message that has this state at its end.
pub(super) fn outcome(state: &State, address: &str, is_own: bool) -> Outcome {
    let not_now = |said: &str| {
        Outcome::later(format!(
            "address `{address}`: the broker did not take the message ({said}); see its log"
        ))
    };
    match state {
        State::Accepted => Outcome::accepted(),
        State::Rejected(why) => {
            let why = why.clone().unwrap_or_default();
            Refusal::of(&why, Told::Message).outcome(address, is_own)
        }
        State::Released => not_now("released"),
        State::Modified => not_now("modified"),
        State::NoOutcome => {
            let reason =
                format!("address `{address}`: the broker settled the message without an outcome");
            match is_own {
                true => Outcome::silent(reason),
                false => Outcome::unavailable(Cause::Unknown, reason),
            }
        }
    }
}

/// A condition in the broker's words.
fn words(condition: &Condition) -> String {
    let Condition { name, description } = condition;
    let excerpt: String = description.chars().take(EXCERPT_CHARS).collect();
    match (name.is_empty(), excerpt.is_empty()) {
        (true, _) => "it did not say why; see its log".to_owned(),
        (_, true) => name.clone(),
        _ => format!("{name}: {excerpt}"),
    }
}

/// Why a connection was not made, or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BrokerFault(pub(super) Unavailability);

impl BrokerFault {
    fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self(Unavailability::new(cause, reason))
    }

    /// The same as the answer of `check` and `open_lane`.
    pub(super) fn into_error(self, target: String) -> SinkError {
        SinkError::new(self.0.cause, target, self.0.reason)
    }
}

impl From<TransportError> for BrokerFault {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Connection(words) => Self::new(Cause::Connection, words),
            TransportError::Setup(words) => Self::new(Cause::Misconfigured, words),
            TransportError::Certificate(words) => Self::new(Cause::Denied, words),
        }
    }
}

impl From<Error> for BrokerFault {
    fn from(error: Error) -> Self {
        match error {
            Error::Transport(error) => error.into(),
            Error::Lost(words) | Error::LoginLater(words) => Self::new(Cause::Connection, words),
            Error::Silent(limit) => Self::new(
                Cause::Connection,
                format!("the broker says nothing within {limit:?}"),
            ),
            Error::NotAmqp(words) => Self::new(
                Cause::Misconfigured,
                format!(
                    "what answers there does not speak AMQP 1.0: {words}; correct host and port, \
                     or the scheme (`amqp10s:` is with TLS)"
                ),
            ),
            Error::Login(words) => {
                Self::new(Cause::Denied, format!("{words}; correct user and password"))
            }
            Error::Ended(why) => {
                let refusal = Refusal::of(&why, Told::Connection);
                let reason = refusal.reason.clone();
                refusal.into_fault(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(name: &str) -> Condition {
        Condition {
            name: name.to_owned(),
            description: "why".to_owned(),
        }
    }

    fn named(outcome: &Outcome) -> String {
        match outcome {
            Outcome::Accepted(_) => "accepted".to_owned(),
            Outcome::Rejected(why) => why.kind.as_str().to_owned(),
            Outcome::Later(_) => "later".to_owned(),
            Outcome::Unavailable(why) => why.cause.as_str().to_owned(),
        }
    }

    /// Of a rejected message and of a link that ended: where all share the address, and where each
    /// topic has its own; and of a connection that ended.
    #[test]
    fn conditions_have_a_blame() {
        for (name, message, own_message, link, own_link, connection) in [
            (
                "amqp:link:message-size-exceeded",
                "too_large",
                "too_large",
                "too_large",
                "too_large",
                "connection",
            ),
            (
                "amqp:decode-error",
                "invalid",
                "invalid",
                "invalid",
                "invalid",
                "connection",
            ),
            (
                "amqp:not-found",
                "misconfigured",
                "later",
                "misconfigured",
                "later",
                "misconfigured",
            ),
            (
                "amqp:unauthorized-access",
                "denied",
                "later",
                "denied",
                "later",
                "denied",
            ),
            (
                "amqp:resource-limit-exceeded",
                "throttled",
                "later",
                "throttled",
                "later",
                "throttled",
            ),
            (
                "amqp:link:detach-forced",
                "connection",
                "later",
                "connection",
                "later",
                "connection",
            ),
            (
                "com.microsoft:server-busy",
                "throttled",
                "throttled",
                "throttled",
                "throttled",
                "throttled",
            ),
            (
                "com.microsoft:entity-disabled",
                "misconfigured",
                "later",
                "misconfigured",
                "later",
                "misconfigured",
            ),
            (
                "com.microsoft:message-lock-lost",
                "unknown",
                "later",
                "unknown",
                "later",
                "unknown",
            ),
            (
                INTERNAL_ERROR,
                "unknown",
                "later",
                "unknown",
                "later",
                "unknown",
            ),
            (
                "some:thing",
                "other",
                "other",
                "connection",
                "later",
                "connection",
            ),
            ("", "other", "other", "connection", "later", "connection"),
        ] {
            let found =
                |told, is_own| named(&Refusal::of(&condition(name), told).outcome("a", is_own));
            assert_eq!(found(Told::Message, false), message, "{name}");
            assert_eq!(found(Told::Message, true), own_message, "{name}");
            assert_eq!(found(Told::Link, false), link, "{name}");
            assert_eq!(found(Told::Link, true), own_link, "{name}");
            let fault = BrokerFault::from(Error::Ended(condition(name)));
            assert_eq!(fault.0.cause.as_str(), connection, "{name}");
        }
    }

    #[test]
    fn states_have_an_outcome() {
        for (state, expected) in [
            (State::Accepted, "accepted"),
            (State::Rejected(None), "other"),
            (
                State::Rejected(Some(condition("amqp:resource-limit-exceeded"))),
                "throttled",
            ),
            (State::Released, "later"),
            (State::Modified, "later"),
            (State::NoOutcome, "unknown"),
        ] {
            assert_eq!(named(&outcome(&state, "a", false)), expected, "{state:?}");
        }
    }

    /// The broker goes on: the address may be at fault, or this message alone.
    #[test]
    fn a_message_that_ends_without_a_reason_ends_no_lane() {
        let internal_error = State::Rejected(Some(condition(INTERNAL_ERROR)));
        for state in [internal_error, State::NoOutcome] {
            match outcome(&state, "a", true) {
                Outcome::Later(why) => assert!(why.is_silent, "{state:?}"),
                other => panic!("{state:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_busy_service_says_how_long_to_wait() {
        let refusal = Refusal::of(&condition("com.microsoft:server-busy"), Told::Link);
        assert_eq!(refusal.of_only_address("a").0.wait, Some(BUSY_WAIT));
    }
}
