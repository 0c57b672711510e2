//! Rejected events: when each is tried again, and what is parked.

use super::{
    Pipeline,
    change::Change,
    progress::UnderWay,
    ticket::{Group, Ticket},
    window::ToPark,
};
use crate::{
    AfterFailure, DeliveryPolicy, OnDead, ParkedCopy, Parking, Rejection, RejectionKind,
    Settlement, StoredEvent,
};

impl Pipeline {
    /// An event of a window was rejected for good: it is parked once the fate of every earlier
    /// event of its key is known.
    pub(super) fn fail(&mut self, ticket: Ticket, rejection: Rejection) {
        if let Some(window) = self.window_of(ticket.group()) {
            window.fail(ticket.number(), rejection);
        }
    }

    /// An attempt with a parked copy was rejected.
    pub(super) fn retry_rejected(
        &mut self,
        ticket: Ticket,
        copy: &ParkedCopy,
        rejection: Rejection,
        random: f64,
    ) {
        let policy = self.router.policy(&copy.event);
        let attempts = copy.attempts.saturating_add(1);
        let next = self.after_attempt(attempts, policy, &rejection, random);
        self.report_refused(&copy.event, &rejection, (attempts, next), copy.holds_key);
        let (kind, reason) = (rejection.kind.as_str(), rejection.reason);
        let settlement = Settlement::Failed { kind, reason, next };
        self.retries.settle(ticket, copy.id, settlement);
    }

    /// The next state of an event after so many attempts.
    fn after_attempt(
        &self,
        attempts: u32,
        policy: DeliveryPolicy,
        rejection: &Rejection,
        random: f64,
    ) -> AfterFailure {
        if attempts < policy.attempts_when(rejection.kind) {
            return AfterFailure::RetryIn(self.limits.retry.delay(attempts, random));
        }
        match policy.on_dead {
            OnDead::Skip => AfterFailure::Skip,
            OnDead::Block => AfterFailure::Dead,
        }
    }

    /// Reports an event whose attempts are used up, and one that may wait for hours now.
    fn report_refused(
        &mut self,
        event: &StoredEvent,
        rejection: &Rejection,
        (attempts, next): (u32, AfterFailure),
        holds_key: bool,
    ) {
        let is_dead = next.retry_in().is_none();
        if is_dead || attempts == 1 && !rejection.kind.is_fault_of_the_event() {
            let key_waits = next != AfterFailure::Skip && holds_key && event.key().is_some();
            self.reports.refused(event, rejection, key_waits, is_dead);
        }
    }

    /// Rejected events that may be parked now: each becomes a copy and, unless its key goes on
    /// without it, a marker. A later one of a key that is parked by then is left to the side read.
    pub(super) fn next_parkings(&mut self, random: f64) -> Option<Change> {
        if self.failed_events() == 0 {
            return None;
        }
        let (main, side) = (self.main.parkable(), self.side.window().parkable());
        let main = main.into_iter().map(|number| Group::Main.ticket(number));
        let side = side.into_iter().map(|number| Group::Side.ticket(number));
        let (mut parkings, mut tickets) = (Vec::new(), Vec::new());
        for ticket in main.chain(side) {
            let (group, number) = (ticket.group(), ticket.number());
            let window = self.window_of(group);
            let Some(to_park) = window.and_then(|window| window.begin_to_park(number)) else {
                continue;
            };
            if self.leaves_out(group, &to_park.event) {
                if let Some(window) = self.window_of(group) {
                    window.finish(number, false);
                }
                continue;
            }
            let parking = self.parking(group, to_park, random);
            tickets.push((ticket, parking.next == AfterFailure::Skip));
            parkings.push(parking);
        }
        if parkings.is_empty() {
            return None;
        }
        self.progress.begin(UnderWay::Park(tickets));
        Some(Change::Park(parkings))
    }

    fn leaves_out(&self, group: Group, event: &StoredEvent) -> bool {
        match group {
            Group::Main => self.waiting.is_parked(event),
            Group::Side | Group::Retries => !self.side.reads(event),
        }
    }

    fn parking(&mut self, group: Group, to_park: ToPark, random: f64) -> Parking {
        let ToPark {
            event,
            at,
            rejection,
        } = to_park;
        let (attempts, next) = if rejection.kind == RejectionKind::NotNow {
            let wait = self.wait_of_copy(&event, random);
            (0, AfterFailure::RetryIn(wait))
        } else {
            let policy = self.router.policy(&event);
            let next = self.after_attempt(1, policy, &rejection, random);
            self.report_refused(&event, &rejection, (1, next), true);
            (1, next)
        };
        if let Some(key) = event.order_key().filter(|_| next != AfterFailure::Skip) {
            let was_parked = group == Group::Side;
            self.waiting.park(key, was_parked);
            if was_parked {
                self.side.leave(key);
            }
        }
        Parking {
            event,
            at,
            attempts,
            kind: rejection.kind.as_str(),
            reason: rejection.reason,
            next,
        }
    }
}
