//! Parked events whose time has come: sent again, each on its own, before their keys go on.

use std::collections::{BTreeMap, VecDeque};

use crate::{ParkedCopy, Settlement, StoredEvent, suspects::Evidence};

/// An attempt with a copy, however often it has to be sent for that.
#[derive(Debug, Clone)]
pub(crate) struct Retry {
    pub(crate) copy: ParkedCopy,
    pub(crate) evidence: Evidence,
}

/// A copy that was handed to the lane.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) batch: u64,
    pub(crate) retry: Retry,
}

#[derive(Debug, Clone)]
pub(crate) struct Retries {
    next_ticket: u64,
    waiting: VecDeque<Retry>,
    sent: BTreeMap<u64, Sent>,
    settlements: VecDeque<(u64, i64, Settlement)>,
}

impl Retries {
    pub(crate) fn new(first_ticket: u64) -> Self {
        Self {
            next_ticket: first_ticket,
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            settlements: VecDeque::new(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty() && self.settlements.is_empty()
    }

    pub(crate) fn push(&mut self, copies: Vec<ParkedCopy>) {
        let retry = |copy| Retry {
            copy,
            evidence: Evidence::default(),
        };
        self.waiting.extend(copies.into_iter().map(retry));
    }

    pub(crate) fn has_settlements(&self) -> bool {
        !self.settlements.is_empty()
    }

    /// The next copy to send of those whose turn it is, with its ticket. It counts as sent in `batch`.
    pub(crate) fn take(
        &mut self,
        batch: u64,
        is_turn: impl Fn(&StoredEvent) -> bool,
    ) -> Option<(u64, &ParkedCopy)> {
        let mut waiting = self.waiting.iter();
        let next = waiting.position(|retry| is_turn(&retry.copy.event))?;
        let retry = self.waiting.remove(next)?;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let sent = self.sent.entry(ticket).or_insert(Sent { batch, retry });
        Some((ticket, &sent.retry.copy))
    }

    /// The event of a sent copy.
    pub(crate) fn sent(&self, ticket: u64) -> Option<&StoredEvent> {
        self.sent.get(&ticket).map(|sent| &sent.retry.copy.event)
    }

    /// The events of all sent copies, in the order in which they were sent.
    pub(crate) fn all_sent(&self) -> impl Iterator<Item = &StoredEvent> {
        self.sent.values().map(|sent| &sent.retry.copy.event)
    }

    /// The first of them, taken out as if it had been answered.
    pub(crate) fn first_sent(&mut self) -> Option<(u64, Sent)> {
        self.sent.pop_first()
    }

    /// A sent copy was answered.
    pub(crate) fn answered(&mut self, ticket: u64) -> Option<Sent> {
        self.sent.remove(&ticket)
    }

    /// The fate of a sent copy is unknown: it is sent again.
    pub(crate) fn again(&mut self, retry: Retry) {
        self.waiting.push_back(retry);
    }

    /// The lane ended: every copy without an answer is sent again.
    pub(crate) fn unsend_all(&mut self) {
        while let Some((_, sent)) = self.sent.pop_last() {
            self.waiting.push_front(sent.retry);
        }
    }

    /// The attempt with this ticket ended; the store is to know.
    pub(crate) fn settle(&mut self, ticket: u64, id: i64, settlement: Settlement) {
        self.settlements.push_back((ticket, id, settlement));
    }

    /// All that decides what is sent and settled next.
    #[cfg(feature = "model")]
    pub(crate) fn describe(&self, out: crate::model::Out<'_>) {
        use crate::model::{Part, number};
        out(Part::Number(self.next_ticket));
        let waiting = self.waiting.iter().map(|retry| (0, retry));
        let sent = self.sent.iter();
        let sent = sent.map(|(&ticket, sent)| (ticket, &sent.retry));
        for (ticket, retry) in waiting.chain(sent) {
            out(Part::Number(ticket));
            out(Part::Event(&retry.copy.event));
            out(Part::Number(retry.copy.attempts.into()));
            retry.evidence.describe(out);
        }
        out(number(self.waiting.len()));
        out(Part::Text(&format!("{:?}", self.settlements)));
    }

    pub(crate) fn take_settlement(&mut self) -> Option<(u64, i64, Settlement)> {
        self.settlements.pop_front()
    }
}
