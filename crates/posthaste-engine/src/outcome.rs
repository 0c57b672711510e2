//! How a record ended: accepted, refused for its own sake, put off, or unknown.

use std::{fmt, sync::Arc, time::Duration};

/// The longest wait that a broker may ask for; it is asked again after that.
pub(crate) const ASKED_WAIT_MAX: Duration = Duration::from_secs(300);

/// Most characters of a reason: it goes into logs, and with each parked event into the database.
const REASON_CHARS_MAX: usize = 1_000;

/// A reason as one line within bounds. Brokers' own words may be in it.
pub(crate) fn line(reason: impl Into<String>) -> String {
    let reason: String = reason.into();
    let is_cut = reason.char_indices().nth(REASON_CHARS_MAX);
    if is_cut.is_none() && !reason.contains(char::is_control) {
        return reason;
    }
    let kept = is_cut.map_or(&*reason, |(end, _)| &reason[..end]);
    let mut line: String = kept
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    if is_cut.is_some() {
        line.push('…');
    }
    line
}

/// Why the broker refused this one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// Larger than the broker takes.
    TooLarge,
    /// The broker's schema or validation refused it.
    Invalid,
    /// The broker has nowhere to put it.
    Unroutable,
    /// The broker denies us the place where this event belongs, not the whole destination.
    Denied,
    /// It failed alone, again and again, while its destination accepted others.
    FailsAlone,
    /// Nothing is wrong with it: the place that it goes to takes nothing for now
    /// ([`Outcome::Later`]). It uses up no attempt.
    NotNow,
    /// The store cannot read what was written ([`crate::StoredEvent::fault`]): no sink saw it.
    Undecodable,
    /// Anything else that is this event's fault.
    Other,
}

impl RejectionKind {
    /// Whether people mend it at the broker: with a topic, a queue or a right. The event is as good
    /// as any then.
    #[must_use]
    pub fn is_mended_at_the_broker(self) -> bool {
        matches!(self, Self::Unroutable | Self::Denied)
    }

    /// Whether the event was found faulty: no wait makes it a better one.
    #[must_use]
    pub fn is_fault_of_the_event(self) -> bool {
        matches!(self, Self::TooLarge | Self::Invalid | Self::Undecodable)
    }

    /// The name used in tables, logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
            Self::Unroutable => "unroutable",
            Self::Denied => "denied",
            Self::FailsAlone => "fails_alone",
            Self::NotNow => "not_now",
            Self::Undecodable => "undecodable",
            Self::Other => "other",
        }
    }
}

/// The event is at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The class, by which the breaker counts; where people mend it at the broker, by topic as
    /// well.
    pub kind: RejectionKind,
    /// The broker's answer in words; never contains payload or header values.
    pub reason: String,
}

/// Why the destination did not take an event, though the event may be fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// No connection, or it broke.
    Connection,
    /// The answer is unknown, or came too late.
    Unknown,
    /// The destination as a whole asks to slow down. Of a place that does, [`Outcome::Later`]
    /// tells.
    Throttled,
    /// The broker denies us.
    Denied,
    /// The destination is set up wrongly: missing topic, directory, exchange.
    Misconfigured,
    /// Not tried: an earlier record of this key was not accepted on this lane.
    BehindFailure,
    /// Not tried, or unknown: the lane was aborted or closed first.
    LaneEnded,
}

impl Cause {
    /// The name used in tables, logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Unknown => "unknown",
            Self::Throttled => "throttled",
            Self::Denied => "denied",
            Self::Misconfigured => "misconfigured",
            Self::BehindFailure => "behind_failure",
            Self::LaneEnded => "lane_ended",
        }
    }
}

/// The destination is at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailability {
    /// The class.
    pub cause: Cause,
    /// The failure in words, with the fix where one is known.
    pub reason: String,
    /// How long the destination asked us to wait; the engine waits five minutes at the most.
    pub wait: Option<Duration>,
}

impl Unavailability {
    /// A fault of this class, for which nothing says how long to wait.
    #[must_use]
    pub fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            cause,
            reason: line(reason),
            wait: None,
        }
    }
}

impl fmt::Display for Unavailability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.cause.as_str())
    }
}

/// Not now: the place that the record goes to ([`crate::TopicParts`]) takes nothing for the moment,
/// as a full queue, while the destination is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postponement {
    /// The broker's answer in words, with the fix where one is known.
    pub reason: String,
    /// How long the broker asked us to wait; the engine waits five minutes at the most.
    pub wait: Option<Duration>,
    /// It was sent, and not answered in time, while the broker answered what was sent behind it on
    /// the same connection. The broker has read it then, and may still take it.
    pub is_silent: bool,
}

impl Postponement {
    /// One for which nothing says how long to wait.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: line(reason),
            wait: None,
            is_silent: false,
        }
    }
}

/// The broker's words as it took a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// The number under which the broker keeps the record: the offset in its partition, the
    /// sequence in its stream. None where it gives none, or tells it only at a price.
    pub receipt: Option<u64>,
    /// The broker had the record already, and keeps no second one.
    pub is_duplicate: bool,
}

/// How one record ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker has taken responsibility.
    Accepted(Acceptance),
    /// This event is at fault.
    Rejected(Box<Rejection>),
    /// The event is as good as any, and is to be tried later. The lane goes on; where it is
    /// [pipelined](crate::KeyOrder::Pipelined), what follows of the key is *behind failure*. No
    /// answer of a lane that [keeps progress](crate::Lane::progressed): an event whose fate is
    /// unknown may leave the window for it, and such a lane would forget that it took it.
    Later(Box<Postponement>),
    /// The destination is at fault, or the fate is unknown. Shared: all records of a lane end
    /// alike.
    Unavailable(Arc<Unavailability>),
}

impl Outcome {
    /// Accepted, by a broker that says no more than that.
    #[must_use]
    pub fn accepted() -> Self {
        Self::Accepted(Acceptance::default())
    }

    /// An event's fault.
    #[must_use]
    pub fn rejected(kind: RejectionKind, reason: impl Into<String>) -> Self {
        Self::Rejected(Box::new(Rejection {
            kind,
            reason: line(reason),
        }))
    }

    /// Not now.
    #[must_use]
    pub fn later(reason: impl Into<String>) -> Self {
        Self::Later(Box::new(Postponement::new(reason)))
    }

    /// Not answered in time, on a lane that answers others: [`Postponement::is_silent`].
    #[must_use]
    pub fn silent(reason: impl Into<String>) -> Self {
        Self::Later(Box::new(Postponement {
            is_silent: true,
            ..Postponement::new(reason)
        }))
    }

    /// A destination's fault.
    #[must_use]
    pub fn unavailable(cause: Cause, reason: impl Into<String>) -> Self {
        Self::Unavailable(Arc::new(Unavailability::new(cause, reason)))
    }
}

/// The outcome of the record with this ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// [`Record::ticket`](crate::Record::ticket).
    pub ticket: u64,
    /// How it ended.
    pub outcome: Outcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_within_bounds() {
        assert_eq!(line("no room: müde"), "no room: müde");
        assert_eq!(line("bye\n2026 ERROR\u{9b}1m"), "bye 2026 ERROR 1m");
        let long = line("ü".repeat(REASON_CHARS_MAX + 1));
        assert_eq!(long, "ü".repeat(REASON_CHARS_MAX) + "…");
    }
}
