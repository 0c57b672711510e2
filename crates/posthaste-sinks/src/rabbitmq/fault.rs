//! The meaning of the broker's refusals, with the fix.

use posthaste_engine::{Cause, Outcome, Record, RejectionKind, SinkError};

use crate::amqp::Error;

/// Why a connection was not made, or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BrokerFault {
    pub(super) cause: Cause,
    /// In words, with the fix where one is known.
    pub(super) reason: String,
    /// Which events are at fault, when it is not the destination.
    pub(super) at_fault: Option<EventsAtFault>,
    /// A message may be stuck at the broker, and with it what was sent behind it.
    pub(super) is_stuck: bool,
}

/// The events for which the broker closed the channel: it tells only by closing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventsAtFault {
    /// Every message of more bytes.
    LargerThan(u64),
    /// Every message with this routing key: our user may not write to it.
    Topic(String),
}

impl EventsAtFault {
    /// The outcome of this record, if it is one of the culprits.
    fn outcome(&self, record: &Record, reason: &str) -> Option<Outcome> {
        match self {
            Self::LargerThan(limit) => too_large(record, *limit),
            Self::Topic(topic) => {
                (record.topic() == topic).then(|| Outcome::rejected(RejectionKind::Denied, reason))
            }
        }
    }
}

/// The outcome of a record that is over the broker's limit.
pub(super) fn too_large(record: &Record, limit: u64) -> Option<Outcome> {
    let size = record.value().map_or(0, <[u8]>::len) as u64;
    (size > limit).then(|| {
        Outcome::rejected(
            RejectionKind::TooLarge,
            format!(
                "payload of {size} bytes, over the {limit} bytes that the broker takes (its \
                 max_message_size)"
            ),
        )
    })
}

impl BrokerFault {
    fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            cause,
            reason: reason.into(),
            at_fault: None,
            is_stuck: false,
        }
    }

    /// The broker closed the connection or the channel, with its code and words.
    fn closed(what: &str, code: u16, text: &str) -> Self {
        let (cause, fix) = classify(code, text);
        let text = text.trim_end_matches('.');
        let fix = if fix.is_empty() {
            String::new()
        } else {
            format!("; {fix}")
        };
        Self {
            cause,
            reason: format!("the broker closed the {what}: {code} {text}{fix}"),
            at_fault: at_fault(code, text),
            is_stuck: false,
        }
    }

    /// The same as the answer of `check` and `open_lane`.
    pub(super) fn into_error(self, target: String) -> SinkError {
        SinkError::new(self.cause, target, self.reason)
    }

    /// The outcome of records that are not at fault themselves, and merely were on the same lane.
    pub(super) fn outcome_of_others(&self) -> Outcome {
        match &self.at_fault {
            Some(_) => {
                let reason = format!("another event ended the lane: {}", self.reason);
                Outcome::unavailable(Cause::LaneEnded, reason)
            }
            None => Outcome::unavailable(self.cause, self.reason.as_str()),
        }
    }

    /// The outcome of this record, if it is at fault itself.
    pub(super) fn outcome_of(&self, record: &Record) -> Option<Outcome> {
        self.at_fault.as_ref()?.outcome(record, &self.reason)
    }
}

impl From<Error> for BrokerFault {
    fn from(error: Error) -> Self {
        match error {
            Error::Connection(words) => Self::new(Cause::Connection, words),
            Error::Setup(words) => Self::new(Cause::Misconfigured, words),
            Error::Certificate(words) => Self::new(Cause::Denied, words),
            Error::Closed { what, code, text } => Self::closed(what, code, &text),
            Error::Unconfirmed { limit, blocked } => {
                let waited = format!("no confirm within {limit:?}");
                match blocked {
                    Some(reason) => {
                        Self::new(Cause::Throttled, format!("{}; {waited}", blocks(&reason)))
                    }
                    None => Self {
                        is_stuck: true,
                        ..Self::new(
                            Cause::Unknown,
                            format!(
                                "{waited}; the broker is slow, or a quorum queue is without the \
                                 majority of its nodes"
                            ),
                        )
                    },
                }
            }
            Error::Mismatch(what) => Self::new(
                Cause::Unknown,
                format!("the broker's answers do not fit what was published: {what}"),
            ),
        }
    }
}

/// The words for the operator while the broker blocks publishers.
pub(super) fn blocks(reason: &str) -> String {
    format!("the broker blocks publishers: {reason}; see `rabbitmqctl status` for its alarms")
}

const GRANT: &str =
    "grant it with `rabbitmqctl set_permissions -p VHOST USER \"\" \"^EXCHANGE$\" \"\"`";

