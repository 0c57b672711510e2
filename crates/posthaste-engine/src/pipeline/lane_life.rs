//! The lane's life: opened, failed, aborted, and told how far the store is.

use std::ops::Range;

use super::{Pipeline, breaker::BreakerState};
use crate::{
    FenceKind, Moment, SinkError,
    rule::{Rule, left_out},
};

impl Pipeline {
    /// When the oldest batch without an answer was submitted; its records are late at a publish
    /// time-out after that.
    #[must_use]
    pub fn oldest_in_flight(&self) -> Option<Moment> {
        self.lane.oldest()
    }

    /// Records handed to the lane and not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.lane.in_flight()
    }

    /// Whether the runner is to open a lane now.
    pub fn wants_lane(&mut self, now: Moment) -> bool {
        self.lane.may_open(now) && !self.paused && !self.is_open(now)
    }

    /// Bytes of a lane that an earlier claim aborted may still arrive: none is opened before
    /// `until`.
    pub fn settle_until(&mut self, until: Moment) {
        self.lane.wait_until(until);
    }

    /// A lane was opened.
    pub fn lane_opened(&mut self) {
        self.lane.opened(self.reports.counts.read);
        self.retries.lane_opened();
    }

    /// No lane could be opened.
    pub fn lane_refused(&mut self, error: &SinkError, now: Moment, random: f64) {
        self.reports.counts.unavailable += 1;
        self.breaker
            .unavailable(error.to_string(), None, now, random);
    }

    /// Whether the runner is to abort the lane and then call [`lane_ended`](Self::lane_ended).
    #[must_use]
    pub fn wants_abort(&self) -> bool {
        self.lane.has_failed()
    }

    /// The lane has to go: the right to send has ended.
    pub fn fail_lane(&mut self, reason: &str, now: Moment, random: f64) {
        if self.lane.fail() {
            self.reports.counts.unavailable += 1;
            self.breaker
                .unavailable(reason.to_owned(), None, now, random);
        }
    }

    /// The lane was aborted. Everything without an answer will be sent again, after the settle time
    /// unless the sink fences exactly.
    pub fn lane_ended(&mut self, now: Moment) {
        let settles = self.info.fence != FenceKind::Exact && !left_out(Rule::AbortEndsConnection);
        self.lane.ended(now, settles.then_some(self.limits.settle));
        self.main.unsend_all();
        self.side.window().unsend_all();
        self.retries.unsend_all();
        self.waiting.lane_ended();
    }

    /// Tickets of events that went behind what the store holds since the last call
    /// ([`crate::StoredProgress::Finished`]).
    pub fn take_behind_the_store(&mut self) -> std::vec::Drain<'_, Range<u64>> {
        self.progress.take_behind_the_store()
    }

    /// Once for each lane: everything that was visible at the claim, or read before the lane was
    /// opened, is behind what the store holds ([`crate::StoredProgress::CaughtUp`]).
    pub fn take_caught_up(&mut self) -> bool {
        self.retries.none_waits()
            && self.is_drained()
            && self.lane.tell_caught_up(self.progress.stored())
    }

    /// Whether the lane would be told so if it were known that no copy was put off: its event may
    /// be one that was accepted, and that the lane has to know again.
    pub(super) fn may_have_caught_up(&self, now: Moment) -> bool {
        self.retries.may_ask_for_put_off(now)
            && self.is_drained()
            && self.lane.may_have_caught_up(self.progress.stored())
    }

    /// Whether the breaker is open: nothing is sent.
    pub(super) fn is_open(&mut self, now: Moment) -> bool {
        matches!(self.breaker.state(now), BreakerState::Open { .. })
    }
}
