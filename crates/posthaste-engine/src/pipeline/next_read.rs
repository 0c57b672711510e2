//! Reads of the main group: when and how much, and what becomes of the events of a page.

use std::collections::HashSet;

use super::{Pipeline, side::has_key, window::State};
use crate::{Budget, Moment, Page, RouteDecision};

impl Pipeline {
    /// How much to read now; none when it is not the time, or there is no room. The caller answers
    /// with [`read`](Self::read).
    pub fn next_read(&mut self, now: Moment) -> Option<Budget> {
        let may = self.reading.is_due(now)
            && !self.paused
            && self.stop_behind.is_none()
            && !self.is_held();
        let events = self.progress.room(&self.limits).filter(|_| may)?;
        if self.must_forget_keys() {
            return None;
        }
        self.reading.begin();
        Some(self.read_budget(events))
    }

    /// Whether the main group stands still for a join. It does not while an event waits for a
    /// destination that fails: others may pass, and only they show which event is at fault.
    fn is_held(&mut self) -> bool {
        if self.side.holds_main() && !self.may_hold_main() {
            self.side.let_main_go();
        }
        self.side.holds_main() && self.reading.is_joinable()
    }

    pub(super) fn read_budget(&self, events: usize) -> Budget {
        Budget {
            events: events.min(self.limits.batch_events),
            bytes: self.limits.batch_bytes,
        }
    }

    /// Whether so many parked keys are in memory that nothing may be read before some are
    /// forgotten. That takes an empty window: a page for which the store was not asked relies on
    /// the keys here.
    fn must_forget_keys(&mut self) -> bool {
        let kept = self.limits.blocked_keys_kept;
        if !self.waiting.has_too_many_keys(kept) {
            return false;
        }
        // No rejected event waits for its marker either.
        let relied_on = self.reading.is_under_way()
            || !self.main.is_empty()
            || self.failed_events() > 0
            || self.progress.is_changing();
        if !relied_on {
            self.waiting.forget_keys(kept);
        }
        relied_on
    }

    /// Whether the store is to be asked which keys of the next page are marked.
    #[must_use]
    pub fn asks_for_markers(&self) -> bool {
        self.waiting.asks_for_markers()
    }

    /// There may be something to read: an idle reader need not wait any longer.
    pub fn hint(&mut self, now: Moment) {
        self.reading.hint(now);
    }

    /// A read was answered, and nothing had to be asked
    /// ([`asks_for_markers`](Self::asks_for_markers)).
    pub fn read(&mut self, page: Page, now: Moment) {
        self.read_marked(page, &HashSet::new(), now);
    }

    /// A read was answered; of its keys, these are marked ([`crate::ClaimMarkers::marked`]).
    pub fn read_marked(&mut self, page: Page, marked: &HashSet<String>, now: Moment) {
        let Self {
            router,
            reading,
            side,
            waiting,
            reports,
            ..
        } = self;
        reports.counts.read += page.events.len() as u64;
        reading.answered(&page, reports.counts.read, now);
        if page.joinable {
            side.main_has_read();
        }
        let read = self.main.push(page, |event| {
            if reading.take_copied(event) {
                return Some(State::Done { finished: true });
            }
            match router.decide(event) {
                RouteDecision::Take(_) => {
                    let waits = waiting.is_parked(event) || has_key(marked, event);
                    return waits.then_some(State::Done { finished: false });
                }
                RouteDecision::Unrouted => reports.counts.unrouted += 1,
                RouteDecision::NotOurs | RouteDecision::Dropped | RouteDecision::OutOfTime => {}
            }
            Some(State::Done { finished: true })
        });
        self.progress.read(read);
    }
}
