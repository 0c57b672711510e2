//! The side read beside the main group: its next step, and the answers to its steps.

use super::{Pipeline, side::SideStep, ticket::Group, window::State};
use crate::{Moment, Page, RouteDecision};

impl Pipeline {
    /// The next step of the side read; the caller answers with [`side_opened`](Self::side_opened),
    /// [`side_read`](Self::side_read), [`side_advanced`](Self::side_advanced) or
    /// [`side_joined`](Self::side_joined).
    pub fn next_side_step(&mut self) -> Option<SideStep> {
        if self.stop_behind.is_some() {
            return self.side.last_step();
        }
        // Until the main group has read all that was visible at the claim it may stand before a
        // marker of an earlier claim, and a join there would repeat what lies between.
        // Without keys to read nothing is asked of the window, which may be long.
        if self.paused || self.side.is_idle() || self.reading.drain_target().is_none() {
            return None;
        }
        let may_hold = self.may_hold_main();
        let budget = self.read_budget(self.limits.batch_events);
        let joinable = self.reading.joinable();
        let standing = joinable.filter(|_| self.stands());
        self.side.next_step(budget, joinable, standing, may_hold)
    }

    /// Whether the main group may stand still: what was read is done, or the destination takes what
    /// it is sent.
    pub(super) fn may_hold_main(&mut self) -> bool {
        let waits = !self.main.is_done() || !self.side.is_done();
        let is_well =
            self.breaker.is_closed() && !self.waiting.has_suspects() && !self.waiting.has_refused();
        !waits || is_well && !self.is_put_off()
    }

    /// Whether the main group stands still at a joinable place with everything before it stored.
    fn stands(&self) -> bool {
        self.side.holds_main()
            && self.reading.is_joinable()
            && !self.reading.is_under_way()
            && self.main.is_empty()
            && self.progress.is_all_stored()
            && !self.progress.is_changing()
    }

    /// The side read was opened.
    pub fn side_opened(&mut self) {
        self.side.opened();
    }

    /// The side read brought a page.
    pub fn side_read(&mut self, page: Page) {
        let Self { side, router, .. } = self;
        side.read(page, |event| {
            let taken = matches!(router.decide(event), RouteDecision::Take(_));
            (!taken).then_some(State::Done { finished: true })
        });
    }

    /// The markers were moved.
    pub fn side_advanced(&mut self) {
        let names = Group::Side.names(0..self.side.window().first());
        self.progress.behind_the_store(names);
        self.side.advanced();
    }

    /// The markers are gone: the keys are the main group's again. Answers how many.
    pub fn side_joined(&mut self, now: Moment) -> usize {
        let keys = self.side.joined();
        for key in &keys {
            self.waiting.joined(key);
        }
        self.retries.look_again(now);
        keys.len()
    }
}