/// The blame for a reply code of the protocol, and the fix. The code alone does not tell: 530 says
/// that a vhost is missing, forbidden, down or full.
fn classify(code: u16, text: &str) -> (Cause, &'static str) {
    let says = |words: &str| text.contains(words);
    match code {
        403 if says("Login was refused") => (Cause::Denied, "correct user and password"),
        403 if says("internal exchange") => (
            Cause::Misconfigured,
            "it takes messages from other exchanges only; name one of those in the address, or \
             declare it without `internal`",
        ),
        403 => (Cause::Denied, GRANT),
        404 => (
            Cause::Misconfigured,
            "declare the exchange in this vhost, or correct `exchange` in the address",
        ),
        402 => (Cause::Misconfigured, "correct the vhost in the address"),
        // A full vhost or user has room again later, a vhost that is down comes up.
        530 if says("limit") || says("is down") => (Cause::Connection, ""),
        530 if says("not found") => (
            Cause::Misconfigured,
            "create it with `rabbitmqctl add_vhost`, or correct the address",
        ),
        530 if says("refused for user") => (Cause::Denied, GRANT),
        _ => (Cause::Connection, ""),
    }
}

fn at_fault(code: u16, text: &str) -> Option<EventsAtFault> {
    match code {
        // "message size 1001 is larger than configured max size 1000", 4.x likewise.
        406 | 311 if text.contains("message size") => {
            let (_, limit) = text.rsplit_once("max size ")?;
            let digits = limit
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(limit.len());
            limit[..digits].parse().ok().map(EventsAtFault::LargerThan)
        }
        // "access to topic 'orders' in exchange 'events' in vhost '/' refused for user 'relay'"
        403 => {
            let (_, rest) = text.split_once("access to topic '")?;
            let (topic, _) = rest.split_once("' in exchange")?;
            Some(EventsAtFault::Topic(topic.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_words_have_a_blame() {
        for (code, text, cause) in [
            (
                320,
                "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
                Cause::Connection,
            ),
            (402, "INVALID_PATH - unknown", Cause::Misconfigured),
            (
                403,
                "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For \
                 details see the broker logfile.",
                Cause::Denied,
            ),
            (
                403,
                "ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'u'",
                Cause::Denied,
            ),
            (
                403,
                "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'",
                Cause::Misconfigured,
            ),
            (
                404,
                "NOT_FOUND - no exchange 'x' in vhost '/'",
                Cause::Misconfigured,
            ),
            (
                406,
                "PRECONDITION_FAILED - inequivalent arg",
                Cause::Connection,
            ),
            (530, "NOT_ALLOWED - vhost v not found", Cause::Misconfigured),
            (
                530,
                "NOT_ALLOWED - access to vhost 'v' refused for user 'u'",
                Cause::Denied,
            ),
            (
                530,
                "NOT_ALLOWED - access to vhost 'v' refused for user 'u': connection limit (1) is \
                 reached",
                Cause::Connection,
            ),
            (
                530,
                "NOT_ALLOWED - access to vhost 'v' refused for user 'u': vhost 'v' is down",
                Cause::Connection,
            ),
            (541, "INTERNAL_ERROR", Cause::Connection),
        ] {
            let fault = BrokerFault::closed("channel", code, text);
            assert_eq!(fault.cause, cause, "{text}");
            // The fix follows the broker's sentence behind a semicolon.
            let words = text.trim_end_matches('.');
            assert!(fault.reason.contains(words), "{}", fault.reason);
            assert!(!fault.reason.contains(".;"), "{}", fault.reason);
            assert_eq!(fault.at_fault, None, "{text}");
        }
    }

    #[test]
    fn events_at_fault_are_told_from_the_words() {
        for (code, text, at_fault) in [
            (
                406,
                "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000",
                EventsAtFault::LargerThan(1000),
            ),
            (
                406,
                "PRECONDITION_FAILED - message size 9 larger than max size 536870912",
                EventsAtFault::LargerThan(536_870_912),
            ),
            (
                403,
                "ACCESS_REFUSED - access to topic 'it's' in exchange 'x' in vhost '/' refused for \
                 user 'u'",
                EventsAtFault::Topic("it's".to_owned()),
            ),
            (
                403,
                "ACCESS_REFUSED - write access to topic 'a.b' in exchange 'x' in vhost '/' refused \
                 for user 'u'",
                EventsAtFault::Topic("a.b".to_owned()),
            ),
        ] {
            assert_eq!(
                BrokerFault::closed("channel", code, text).at_fault,
                Some(at_fault),
                "{text}"
            );
        }
    }
}
