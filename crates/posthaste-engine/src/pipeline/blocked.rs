//! Which keys wait behind a parked event. So many of them are kept in memory; the rest stand in the store alone, and
//! with each page it is asked which of the page's keys are marked.
//!
//! Nobody but us sets or removes a marker of our claim, a key is joined only while nothing is read or held, and a key
//! is forgotten only then: whatever the store answers of a page holds until the page is handled.

use std::collections::HashSet;

use super::{Pipeline, is_one_of};
use crate::{Marker, StoredEvent};

#[derive(Clone, Default)]
pub(super) struct Blocked {
    kept: HashSet<String>,
    /// How many more there are.
    beyond: usize,
}

impl Blocked {
    pub(super) fn new(markers: &[Marker]) -> Self {
        Self {
            kept: markers.iter().map(|marker| marker.key.clone()).collect(),
            beyond: 0,
        }
    }

    /// Whether it is known here that the event waits.
    pub(super) fn has(&self, event: &StoredEvent) -> bool {
        is_one_of(&self.kept, event)
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len() + self.beyond
    }

    /// An event of this key failed; of a key that is blocked already, what its side read sent.
    pub(super) fn insert(&mut self, key: &str, was_blocked: bool) {
        if self.kept.insert(key.to_owned()) && was_blocked {
            self.beyond = self.beyond.saturating_sub(1);
        }
    }

    /// Those that are kept, and how many more there are.
    #[cfg(feature = "model")]
    pub(super) fn parts(&self) -> (&HashSet<String>, usize) {
        (&self.kept, self.beyond)
    }

    pub(super) fn remove(&mut self, key: &str) {
        if !self.kept.remove(key) {
            self.beyond = self.beyond.saturating_sub(1);
        }
    }
}

impl Pipeline {
    /// So many keys are blocked besides those whose markers were given.
    pub fn blocked_beyond(&mut self, keys: usize) {
        self.blocked.beyond += keys;
    }

    /// How many keys wait behind a parked event, or for their join.
    #[must_use]
    pub fn blocked_keys(&self) -> usize {
        self.blocked.len()
    }

    /// Whether the store is to be asked which keys of the next page are marked.
    #[must_use]
    pub fn asks_for_markers(&self) -> bool {
        self.blocked.beyond > 0
    }

    /// Whether so many keys are in memory that nothing may be read before they are forgotten. That takes an empty
    /// window: what was read before the store was asked relies on the keys that are here.
    pub(super) fn must_forget_keys(&mut self) -> bool {
        let kept = self.limits.blocked_keys_kept;
        if self.blocked.kept.len() <= kept.saturating_mul(2).max(kept + 1) {
            return false;
        }
        // Nothing failed waits for its marker either.
        if self.reading || !self.main.is_empty() || self.failed > 0 || self.change.is_some() {
            return true;
        }
        let rest = self.blocked.kept.len() - kept;
        let forgotten: Vec<String> = self.blocked.kept.iter().take(rest).cloned().collect();
        for key in forgotten {
            self.blocked.kept.remove(&key);
        }
        self.blocked.beyond += rest;
        false
    }
}
