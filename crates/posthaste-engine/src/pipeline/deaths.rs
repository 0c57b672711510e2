//! What is to be said of events that die.

use uuid::Uuid;

use super::Pipeline;
use crate::{Rejection, StoredEvent};

/// An event that is tried no more: its attempts are used up. What it holds besides is not for everybody's eyes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Died {
    /// The event's id.
    pub id: Uuid,
    /// Its topic, as it was written.
    pub topic: String,
    /// The slot of its key.
    pub slot: u16,
    /// The class of the failure ([`crate::RejectionKind::as_str`]).
    pub kind: &'static str,
    /// The broker's last answer.
    pub reason: String,
    /// Whether its key waits for it.
    pub key_waits: bool,
}

impl Pipeline {
    /// The events that died since the last call, as decided; the change that stores it may still fail, and then
    /// whoever comes next decides anew.
    pub fn take_died(&mut self) -> Vec<Died> {
        std::mem::take(&mut self.died)
    }

    pub(super) fn note_died(
        &mut self,
        event: &StoredEvent,
        rejection: &Rejection,
        key_waits: bool,
    ) {
        self.died.push(Died {
            id: event.id(),
            topic: event.topic().to_owned(),
            slot: event.slot(),
            kind: rejection.kind.as_str(),
            reason: rejection.reason.clone(),
            key_waits,
        });
    }
}
