//! Parked events whose time has come: sent again, each on its own, before their keys go on.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    evidence::Evidence,
    ticket::{Group, Ticket},
};
use crate::{Due, Moment, ParkedCopy, Settlement, StoredEvent};

/// An attempt with a copy, however often it has to be sent for that.
#[derive(Debug, Clone)]
pub(super) struct Retry {
    pub(super) copy: ParkedCopy,
    pub(super) evidence: Evidence,
    /// It is not due yet, and was not sent.
    is_early: bool,
}

impl Retry {
    fn new(copy: ParkedCopy, is_early: bool) -> Self {
        Self {
            copy,
            evidence: Evidence::default(),
            is_early,
        }
    }
}

/// A copy that was handed to the lane.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) batch: u64,
    pub(super) retry: Retry,
}

#[derive(Debug, Clone)]
pub(super) struct Retries {
    next_ticket: u64,
    waiting: VecDeque<Retry>,
    sent: BTreeMap<Ticket, Sent>,
    /// Each with the attempt's ticket, where there was one.
    settlements: VecDeque<(Option<Ticket>, i64, Settlement)>,
    /// When the store is asked again which copies are due.
    look_at: Moment,
    /// It was asked once.
    looked: bool,
    /// Copies that are due were left to it since.
    has_left: bool,
    /// The last answer, since the lane was opened, had none.
    none_is_due: bool,
    /// Since then the store has said that none was put off.
    none_is_put_off: bool,
    /// When it is asked that again.
    put_off_at: Moment,
}

impl Retries {
    pub(super) fn new() -> Self {
        Self {
            next_ticket: 0,
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            settlements: VecDeque::new(),
            look_at: Moment::default(),
            looked: false,
            has_left: false,
            none_is_due: false,
            none_is_put_off: false,
            put_off_at: Moment::default(),
        }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_left && self.has_none()
    }

    /// Whether there is no copy here, and nothing to settle.
    pub(super) fn has_none(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty() && self.settlements.is_empty()
    }

    /// Whether the store is to be asked which copies are due: never before the last ones are
    /// settled.
    pub(super) fn is_look_due(&self, now: Moment) -> bool {
        now >= self.look_at && self.has_none()
    }

    pub(super) fn look_at(&self) -> Moment {
        self.look_at
    }

    /// Something may have become due, or been released.
    pub(super) fn look_again(&mut self, now: Moment) {
        self.look_at = now;
    }

    /// The store has said which copies are due. Without any it is asked again after `every`, or
    /// when the next one is due.
    pub(super) fn looked(&mut self, due: Due, every: Duration, now: Moment) -> Vec<String> {
        (self.looked, self.has_left) = (true, false);
        self.none_is_due = due.events.is_empty();
        let wait = match due.next_in {
            Some(next_in) if due.events.is_empty() => next_in.min(every),
            _ if due.events.is_empty() => every,
            // More may be due: look again when these are settled.
            _ => Duration::ZERO,
        };
        self.look_at = now.after(wait);
        let retries = due.events.into_iter().map(|copy| Retry::new(copy, false));
        self.waiting.extend(retries);
        due.released
    }

    /// These copies are sent, although they are not due yet.
    pub(super) fn send_early(&mut self, copies: impl Iterator<Item = ParkedCopy>) {
        self.waiting
            .extend(copies.map(|copy| Retry::new(copy, true)));
    }

    pub(super) fn has_looked(&self) -> bool {
        self.looked
    }

    /// Whether no copy waits but those that were refused.
    pub(super) fn none_waits(&self) -> bool {
        self.none_is_due && self.none_is_put_off
    }

    /// Whether the store is to be asked if any was put off.
    pub(super) fn may_ask_for_put_off(&self, now: Moment) -> bool {
        self.none_is_due && !self.none_is_put_off && now >= self.put_off_at
    }

    /// The store has said whether any was put off. If so, it is asked again after `every`.
    pub(super) fn looked_for_put_off(&mut self, is_none: bool, every: Duration, now: Moment) {
        self.none_is_put_off = is_none;
        self.put_off_at = now.after(every);
    }

    /// A lane was opened: the answer before it says nothing to it.
    pub(super) fn lane_opened(&mut self) {
        (self.none_is_due, self.none_is_put_off) = (false, false);
        self.put_off_at = Moment::default();
    }

    /// The next copy to send of those whose turn it is, with its ticket. It counts as sent in
    /// `batch`.
    pub(super) fn take(
        &mut self,
        batch: u64,
        is_turn: impl Fn(&StoredEvent) -> bool,
    ) -> Option<(Ticket, &ParkedCopy)> {
        let mut waiting = self.waiting.iter();
        let next = waiting.position(|retry| is_turn(&retry.copy.event))?;
        let mut retry = self.waiting.remove(next)?;
        retry.is_early = false;
        let ticket = self.next_ticket();
        let sent = self.sent.entry(ticket).or_insert(Sent { batch, retry });
        Some((ticket, &sent.retry.copy))
    }

    /// Nothing can be sent for now: what an operator decides meanwhile is seen when the store is
    /// asked again. Whether some were not due yet.
    pub(super) fn leave_unsent(&mut self) -> bool {
        let mut were_early = false;
        self.waiting.retain(|retry| {
            let is_left = retry.evidence.is_none();
            were_early |= is_left && retry.is_early;
            self.has_left |= is_left && !retry.is_early;
            !is_left
        });
        were_early
    }

    /// Takes out the copies of which this is so, but for those that are not due yet: they are left
    /// to the store.
    pub(super) fn take_held(&mut self, is_held: impl Fn(&StoredEvent) -> bool) -> Vec<ParkedCopy> {
        let is_held = |retry: &Retry| is_held(&retry.copy.event);
        let (held, others) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(is_held);
        self.waiting = others;
        let held: VecDeque<Retry> = held;
        let due = held.into_iter().filter(|retry| !retry.is_early);
        due.map(|retry| retry.copy).collect()
    }

