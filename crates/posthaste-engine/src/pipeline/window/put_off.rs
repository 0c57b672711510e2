//! Events of a window that wait for their place.

use std::collections::HashSet;

use super::{State, Window};
use crate::StoredEvent;

/// Events that wait for their place.
#[derive(Debug, Default)]
pub(in super::super) struct PutOff {
    /// The numbers of those before which nothing of their key waits, and whether they have a key.
    pub(in super::super) first: Vec<(u64, bool)>,
    /// How many there are in all.
    pub(in super::super) events: usize,
    pub(in super::super) bytes: usize,
}

impl Window {
    /// Whether this is so of an event that is not done.
    pub(in super::super) fn any_undone(&self, is: impl Fn(&StoredEvent) -> bool) -> bool {
        self.undone().any(is)
    }

    /// The events that are not done.
    pub(in super::super) fn undone(&self) -> impl Iterator<Item = &StoredEvent> {
        let entries = self.entries.iter().skip(self.done_prefix);
        let undone = entries.filter(|entry| !matches!(entry.state, State::Done { .. }));
        undone.map(|entry| &entry.event)
    }

    /// The numbers of the ready events of which this is so.
    pub(in super::super) fn ready_of(&self, is: impl Fn(&StoredEvent) -> bool) -> Vec<u64> {
        let entries = (self.first..).zip(&self.entries).skip(self.done_prefix);
        let ready = entries.filter(|(_, of)| of.state == State::Ready && is(&of.event));
        ready.map(|(number, _)| number).collect()
    }

    /// The ready events of which this is so, as they would leave the window.
    pub(in super::super) fn put_off(&self, is: impl Fn(&StoredEvent) -> bool) -> PutOff {
        let (mut put_off, mut undone) = (PutOff::default(), HashSet::new());
        for (number, entry) in (self.first..).zip(&self.entries).skip(self.done_prefix) {
            if matches!(entry.state, State::Done { .. }) {
                continue;
            }
            let is_first = entry.order_key.is_none_or(|key| undone.insert(key));
            if entry.state == State::Ready && is(&entry.event) {
                put_off.events += 1;
                put_off.bytes += entry.bytes;
                if is_first {
                    put_off.first.push((number, entry.order_key.is_some()));
                }
            }
        }
        put_off
    }

    /// The ready events before which nothing of their key waits, and of which this is so; it is
    /// told whether the evidence is against an event, too.
    pub(in super::super) fn suspects(
        &self,
        is: impl Fn(&StoredEvent, bool) -> bool,
    ) -> Vec<(u64, StoredEvent)> {
        let mut undone = HashSet::new();
        let entries = (self.first..).zip(&self.entries).skip(self.done_prefix);
        let leaving = entries.filter(|(_, entry)| {
            let is_undone = !matches!(entry.state, State::Done { .. });
            let is_first = is_undone && entry.order_key.is_none_or(|key| undone.insert(key));
            let is_ready = entry.state == State::Ready;
            is_first && is_ready && is(&entry.event, entry.evidence.is_against())
        });
        let leaving = leaving.map(|(number, entry)| (number, entry.event.clone()));
        leaving.collect()
    }
}
