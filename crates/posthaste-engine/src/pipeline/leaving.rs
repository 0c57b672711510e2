//! Events that wait long for their place leave the window, so that it does not fill with them. So
//! do suspects, once what is done behind them fills it: nothing could be read that shows whether
//! they are at fault.
//!
//! The first event of each key that waits is parked, with the cause *not now* and no attempt used
//! up: it is tried again like any parked event, and what follows in its key comes back by the side
//! read. An event without a key is parked alone.

use std::time::Duration;

use super::{
    Pipeline,
    side::has_key,
    ticket::{Group, Ticket},
};
use crate::{
    Moment, Rejection, RejectionKind, Settlement, StoredEvent,
    rule::{Rule, left_out},
};

/// How long a place may hold its events in the window.
const STAY: Duration = Duration::from_secs(60);
/// They leave earlier once they fill one part of so many of the window.
const PARTS: usize = 4;
/// And where as much of it is read and not stored: what is done behind them waits for them, too.
const PARTS_BEHIND: usize = 2;

impl Pipeline {
    /// Whether an event waits in a window for a place that does not take everything.
    pub(super) fn is_put_off(&mut self) -> bool {
        let Self {
            main,
            side,
            waiting,
            router,
            ..
        } = self;
        let is_limited = |event: &StoredEvent| waiting.is_limited(event, router);
        waiting.holds_back()
            && [main, side.window()]
                .into_iter()
                .any(|window| window.any_undone(is_limited))
    }

    /// Lets events leave that wait for places, where they fill the window or have waited long. Once
    /// as many keys are blocked as may be, they stay.
    pub(super) fn leave_window(&mut self, now: Moment) {
        if self.paused || now < self.leave_at {
            return;
        }
        self.leave_at = now.after(self.limits.advance_every);
        if self.waiting.has_suspects()
            && self.limits.is_much(self.progress.unstored(), PARTS_BEHIND)
        {
            self.suspects_leave();
        }
        // While nothing can be tried, nothing new is known of a place.
        if self.breaker.is_closed()
            && !left_out(Rule::LongWaitLeavesWindow)
            && let Some(since) = self.waiting.held_back_since()
        {
            self.held_back_leave(since, now);
        }
    }

    fn suspects_leave(&mut self) {
        let Self { main, waiting, .. } = self;
        let leaving = main.failing_alone(|event| !waiting.is_parked(event));
        for (number, event) in leaving.into_iter().take(self.limits.batch_events) {
            if !self.may_leave(event.key().is_some()) {
                continue;
            }
            self.waiting.clear(&event);
            let rejection = Rejection {
                kind: RejectionKind::NotNow,
                reason: "the lane ended with nothing else in flight, and others were taken \
                         before; it is tried again"
                    .to_owned(),
            };
            self.fail(Group::Main.ticket(number), rejection);
        }
    }

    fn held_back_leave(&mut self, since: Moment, now: Moment) {
        let Self {
            main,
            side,
            waiting,
            router,
            limits,
            progress,
            ..
        } = self;
        let is_held = |event: &StoredEvent| waiting.held_place(event, router).is_some();
        let (window, keys) = side.gathered();
        let put_off = |is: &dyn Fn(&StoredEvent) -> bool| {
            let in_main = main.put_off(|event| is(event) && !waiting.is_parked(event));
            let in_side = window.put_off(|event| is(event) && has_key(keys, event));
            (in_main, in_side)
        };
        let (mut in_main, mut in_side) = put_off(&is_held);
        let events = in_main.events + in_side.events;
        let bytes = in_main.bytes + in_side.bytes;
        if events == 0 {
            return;
        }
        let is_full = limits.is_much((events, bytes), PARTS)
            || limits.is_much(progress.unstored(), PARTS_BEHIND);
        if !is_full {
            if now < since.after(STAY) {
                return;
            }
            // A place may be held back for hours, or paused, and another one for a moment.
            let is_long = |event: &StoredEvent| waiting.is_held_for((event, router), STAY, now);
            (in_main, in_side) = put_off(&|event| is_held(event) && is_long(event));
        }
        let main = in_main.first.into_iter().map(|of| (Group::Main, of));
        let side = in_side.first.into_iter().map(|of| (Group::Side, of));
        let max = self.limits.blocked_keys_max;
        let mut no_room = None;
        for (group, (number, is_keyed)) in main.chain(side).take(self.limits.batch_events) {
            if !self.may_leave(is_keyed) {
                no_room = Some(max);
                continue;
            }
            let ticket = group.ticket(number);
            if let Some(rejection) = self.not_now(ticket) {
                self.fail(ticket, rejection);
            }
        }
        self.waiting.has_no_room(no_room);
    }

    /// Whether there is room for a parked key, or for another event without one.
    fn may_leave(&mut self, is_keyed: bool) -> bool {
        if is_keyed {
            return self.may_block_more();
        }
        let is_room = self.put_off_alone < self.limits.blocked_keys_max;
        self.put_off_alone += usize::from(is_room);
        is_room
    }

    fn not_now(&mut self, ticket: Ticket) -> Option<Rejection> {
        let window = self.window_of(ticket.group())?;
        let event = window.entry_mut(ticket.number())?.event.clone();
        let (place, _, reason) = self.waiting.held_place(&event, &self.router)?;
        let rejection = Rejection {
            kind: RejectionKind::NotNow,
            reason: reason.to_owned(),
        };
        self.waiting.sets_aside(place);
        Some(rejection)
    }

    /// Copies that are due and whose place is held back are tried when it returns: one of each is
    /// kept for that, the others fall due again later.
    pub(super) fn put_off_retries(&mut self, random: f64) {
        if !self.waiting.holds_back() {
            return;
        }
        let Self {
            retries,
            waiting,
            router,
            limits,
            ..
        } = self;
        let place = |event: &StoredEvent| waiting.held_place(event, router);
        retries.put_off(place, |copy, refusals, reason| Settlement::Postponed {
            kind: copy.kind_when_postponed(),
            reason: reason.to_owned(),
            retry_in: limits.retry.delay(refusals, random),
        });
    }
}
