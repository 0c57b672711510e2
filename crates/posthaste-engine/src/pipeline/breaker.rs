//! A destination's breaker: an outage is not a poison event.
//!
//! ```text
//!   closed --unavailable--> open --wait is over--> half-open
//!     ^                      ^                      |   |
//!     |                      +----- unavailable ----+   |
//!     +------- accepted, refused, or put off -----------+
//! ```

use std::time::Duration;

use crate::{Backoff, Moment, outcome::ASKED_WAIT_MAX};

/// Whether the destination is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything flows.
    Closed,
    /// Nothing is sent until then.
    Open {
        /// When the next probe is due.
        until: Moment,
    },
    /// A probe may be sent.
    HalfOpen,
}

impl BreakerState {
    /// The name used in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Decides when a destination is left alone and when it is probed.
#[derive(Debug, Clone)]
pub(super) struct Breaker {
    probe: Backoff,
    state: BreakerState,
    failures: u32,
    last_error: Option<String>,
    /// When the probe under way began.
    probing_since: Moment,
}

impl Breaker {
    /// A closed breaker that probes an unavailable destination after `probe`'s waits.
    pub(super) fn new(probe: Backoff) -> Self {
        Self {
            probe,
            state: BreakerState::Closed,
            failures: 0,
            last_error: None,
            probing_since: Moment::default(),
        }
    }

    /// The state at `now`.
    pub(super) fn state(&mut self, now: Moment) -> BreakerState {
        if matches!(self.state, BreakerState::Open { until } if until <= now) {
            self.state = BreakerState::HalfOpen;
            self.probing_since = now;
        }
        self.state
    }

    /// Whether everything flows.
    pub(super) fn is_closed(&self) -> bool {
        self.state == BreakerState::Closed
    }

    /// It is probed before anything flows: somebody else found the destination away, or an operator
    /// wants it to be tried.
    pub(super) fn begin_with_a_probe(&mut self) {
        self.state = BreakerState::HalfOpen;
    }

    /// Why the breaker opened, until it closes.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The destination accepted events: it is there.
    pub(super) fn accepted(&mut self) {
        self.close();
        self.failures = 0;
    }

    /// The destination refused an event for its own sake, or put it off. That is an answer to a
    /// probe, too: it is there, and perhaps nothing else is left to send that would show it.
    pub(super) fn answered(&mut self) {
        if self.state == BreakerState::HalfOpen {
            self.close();
        }
    }

    fn close(&mut self) {
        self.state = BreakerState::Closed;
        self.last_error = None;
    }

    /// The destination is away. Opens the breaker, or keeps it open for longer.
    pub(super) fn unavailable(
        &mut self,
        reason: String,
        wait: Option<Duration>,
        now: Moment,
        random: f64,
    ) {
        self.failures = self.failures.saturating_add(1);
        let until = self.next_probe(now, random);
        self.open(reason, wait, until, now);
    }

    /// Opens it until then, or for as long as the destination asks; later waits are no longer for
    /// that.
    pub(super) fn open(
        &mut self,
        reason: String,
        asked: Option<Duration>,
        until: Moment,
        now: Moment,
    ) {
        let asked = now.after(asked.unwrap_or_default().min(ASKED_WAIT_MAX));
        let until = until.max(asked);
        self.state = BreakerState::Open { until };
        self.last_error = Some(reason);
    }

    /// Waits are counted between beginnings: a probe that hung had its wait already, and what a
    /// returned destination waits for stays within one of them.
    fn next_probe(&self, now: Moment, random: f64) -> Moment {
        let wait = self.probe.delay(self.failures, random);
        if self.state != BreakerState::HalfOpen {
            return now.after(wait);
        }
        let breath = self.probe.first.min(wait) / 2;
        self.probing_since.after(wait).max(now.after(breath))
    }

    #[cfg(feature = "model")]
    pub(super) fn describe(&mut self, out: crate::model::Out<'_>) {
        // An open breaker whose wait is over is half-open.
        self.state(Moment::default());
        let Self {
            // It never changes.
            probe: _,
            state,
            // Only the length of a wait hangs on it, and no time passes.
            failures: _,
            last_error,
            // Every moment is the first one.
            probing_since: _,
        } = self;
        out(crate::model::Part::Text(&format!(
            "{state:?} {last_error:?}"
        )));
    }
}

#[cfg(test)]
mod tests;
