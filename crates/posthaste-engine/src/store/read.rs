//! How the owner of a claim reads the main group.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;

use super::{Cursor, StoreError};
use crate::StoredEvent;

/// How much one read may bring. At least one event comes if there is one, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Events at the most.
    pub events: usize,
    /// Bytes at the most, by [`StoredEvent::footprint`].
    pub bytes: usize,
}

/// The events that one read brought, in the order in which it is to be delivered.
#[derive(Debug)]
pub struct Page {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// The store's value for cursors inside this page.
    pub base: Arc<dyn Any + Send + Sync>,
    /// Where the destination stands when all of this page is finished.
    pub end: Cursor,
    /// Whether `end` is a place where a side read can join. In between (inside a snapshot
    /// difference) it is not.
    pub joinable: bool,
    /// Whether everything that was visible when this read was sent lies at or before `end`.
    pub caught_up: bool,
    /// Whether `end` is to be stored although no event before it was finished: the store keeps
    /// more than a position.
    pub store_end: bool,
    /// The destination's [`super::Shares::version`] as this read saw it; zero where nothing is
    /// shared out.
    pub shares_version: i64,
}

impl Page {
    /// The events up to the place that `base` is. A side read can join there; nothing else is
    /// said of it.
    #[must_use]
    pub fn up_to(base: Arc<dyn Any + Send + Sync>, events: Vec<StoredEvent>) -> Self {
        Self {
            events,
            end: Cursor::whole(Arc::clone(&base)),
            base,
            joinable: true,
            caught_up: false,
            store_end: false,
            shares_version: 0,
        }
    }

    /// The cursor that has passed everything up to and including `event` of this page.
    #[must_use]
    pub fn cursor_at(&self, event: &StoredEvent) -> Cursor {
        Cursor::within(Arc::clone(&self.base), event.seq())
    }
}

/// Reads the main group: the claim's partitions without the keys that wait.
#[async_trait]
pub trait ClaimReader: Send + Sync {
    /// The next page, from the stored cursors on. Partitions that stand at several places are
    /// brought to one first: those behind are read up to where the others stand, and join them
    /// there. Returns soon, with an empty page when nothing is there. One caller at a time. A mark
    /// store has no such places: [`super::Progress::Mark`] says what it reads.
    ///
    /// # Errors
    /// [`StoreError`]; afterwards only a new claim may read again.
    async fn next(&self, budget: Budget) -> Result<Page, StoreError>;

    /// Waits for a hint that there is something to read, where the store hears such hints; else
    /// for ever. It saves an idle reader some waiting and is needed for nothing else. Cancel safe.
    async fn hinted(&self) {
        std::future::pending().await
    }
}
