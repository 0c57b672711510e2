//! The partitions of a claim, as statements take them.

use std::sync::Arc;

use posthaste_engine::Partitions;

/// The partitions of a claim.
#[derive(Debug, Clone)]
pub(super) struct Slots(Arc<Partitions>);

impl Slots {
    pub(super) fn new(partitions: &Partitions) -> Self {
        Self(Arc::new(partitions.clone()))
    }

    /// A letter a partition: `1` for those of the claim. That of a slot stands at
    /// `slot * count div 16384`.
    pub(super) fn mask(&self) -> String {
        let letter = |&ours: &bool| if ours { '1' } else { '0' };
        self.0.as_slice().iter().map(letter).collect()
    }

    pub(super) fn count(&self) -> u16 {
        self.0.count()
    }

    pub(super) fn are_all(&self) -> bool {
        self.0.is_all()
    }

    pub(super) fn contain(&self, slot: u16) -> bool {
        self.0.contains_slot(slot)
    }

    pub(super) fn shared(&self) -> Arc<Partitions> {
        Arc::clone(&self.0)
    }
}