    fn next_ticket(&mut self) -> Ticket {
        let ticket = Group::Retries.ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// The event of a sent copy.
    pub(super) fn sent(&self, ticket: Ticket) -> Option<&StoredEvent> {
        self.sent.get(&ticket).map(|sent| &sent.retry.copy.event)
    }

    /// All sent copies, in the order in which they were sent.
    pub(super) fn all_sent(&mut self) -> impl Iterator<Item = &mut Retry> {
        self.sent.values_mut().map(|sent| &mut sent.retry)
    }

    /// The first of them, taken out as if it had been answered.
    pub(super) fn first_sent(&mut self) -> Option<(Ticket, Sent)> {
        self.sent.pop_first()
    }

    /// A sent copy was answered.
    pub(super) fn answered(&mut self, ticket: Ticket) -> Option<Sent> {
        self.sent.remove(&ticket)
    }

    /// The fate of a sent copy is unknown: it is sent again.
    pub(super) fn again(&mut self, retry: Retry) {
        self.waiting.push_back(retry);
    }

    /// The lane ended: every copy without an answer is sent again.
    pub(super) fn unsend_all(&mut self) {
        while let Some((_, sent)) = self.sent.pop_last() {
            self.waiting.push_front(sent.retry);
        }
    }

    /// The attempt with this ticket ended; the store is to know.
    pub(super) fn settle(&mut self, ticket: Ticket, id: i64, settlement: Settlement) {
        self.settlements.push_back((Some(ticket), id, settlement));
    }

    /// A copy is put off that was not sent.
    pub(super) fn settle_unsent(&mut self, id: i64, settlement: Settlement) {
        self.settlements.push_back((None, id, settlement));
    }

    pub(super) fn has_settlements(&self) -> bool {
        !self.settlements.is_empty()
    }

    pub(super) fn take_settlement(&mut self) -> Option<(Option<Ticket>, i64, Settlement)> {
        self.settlements.pop_front()
    }

    /// `answers`: how many events the destination has accepted or refused by now. `rejects`: events
    /// may be rejected for good.
    #[cfg(feature = "model")]
    pub(super) fn describe(&self, answers: u64, rejects: bool, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        let Self {
            next_ticket,
            waiting,
            sent,
            settlements,
            look_at,
            looked,
            has_left,
            // Only a lane that is told asks.
            none_is_due: _,
            none_is_put_off: _,
            put_off_at: _,
        } = self;
        out(Part::Text(&format!("{looked} {has_left} {look_at:?}")));
        if !rejects {
            // There is no copy.
            return;
        }
        out(Part::Number(*next_ticket));
        let waiting = waiting.iter().map(|retry| (0, None, retry));
        let sent = sent
            .iter()
            .map(|(ticket, sent)| (1, Some(ticket.number()), &sent.retry));
        for (is_sent, ticket, retry) in waiting.chain(sent) {
            let Retry {
                copy,
                evidence,
                is_early,
            } = retry;
            let ParkedCopy {
                // The event's own number, in the model.
                id: _,
                event,
                attempts,
                holds_key,
                never_tried,
            } = copy;
            out(Part::Number(is_sent));
            out(Part::Number(ticket.unwrap_or_default()));
            out(Part::Event(event));
            out(Part::Number((*attempts).into()));
            out(Part::Number((*holds_key).into()));
            out(Part::Number((*never_tried).into()));
            out(Part::Number((*is_early).into()));
            evidence.describe(answers, out);
        }
        out(number(self.waiting.len()));
        out(number(settlements.len()));
        for (ticket, id, settlement) in settlements {
            // Without the time until it is due: none passes.
            let of = settlement.attempted();
            let (state, kind) = (of.state, of.kind);
            out(Part::Text(&format!("{ticket:?} {id} {state:?} {kind}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(next_in: Option<u64>) -> Due {
        Due {
            events: Vec::new(),
            released: Vec::new(),
            next_in: next_in.map(Duration::from_secs),
        }
    }

    #[test]
    fn the_store_is_asked_again_when_the_next_copy_is_due_or_after_a_while() {
        let (mut retries, now) = (Retries::new(), Moment::default());
        let every = Duration::from_secs(5);
        assert!(retries.is_look_due(now));
        for (next_in, wait) in [(None, 5), (Some(2), 2), (Some(60), 5)] {
            retries.looked(due(next_in), every, now);
            assert_eq!(retries.look_at(), now.after(Duration::from_secs(wait)));
        }
        let later = now.after(every);
        assert!(!retries.is_look_due(now) && retries.is_look_due(later));
        retries.settle(Group::Retries.ticket(0), 1, Settlement::Delivered);
        assert!(!retries.is_look_due(later), "the last one is not settled");
    }

    #[test]
    fn a_copy_that_was_put_off_may_be_one_that_was_accepted() {
        let (mut retries, now) = (Retries::new(), Moment::default());
        let every = Duration::from_secs(5);
        assert!(!retries.may_ask_for_put_off(now));
        retries.looked(due(None), every, now);
        assert!(retries.may_ask_for_put_off(now) && !retries.none_waits());
        retries.looked_for_put_off(false, every, now);
        assert!(!retries.may_ask_for_put_off(now) && !retries.none_waits());
        let later = now.after(every);
        assert!(retries.may_ask_for_put_off(later));
        retries.looked_for_put_off(true, every, later);
        assert!(retries.none_waits());
        retries.lane_opened();
        assert!(!retries.none_waits());
    }
}
