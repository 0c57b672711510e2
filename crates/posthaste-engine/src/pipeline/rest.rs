//! Rest: whether anything is left to do, and when something will be.

use super::{Pipeline, breaker::BreakerState};
use crate::{Moment, StoredEvent};

impl Pipeline {
    /// After [`stop`](Self::stop): nothing is in flight and all progress is stored, or the
    /// destination is away so that no more can come of waiting.
    pub fn is_stopped(&mut self, now: Moment) -> bool {
        let away = self.paused
            || self.breaker.state(now) != BreakerState::Closed
            || !self.lane.is_open() && !self.waiting.has_suspects()
            || self.waiting.has_refused();
        let sent = self.lane.in_flight() == 0 && (away || !self.has_unsent(now));
        sent && !self.stop_leaves
            && self.failed_events() == 0
            && !self.progress.is_changing()
            && self.main.done_prefix() == 0
            && self.side.is_stored()
            && !self.retries.has_settlements()
            && self.progress.owes_no_advance()
    }

    fn has_unsent(&mut self, now: Moment) -> bool {
        let may = self.stop_behind.is_none() || self.main.has_ready();
        let behind = self.stop_behind.unwrap_or(u64::MAX);
        may && !self.is_open(now) && self.main.peek_ready().is_some_and(|(n, _)| n < behind)
    }

    /// Whether everything that was visible when this claim was opened is accepted, parked, or
    /// blocked behind a parked event, and that is stored; and no copy is looked for that may be
    /// sent before it is due.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let target = self.reading.drain_target();
        target.is_some_and(|target| self.progress.stored() >= target)
            && self.retries.has_looked()
            && self.waiting.next_look().is_none()
            && self.is_idle_but_for_main()
    }

    /// Whether there is nothing to do: the last read brought all that there was, and nothing that
    /// was read waits for the store, or for a part of the destination that no operator has paused.
    pub fn is_idle(&mut self) -> bool {
        let (waiting, router) = (&self.waiting, &self.router);
        let waits = |event: &StoredEvent| {
            waiting.is_parked(event) || waiting.is_place_paused(event, router)
        };
        self.reading.is_caught_up()
            && self.main.is_done_but_for(waits)
            && self.is_idle_but_for_main()
    }

    fn is_idle_but_for_main(&self) -> bool {
        self.side.is_idle() && self.retries.is_idle() && !self.progress.is_changing()
    }

    /// When something is due by itself, later than `now`; the runner wakes then at the latest. Work
    /// that is due already and was not done waits for an answer.
    pub fn next_wake(&mut self, now: Moment) -> Option<Moment> {
        let probe = match self.breaker.state(now) {
            BreakerState::Open { until } => Some(until),
            BreakerState::Closed | BreakerState::HalfOpen => None,
        };
        let has_refused = self.waiting.has_refused();
        let refused = self.refusals.next_turn(now).filter(|_| has_refused);
        let dues = [
            Some(self.retries.look_at()),
            Some(self.reading.next()),
            self.progress.next_advance_at(&mut self.main, &self.limits),
            probe,
            self.lane.opens_at(),
            self.waiting.next_place_at(),
            refused,
        ];
        let has_suspects = self.waiting.has_suspects();
        let trials = self.trials.turns().into_iter().filter(|_| has_suspects);
        let dues = dues.into_iter().chain(trials).flatten();
        dues.filter(|&due| due > now).min()
    }
}
