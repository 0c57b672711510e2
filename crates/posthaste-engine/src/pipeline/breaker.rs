//! A destination's breaker: an outage is not a poison event.
//!
//! ```text
//!   closed --unavailable, or too many rejections--> open --wait is over--> half-open
//!     ^                                               ^                      |   |
//!     +----------- accepted, or refused alone -------(+)--- unavailable -----+   |
//!     +--------------------------------------------------------------------------+
//! ```

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::{Backoff, Moment, RejectionKind};

/// How long answers are counted together when rejections are weighed.
const MINUTE: Duration = Duration::from_secs(60);

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

/// So many topics that are refused alike each count alone: a destination that refuses everything
/// refuses few topics often, or more than anybody names by mistake.
const TOPICS_ALONE: RangeInclusive<usize> = 101..=10_000;

/// A minute's rejections of one kind.
#[derive(Debug, Clone, Default)]
struct Rejections {
    all: u64,
    /// Of each topic, by its hash, where people mend at the broker what is wrong with that topic.
    /// Once there are too many to count alone no further ones are kept.
    of_topics: HashMap<u64, u64>,
}

impl Rejections {
    /// Counts one more; answers how many count together with it.
    fn count(&mut self, kind: RejectionKind, topic: u64) -> u64 {
        self.all += 1;
        if !kind.is_mended_at_the_broker() || self.of_topics.len() > *TOPICS_ALONE.end() {
            return self.all;
        }
        let alike = self.of_topics.entry(topic).or_default();
        *alike += 1;
        let alike = *alike;
        match TOPICS_ALONE.contains(&self.of_topics.len()) {
            true => alike,
            false => self.all,
        }
    }
}

/// Decides when a destination is left alone and when it is probed.
#[derive(Debug, Clone)]
pub(super) struct Breaker {
    probe: Backoff,
    rejections_max: u64,
    state: BreakerState,
    failures: u32,
    last_error: Option<String>,
    /// When the probe under way began.
    probing_since: Moment,
    /// Opened by rejections: the destination answers, and refuses everything.
    broken: bool,
    minute_began: Moment,
    answers: u64,
    rejections: HashMap<RejectionKind, Rejections>,
}

impl Breaker {
    /// A closed breaker that probes an unavailable destination after `probe`'s waits, and takes so
    /// many rejections in a minute for poison events.
    pub(super) fn new(probe: Backoff, rejections_max: u64) -> Self {
        Self {
            probe,
            rejections_max,
            state: BreakerState::Closed,
            failures: 0,
            last_error: None,
            probing_since: Moment::default(),
            broken: false,
            minute_began: Moment::default(),
            answers: 0,
            rejections: HashMap::new(),
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

    /// Somebody else found the destination away: it is probed before anything flows.
    pub(super) fn begin_with_a_probe(&mut self) {
        self.state = BreakerState::HalfOpen;
    }

    /// Why the breaker opened, until it closes.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The destination accepted events: it is there.
    pub(super) fn accepted(&mut self, events: u64, now: Moment) {
        self.count(now);
        self.answers += events;
        self.close();
        self.broken = false;
        self.failures = 0;
    }

    fn close(&mut self) {
        self.state = BreakerState::Closed;
        self.last_error = None;
    }

    /// The destination rejected an event of this topic, which is a hash. True: this is no poison
    /// event but a broken destination (more than half of a minute's answers are alike), and the
    /// breaker is open. A probe that is refused for its own sake is an answer, too: the destination
    /// is there, and perhaps nothing else is left to send that would show it.
    pub(super) fn rejected(
        &mut self,
        kind: RejectionKind,
        topic: u64,
        reason: &str,
        now: Moment,
        random: f64,
    ) -> bool {
        self.count(now);
        self.answers += 1;
        let same = self.rejections.entry(kind).or_default().count(kind, topic);
        if !self.broken && (same <= self.rejections_max || same * 2 <= self.answers) {
            if self.state == BreakerState::HalfOpen {
                self.close();
            }
            return false;
        }
        self.broken = true;
        let error = format!(
            "{same} of {} answers were rejections: {reason}",
            self.answers
        );
        self.unavailable(error, None, now, random);
        true
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
        let until = match wait {
            Some(asked) => now.after(asked),
            None => self.next_probe(now, random),
        };
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
            // These never change.
            probe: _,
            rejections_max: _,
            state,
            // Only the length of a wait hangs on it, and no time passes.
            failures: _,
            last_error,
            // Every moment is the first one.
            probing_since: _,
            broken,
            minute_began: _,
            // A model has far fewer answers than it takes to break a destination.
            answers: _,
            rejections: _,
        } = self;
        out(crate::model::Part::Text(&format!(
            "{state:?} {last_error:?} {broken}"
        )));
    }

    fn count(&mut self, now: Moment) {
        if self.minute_began.until(now) >= MINUTE {
            self.minute_began = now;
            self.answers = 0;
            self.rejections.clear();
        }
    }
}

#[cfg(test)]
mod tests;
