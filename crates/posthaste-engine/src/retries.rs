//! Parked events whose time has come: sent again, each on its own, before their keys go on.

use std::collections::{HashMap, VecDeque};

use crate::{ParkedCopy, Settlement};

/// A copy that was handed to the lane.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) batch: u64,
    /// What the destination had accepted then.
    pub(crate) accepted: u64,
    pub(crate) copy: ParkedCopy,
}

#[derive(Debug, Clone)]
pub(crate) struct Retries {
    next_ticket: u64,
    waiting: VecDeque<ParkedCopy>,
    sent: HashMap<u64, Sent>,
    settlements: VecDeque<(u64, i64, Settlement)>,
}

impl Retries {
    pub(crate) fn new(first_ticket: u64) -> Self {
        Self {
            next_ticket: first_ticket,
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            settlements: VecDeque::new(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty() && self.settlements.is_empty()
    }

    pub(crate) fn push(&mut self, copies: Vec<ParkedCopy>) {
        self.waiting.extend(copies);
    }

    pub(crate) fn has_settlements(&self) -> bool {
        !self.settlements.is_empty()
    }

    /// The next copy to send, with its ticket. It counts as sent in `batch`, when `accepted` events
    /// had been accepted.
    pub(crate) fn take(&mut self, batch: u64, accepted: u64) -> Option<(u64, &ParkedCopy)> {
        let copy = self.waiting.pop_front()?;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let sent = Sent {
            batch,
            accepted,
            copy,
        };
        Some((ticket, &self.sent.entry(ticket).or_insert(sent).copy))
    }

    /// A sent copy was answered.
    pub(crate) fn answered(&mut self, ticket: u64) -> Option<Sent> {
        self.sent.remove(&ticket)
    }

    /// The fate of a sent copy is unknown: it is sent again.
    pub(crate) fn again(&mut self, copy: ParkedCopy) {
        self.waiting.push_back(copy);
    }

    /// The lane ended: every copy without an answer is sent again.
    pub(crate) fn unsend_all(&mut self) {
        let mut sent: Vec<_> = self.sent.drain().collect();
        sent.sort_unstable_by_key(|&(ticket, _)| std::cmp::Reverse(ticket));
        for (_, sent) in sent {
            self.waiting.push_front(sent.copy);
        }
    }

    /// The attempt with this ticket ended; the store is to know.
    pub(crate) fn settle(&mut self, ticket: u64, id: i64, settlement: Settlement) {
        self.settlements.push_back((ticket, id, settlement));
    }

    pub(crate) fn take_settlement(&mut self) -> Option<(u64, i64, Settlement)> {
        self.settlements.pop_front()
    }
}
