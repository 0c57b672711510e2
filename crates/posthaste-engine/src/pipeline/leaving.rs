//! Events that wait long for their place leave the window, so that it does not fill with them. From
//! one that takes others again and again, only those leave that it has refused: the others would
//! come back one by one. So do suspects, once what is done behind them fills it: nothing could be
//! read that shows whether they are at fault.
//!
//! The first event of each key that waits is parked, with the cause *not now* and no attempt used
//! up: it is tried again like any parked event, and what follows in its key comes back by the side
//! read. An event without a key is parked alone.

use std::time::Duration;

use super::{
    Pipeline,
    progress::UnderWay,
    side::has_key,
    ticket::{Group, Ticket},
};
use crate::{
    DueAt, Moment, PutOff, Rejection, RejectionKind, Settlement, StoredEvent,
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
        if self.stop_leaves {
            return self.leave_before_the_stop(now);
        }
        if self.paused || now < self.leave_at {
            return;
        }
        self.leave_at = now.after(self.limits.advance_every);
        if self.waiting.has_suspects()
            && self.limits.is_much(self.progress.unstored(), PARTS_BEHIND)
        {
            self.suspects_leave();
        }
        if !left_out(Rule::LongWaitLeavesWindow)
            && let Some(since) = self.waiting.held_back_since()
        {
            self.held_back_leave(since, now);
        }
    }

    /// Else events that were delivered behind those that wait for their place would come again.
    fn leave_before_the_stop(&mut self, now: Moment) {
        let since = self.waiting.held_back_since();
        let mut leaves = since.map_or(0, |since| self.held_back_leave(since, now));
        if self.paused {
            leaves += self.unsent_leave();
            // Nothing is gathered, which would pass what follows them.
            let waiting = &self.waiting;
            for number in self.main.ready_of(|event| waiting.is_parked(event)) {
                self.main.finish(number, false);
            }
        }
        self.stop_leaves = leaves > 0;
    }

    /// The pause of a place has ended, and the whole destination is paused: what waited for the
    /// place is sent no more, though others were delivered behind it. How many leave.
    fn unsent_leave(&mut self) -> usize {
        let Self { main, waiting, .. } = self;
        let first = main.put_off(|event| !waiting.is_parked(event)).first;
        let unsent = self.stop_behind.unwrap_or(u64::MAX);
        let first = first.into_iter().filter(|(number, _)| *number < unsent);
        let mut left = 0;
        for (number, is_keyed) in first.take(self.limits.batch_events) {
            if self.may_leave(is_keyed) {
                let rejection = Rejection {
                    kind: RejectionKind::NotNow,
                    reason: "the destination was paused by an operator".to_owned(),
                };
                self.fail(Group::Main.ticket(number), rejection);
                left += 1;
            }
        }
        left
    }

    fn suspects_leave(&mut self) {
        // All others were answered before lanes failed.
        let no_witness = self.trials.are_long_unanswered() && self.witnesses(1) == 0;
        let Self { main, waiting, .. } = self;
        let leaving = main.suspects(|event, is_against| {
            let failed = is_against || no_witness && waiting.has_failed_alone(event);
            failed && !waiting.is_parked(event)
        });
        for (number, event) in leaving.into_iter().take(self.limits.batch_events) {
            if !self.may_leave(event.key().is_some()) {
                continue;
            }
            self.waiting.clear(&event);
            let rejection = Rejection {
                kind: RejectionKind::NotNow,
                reason: "the lane ended with nothing else in flight, and all others were taken; \
                         it is tried again"
                    .to_owned(),
            };
            self.fail(Group::Main.ticket(number), rejection);
        }
    }

    /// How many leave.
    fn held_back_leave(&mut self, since: Moment, now: Moment) -> usize {
        // While nothing can be tried, nothing new is known of a place, but that it is paused.
        let is_away = !self.breaker.is_closed();
        if is_away && !self.waiting.pauses_places() {
            return 0;
        }
        let Self {
            main,
            side,
            waiting,
            router,
            limits,
            progress,
            stop_behind,
            ..
        } = self;
        let is_held = |event: &StoredEvent| match is_away {
            false => waiting.held_place(event, router).is_some(),
            true => waiting.is_place_paused(event, router),
        };
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
            return 0;
        }
        let all_leave = stop_behind.is_some() || limits.is_much(progress.unstored(), PARTS_BEHIND);
        if !all_leave {
            let is_full = limits.is_much((events, bytes), PARTS);
            if !is_full && now < since.after(STAY) {
                return 0;
            }
            // A place may be held back for hours, or paused, and another one for a moment, or again
            // and again over one key.
            let is_long = |event: &StoredEvent| waiting.is_held_for((event, router), STAY, now);
            (in_main, in_side) = put_off(&|event| {
                let is_stuck = is_held(event) && waiting.is_stuck((event, router), now);
                is_stuck && (is_full || is_long(event))
            });
        }
        let unsent = stop_behind.unwrap_or(u64::MAX);
        let main = in_main.first.into_iter().filter(|(n, _)| *n < unsent);
        let main = main.map(|of| (Group::Main, of));
        let side = in_side.first.into_iter().map(|of| (Group::Side, of));
        let max = self.limits.blocked_keys_max;
        let (mut no_room, mut left) = (None, 0);
        for (group, (number, is_keyed)) in main.chain(side).take(self.limits.batch_events) {
            if !self.may_leave(is_keyed) {
                no_room = Some(max);
                continue;
            }
            let ticket = group.ticket(number);
            if let Some(rejection) = self.not_now(ticket) {
                self.fail(ticket, rejection);
                left += 1;
            }
        }
        self.waiting.has_no_room(no_room);
        left
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
        let (place, reason) = self.waiting.held_place(&event, &self.router)?;
        let rejection = Rejection {
            kind: RejectionKind::NotNow,
            reason: reason.to_owned(),
        };
        self.waiting.sets_aside(place);
        Some(rejection)
    }

    /// Copies that are due and whose place is held back are due again later. None of them stays in
    /// memory, where an operator's decision would not be seen.
    pub(super) fn put_off_retries(&mut self, random: f64) {
        if !self.waiting.holds_back() {
            return;
        }
        let Self {
            retries,
            waiting,
            router,
            ..
        } = self;
        let held = retries.take_held(|event| waiting.stays_held(event, router));
        for copy in held {
            let reason = self.waiting.held_place(&copy.event, &self.router);
            let reason = reason.map_or(String::new(), |(_, reason)| reason.to_owned());
            let settlement = Settlement::Postponed {
                kind: copy.kind_when_postponed(),
                reason,
                retry_in: self.wait_of_copy(&copy.event, random),
            };
            self.retries.settle_unsent(copy.id, settlement);
        }
    }

    /// How soon the copy of an event that waits for its place is tried again.
    pub(super) fn wait_of_copy(&mut self, event: &StoredEvent, random: f64) -> Duration {
        let of = (event, &self.router);
        self.waiting.wait_of_copy(of, self.limits.retry, random)
    }

    /// The answer to [`Change::PutOff`](super::Change::PutOff): copies of places that have returned
    /// or are to be tried are sent before they are due.
    pub fn put_off_are(&mut self, found: Vec<PutOff>, now: Moment) {
        if let Some(UnderWay::PutOff(after)) = self.progress.take_change() {
            self.looked(after, &found, now);
        }
        let Self {
            retries,
            waiting,
            router,
            ..
        } = self;
        let copies = found.into_iter().map(|of| of.copy);
        let copies = copies.filter(|copy| waiting.has_returned(&copy.event, router));
        let copies: Vec<_> = copies.collect();
        waiting.found(copies.iter().map(|copy| &copy.event), router);
        retries.send_early(copies.into_iter());
    }

    /// A look behind this copy has found these.
    pub(super) fn looked(&mut self, after: Option<DueAt>, found: &[PutOff], now: Moment) {
        self.waiting.looked(after, found.last().map(|of| of.at));
        if after.is_none() {
            let every = self.limits.due_every;
            self.retries
                .looked_for_put_off(found.is_empty(), every, now);
        }
    }
}
