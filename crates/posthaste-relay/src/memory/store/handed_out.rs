//! Mark mode: the events that reads have brought, and that no later read is to bring again.

use std::collections::{BTreeMap, HashSet};

use posthaste_engine::{
    Budget, StoredEvent,
    rule::{Rule, left_out},
};

/// The events that the reads of one claim have brought. A side read brings again what the main
/// group has passed over, so that each has a part of its own.
#[derive(Debug, Default)]
pub(super) struct HandedOut {
    pub(super) main: Brought,
    pub(super) side: Brought,
}

/// By the numbers of the events.
#[derive(Debug, Default)]
pub(super) struct Brought {
    events: BTreeMap<i64, Entry>,
    /// How many events were brought: numbers are no order of reading.
    count: u64,
}

#[derive(Debug)]
struct Entry {
    key: Option<String>,
    /// Its place in the order of reading.
    nth: u64,
    /// Whether the store has answered that it is marked.
    is_marked: bool,
}

impl HandedOut {
    /// These events are marked, as the store has answered. A read that was sent before may not
    /// know it, and its answer may still come.
    pub(super) fn marked(&mut self, seqs: &[i64]) {
        self.main.marked(seqs);
        self.side.marked(seqs);
    }

    /// The events of its key that were brought before this one: all of them are done with when it
    /// is parked.
    pub(super) fn before(&self, event: &StoredEvent) -> Vec<i64> {
        let is_in = |brought: &&Brought| brought.events.contains_key(&event.seq());
        // The main group may have passed over what a side read has brought.
        let brought = [&self.side, &self.main].into_iter().find(is_in);
        brought.map_or_else(Vec::new, |brought| brought.before(event))
    }
}

impl Brought {
    /// A read is sent now: it knows the marks whose answers have come, and leaves out by itself
    /// what is `left_out`.
    pub(super) fn begin_read(&mut self, is_left_out: impl Fn(&str) -> bool) {
        self.events.retain(|_, entry| {
            let by_key = entry.key.as_deref().is_some_and(&is_left_out);
            !entry.is_marked && !by_key
        });
    }

    /// As many rows have to be looked at to fill the budget, and to see that there are more.
    pub(super) fn rows(&self, budget: Budget) -> usize {
        self.events.len() + budget.events + 1
    }

    /// Takes what is new from the rows of a read, within the budget. Whether that is all of it.
    pub(super) fn take(
        &mut self,
        rows: Vec<StoredEvent>,
        budget: Budget,
    ) -> (Vec<StoredEvent>, bool) {
        let (mut events, mut bytes) = (Vec::new(), 0);
        for event in rows {
            if self.events.contains_key(&event.seq()) {
                continue;
            }
            bytes += event.footprint();
            let full = events.len() >= budget.events || bytes > budget.bytes;
            if full && !events.is_empty() {
                return (events, false);
            }
            self.count += 1;
            let entry = Entry {
                key: event.order_key().map(str::to_owned),
                nth: self.count,
                is_marked: false,
            };
            self.events.insert(event.seq(), entry);
            events.push(event);
        }
        (events, true)
    }

    /// These keys are another reading's from now on.
    pub(super) fn forget(&mut self, keys: &[String]) {
        let keys: HashSet<&str> = keys.iter().map(String::as_str).collect();
        let is_of = |entry: &Entry| entry.key.as_deref().is_some_and(|key| keys.contains(key));
        self.events.retain(|_, entry| !is_of(entry));
    }

    fn marked(&mut self, seqs: &[i64]) {
        for seq in seqs {
            if left_out(Rule::HandedOutUntilLaterRead) {
                self.events.remove(seq);
            } else if let Some(entry) = self.events.get_mut(seq) {
                entry.is_marked = true;
            }
        }
    }

    fn before(&self, event: &StoredEvent) -> Vec<i64> {
        let Some(of) = self.events.get(&event.seq()) else {
            return Vec::new();
        };
        let earlier = |entry: &Entry| entry.key == of.key && entry.nth < of.nth;
        let entries = self.events.iter().filter(|(_, entry)| earlier(entry));
        entries.map(|(seq, _)| *seq).collect()
    }
}
