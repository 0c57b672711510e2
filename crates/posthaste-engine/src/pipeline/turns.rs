//! Whose turn it is, where not all that is ready may go at once.

use crate::{
    KeyOrder, Router, StoredEvent,
    suspects::{Suspects, turn_name},
    throttled::Throttled,
};

/// Of which events a batch is gathered.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// Neither suspects nor what is held back.
    Others,
    /// One suspect alone.
    Suspect(u64),
    /// One event of a topic that is held back, which had no turn yet.
    Throttled(u64),
}

/// All that decides it.
pub(super) struct Turns<'a> {
    pub(super) suspects: &'a Suspects,
    pub(super) throttled: &'a Throttled,
    pub(super) router: &'a Router,
    pub(super) order: KeyOrder,
}

impl Turns<'_> {
    pub(super) fn has(&self, of: Of, event: &StoredEvent) -> bool {
        match of {
            Of::Others => !self.suspects.contains(event) && !self.is_held_back(event),
            Of::Suspect(name) => turn_name(event) == name,
            Of::Throttled(topic) => {
                self.held_back_with(event) == topic && !self.throttled.was_tried(turn_name(event))
            }
        }
    }

    pub(super) fn is_held_back(&self, event: &StoredEvent) -> bool {
        !self.throttled.is_empty() && self.throttled.holds(self.held_back_with(event))
    }

    /// Where events of a key follow each other at once, what follows in another topic must not
    /// overtake it.
    pub(super) fn held_back_with(&self, event: &StoredEvent) -> u64 {
        match self.order {
            KeyOrder::OneAtATime => self.router.topic_hash(event),
            KeyOrder::Pipelined => turn_name(event),
        }
    }
}
