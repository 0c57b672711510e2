//! The events of a window that may be sent, and those of them that others go before.

use std::collections::VecDeque;

use super::{super::trials::part, Entry, State, Window};
use crate::{
    KeyOrder, StoredEvent,
    rule::{Rule, left_out},
};

impl Window {
    /// The next event to be sent; it stays in place until [`pop_ready`](Self::pop_ready).
    pub(in crate::pipeline) fn peek_ready(&mut self) -> Option<(u64, &Entry)> {
        if self.ready_stale {
            self.rebuild_ready();
        }
        while self
            .ready
            .front()
            .is_some_and(|&ticket| !self.is_ready(ticket))
        {
            self.ready.pop_front();
        }
        let ticket = *self.ready.front()?;
        let index = self.index(ticket)?;
        self.entries.get(index).map(|entry| (ticket, entry))
    }

    pub(in crate::pipeline) fn pop_ready(&mut self) {
        self.ready.pop_front();
    }

    /// The next event is not sent now, until [`send_passed_over`](Self::send_passed_over).
    pub(in crate::pipeline) fn pass_over(&mut self) {
        let ticket = self.ready.pop_front();
        if left_out(Rule::PassedOverIsNotOvertaken) {
            return;
        }
        let index = ticket.and_then(|ticket| self.index(ticket));
        let entry = index.and_then(|index| self.entries.get(index));
        self.passed_over.extend(entry.and_then(|of| of.order_key));
    }

    /// Passes over a part of the ready events ([`part`]).
    pub(in crate::pipeline) fn pass_over_part(&mut self, number: u32) {
        if self.ready_stale {
            self.rebuild_ready();
        }
        let passed = part(self.ready.len(), number);
        for _ in 0..passed {
            self.pass_over();
        }
        self.passed_part = passed > 0;
    }

    /// How many events are ready of which this is so; counted up to so many.
    pub(in crate::pipeline) fn ready_up_to(
        &mut self,
        most: usize,
        is: impl Fn(&StoredEvent) -> bool,
    ) -> usize {
        if self.ready_stale {
            self.rebuild_ready();
        }
        let is = |number: &&u64| {
            let entry = self
                .index(**number)
                .and_then(|index| self.entries.get(index));
            self.is_ready(**number) && entry.is_some_and(|entry| is(&entry.event))
        };
        self.ready.iter().filter(is).take(most).count()
    }

    /// Whether events that could be sent were passed over, and are still.
    pub(in crate::pipeline) fn has_passed_part(&self) -> bool {
        self.passed_part && !self.ready_stale
    }

    /// Events from this ticket on are not to be sent any more.
    pub(in crate::pipeline) fn drop_ready_from(&mut self, limit: u64) {
        if self.ready_stale {
            self.rebuild_ready();
        }
        self.ready.retain(|&ticket| ticket < limit);
    }

    pub(in crate::pipeline) fn has_ready(&self) -> bool {
        self.ready_stale || !self.ready.is_empty()
    }

    fn rebuild_ready(&mut self) {
        self.ready_stale = false;
        self.ready.clear();
        self.passed_over.clear();
        self.passed_part = false;
        for (index, entry) in self.entries.iter().enumerate().skip(self.done_prefix) {
            let ticket = self.first + index as u64;
            let first_of_key = self.order == KeyOrder::Pipelined
                || entry.order_key.is_none_or(|key| {
                    self.queues.get(&key).and_then(VecDeque::front) == Some(&ticket)
                });
            if entry.state == State::Ready && first_of_key {
                self.ready.push_back(ticket);
            }
        }
    }

    /// True unless it was sent or is done, or an earlier event of its key was passed over, or
    /// failed and is not parked yet.
    fn is_ready(&self, ticket: u64) -> bool {
        let entry = self.index(ticket).and_then(|index| self.entries.get(index));
        entry.is_some_and(|entry| {
            let key = entry.order_key;
            let failed = key.and_then(|key| self.failed.get(&key)?.first());
            let waits = key.is_some_and(|key| self.passed_over.contains(&key));
            let is_first = !waits && failed.is_none_or(|&failed| ticket < failed);
            entry.state == State::Ready && is_first
        })
    }

    /// Events that were popped and not sent, because others went first, are ready again.
    pub(in crate::pipeline) fn send_passed_over(&mut self) {
        self.ready_stale = true;
    }
}
