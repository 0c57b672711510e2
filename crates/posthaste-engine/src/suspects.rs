//! Events over which a lane failed, although the destination said no more than that it is unavailable: an outage
//! that began there by chance, or an event that ends every connection, or silences it.
//!
//! Which of the two it is, only others show. A suspect waits while a probe takes others; when these are accepted,
//! it is tried alone, with nothing else in flight: a write that fails as a whole says nothing about any of its
//! events. Who passes is none any longer; who fails so time and again is at fault.

use std::collections::VecDeque;

use crate::{
    StoredEvent,
    record::key_hash,
    rule::{Rule, left_out},
};

/// How often an event may fail although others were accepted since its last failure, before it is taken for the one
/// at fault: an outage begins once at the very moment at which a suspect is tried, but not every time.
pub(crate) const FAILS_ALONE_MAX: u32 = 5;

/// Each is a round trip of its own when a destination returns, so there are not many: the latest.
const SUSPECTS_MAX: usize = 32;

/// Gathered against one event, for as long as this relay handles it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// How often it was the first of its lane to fail although others had been accepted since its last failure.
    alone: u32,
    /// What the destination had accepted when it last failed.
    accepted_at_failure: Option<u64>,
}

impl Evidence {
    /// The event was the first of its lane to fail, when so many events had been accepted in all. Answers
    /// whether it is at fault.
    pub(crate) fn failed(&mut self, accepted: u64) -> bool {
        let before = self.accepted_at_failure.replace(accepted);
        self.alone += u32::from(before.is_some_and(|before| accepted > before));
        self.alone >= FAILS_ALONE_MAX
    }

    #[cfg(feature = "model")]
    pub(crate) fn describe(&self, out: crate::model::Out<'_>) {
        out(crate::model::Part::Number(self.alone.into()));
    }
}

/// What is held back together: an event's key, since its order binds what follows, else the event alone.
pub(crate) fn turn_name(event: &StoredEvent) -> u64 {
    match event.key() {
        Some(key) => key_hash(key),
        None => event.id().as_u64_pair().1,
    }
}

/// Names of suspects, in the order in which they are tried.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suspects(VecDeque<u64>);

impl Suspects {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, event: &StoredEvent) -> bool {
        !self.0.is_empty() && self.0.contains(&turn_name(event))
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.0.front().copied()
    }

    /// A lane failed over this event: others are tried before it.
    pub(crate) fn add(&mut self, event: &StoredEvent) {
        if left_out(Rule::SuspectGoesLast) {
            return;
        }
        let name = turn_name(event);
        self.0.retain(|&known| known != name);
        if self.0.len() == SUSPECTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(name);
    }

    /// The destination answered about this event, or found it to be at fault.
    pub(crate) fn remove(&mut self, event: &StoredEvent) {
        if !self.0.is_empty() {
            self.remove_name(turn_name(event));
        }
    }

    /// Nothing of this name is ready: it was answered otherwise.
    pub(crate) fn remove_name(&mut self, name: u64) {
        self.0.retain(|&known| known != name);
    }

    #[cfg(feature = "model")]
    pub(crate) fn describe(&self, out: crate::model::Out<'_>) {
        out(crate::model::number(self.0.len()));
        for &name in &self.0 {
            out(crate::model::Part::Number(name));
        }
    }
}
