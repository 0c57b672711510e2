//! Parked events whose time has come: sent again, each on its own, before their keys go on.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    time::Duration,
};

use super::{
    evidence::Evidence,
    places::Place,
    ticket::{Group, Ticket},
};
use crate::{Due, Moment, ParkedCopy, Settlement, StoredEvent};

/// An attempt with a copy, however often it has to be sent for that.
#[derive(Debug, Clone)]
pub(super) struct Retry {
    pub(super) copy: ParkedCopy,
    pub(super) evidence: Evidence,
    /// Its place is held back: it waits until that has its turn.
    is_kept: bool,
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
    settlements: VecDeque<(Ticket, i64, Settlement)>,
    /// When the store is asked again which copies are due.
    look_at: Moment,
    /// It was asked once.
    looked: bool,
    /// The last answer, since the lane was opened, had none.
    none_is_due: bool,
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
            none_is_due: false,
        }
    }

    /// Whether nothing can be done but wait for places that are held back.
    pub(super) fn is_idle(&self) -> bool {
        let waits_for_its_place = |retry: &Retry| retry.is_kept;
        self.waiting.iter().all(waits_for_its_place)
            && self.sent.is_empty()
            && self.settlements.is_empty()
    }

    /// Whether the store is to be asked which copies are due: never before the last ones are
    /// settled.
    pub(super) fn is_look_due(&self, now: Moment) -> bool {
        now >= self.look_at && self.is_idle()
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
    pub(super) fn looked(&mut self, mut due: Due, every: Duration, now: Moment) -> Vec<String> {
        self.looked = true;
        // A place may have had its turn since the store was asked.
        let sent = self.sent.values().map(|sent| &sent.retry);
        let here = self.waiting.iter().chain(sent).map(|retry| retry.copy.id);
        let settled = self.settlements.iter().map(|(_, id, _)| *id);
        let known: HashSet<i64> = here.chain(settled).collect();
        due.events.retain(|copy| !known.contains(&copy.id));
        self.none_is_due = due.events.is_empty();
        let wait = match due.next_in {
            Some(next_in) if due.events.is_empty() => next_in.min(every),
            _ if due.events.is_empty() => every,
            // More may be due: look again when these are settled.
            _ => Duration::ZERO,
        };
        self.look_at = now.after(wait);
        let retry = |copy| Retry {
            copy,
            evidence: Evidence::default(),
            is_kept: false,
        };
        self.waiting.extend(due.events.into_iter().map(retry));
        due.released
    }

    pub(super) fn has_looked(&self) -> bool {
        self.looked
    }

    pub(super) fn none_is_due(&self) -> bool {
        self.none_is_due
    }

    /// A lane was opened: the answer before it says nothing to it.
    pub(super) fn lane_opened(&mut self) {
        self.none_is_due = false;
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
        let retry = self.waiting.remove(next)?;
        let ticket = self.next_ticket();
        let sent = self.sent.entry(ticket).or_insert(Sent { batch, retry });
        Some((ticket, &sent.retry.copy))
    }

    /// Puts off the copies whose place is held back: one for each place is kept until that has its
    /// turn, the others are settled so.
    pub(super) fn put_off<'a>(
        &mut self,
        place: impl Fn(&StoredEvent) -> Option<(Place, u32, &'a str)>,
        postponed: impl Fn(&ParkedCopy, u32, &str) -> Settlement,
    ) {
        let mut kept = HashSet::new();
        for mut retry in std::mem::take(&mut self.waiting) {
            let held = place(&retry.copy.event);
            match held {
                Some((place, refusals, reason)) if !kept.insert(place) => {
                    let ticket = self.next_ticket();
                    let settlement = postponed(&retry.copy, refusals, reason);
                    self.settle(ticket, retry.copy.id, settlement);
                }
                _ => {
                    retry.is_kept = held.is_some();
                    self.waiting.push_back(retry);
                }
            }
        }
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
    pub(super) fn again(&mut self, mut retry: Retry) {
        retry.is_kept = false;
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
        self.settlements.push_back((ticket, id, settlement));
    }

    pub(super) fn has_settlements(&self) -> bool {
        !self.settlements.is_empty()
    }

    pub(super) fn take_settlement(&mut self) -> Option<(Ticket, i64, Settlement)> {
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
            // Only a lane that is told asks.
            none_is_due: _,
        } = self;
        out(Part::Text(&format!("{looked} {look_at:?}")));
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
                is_kept,
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
            out(Part::Number((*is_kept).into()));
            evidence.describe(answers, out);
        }
        out(number(self.waiting.len()));
        out(Part::Text(&format!("{settlements:?}")));
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
}
