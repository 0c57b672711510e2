//! Why a service did not take an event, or a request.

use std::time::Duration;

use posthaste_engine::{Cause, RejectionKind, SinkError, Unavailability};
use tokio::time::timeout;

/// The end of an event's way to a service.
pub(crate) type Answer = Result<(), Refusal>;

/// The part of the world that is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// One event. Of a request with several, nobody knows which.
    Event(RejectionKind),
    /// The queue, topic or stream, for now or until somebody changes something.
    Place(Cause),
    /// Nobody says which. A server that let us connect is there: it is the place's, where each
    /// topic has one, or that of one event.
    Unclear(Cause),
    /// The service, our account, or the way to it.
    Service(Cause),
}

/// Why an event, or a request, was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) blame: Blame,
    /// In words, with the fix where one is known.
    pub(crate) reason: String,
}

impl Refusal {
    /// The service, or the way to it, is at fault.
    pub(crate) fn of_service(cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            blame: Blame::Service(cause),
            reason: reason.into(),
        }
    }

    /// Nobody says who is at fault.
    pub(crate) fn unclear(cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            blame: Blame::Unclear(cause),
            ..Self::of_service(cause, reason)
        }
    }

    /// Nothing was said of an event, in an answer that says something of each.
    pub(crate) fn unanswered() -> Self {
        let reason = "the service's answer says nothing of this event";
        Self {
            blame: Blame::Place(Cause::Unknown),
            ..Self::of_service(Cause::Unknown, reason)
        }
    }

    /// There was no answer in time.
    fn slow(limit: Duration) -> Self {
        Self::of_service(Cause::Connection, format!("no answer within {limit:?}"))
    }

    /// The same as the end of a lane.
    pub(crate) fn unavailability(&self) -> Unavailability {
        let cause = match self.blame {
            Blame::Place(cause) | Blame::Unclear(cause) | Blame::Service(cause) => cause,
            Blame::Event(_) => Cause::Unknown,
        };
        Unavailability::new(cause, self.reason.as_str())
    }

    /// The same as the answer of `check` and `open_lane`.
    fn into_error(self, target: String) -> SinkError {
        SinkError::new(self.unavailability().cause, target, self.reason)
    }
}

/// An answer within this time, or the error of a sink of this name. Futures of AWS's SDK are
/// large: the caller boxes them.
pub(crate) async fn within<T>(
    limit: Duration,
    asking: impl Future<Output = Result<T, Refusal>>,
    name: impl FnOnce() -> String,
) -> Result<T, SinkError> {
    let answer = timeout(limit, asking).await;
    let answer = answer.unwrap_or_else(|_| Err(Refusal::slow(limit)));
    answer.map_err(|refusal| refusal.into_error(name()))
}

/// The beginning of a text from outside, in one line.
pub(crate) fn excerpt(text: &str, chars_max: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
