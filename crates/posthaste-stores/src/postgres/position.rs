//! Where a cursor or a marker stands, and what is stored of it.

use std::sync::Arc;

use super::types::Snapshot;

/// Floors of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Floors {
    /// No row of a transaction at or above the snapshot's `xmax` has a `seq` at or below it.
    pub(super) floor: i64,
    /// No row that the snapshot does not see has a `seq` at or below it.
    pub(super) floor_min: i64,
}

/// A place as it is stored: all that `low` sees, plus of the difference to `high` all up to `seq`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) low: Arc<Snapshot>,
    pub(super) within: Option<(Arc<Snapshot>, i64)>,
    pub(super) floors: Floors,
}

impl Position {
    /// The last `seq` of what an ended era left over, as long as that is being read: it takes the
    /// floor's place, and behind it begins a new era (`eras.rs`).
    pub(super) fn end_of_era(&self) -> Option<i64> {
        let (high, _) = self.within.as_ref()?;
        high.sees_everything().then_some(self.floors.floor)
    }
}
