//! How the owner of a claim stores its progress.

use async_trait::async_trait;

use super::{Cursor, StoreError};

/// The consequences of an advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdvanceOutcome {
    /// Whether the next read is to come at once, although nothing is known to be there: its end
    /// is to be stored ([`super::Page::store_end`]).
    pub read_at_once: bool,
}

/// Moves the cursor.
#[async_trait]
pub trait ClaimProgress: Send + Sync {
    /// Moves the cursor: everything up to `up_to` is finished. A mark store uses `finished`
    /// (events that were accepted, parked or that no route takes; events passed over because their
    /// key is blocked are *not* in it), a log store `up_to`. Never goes back. Durable when it
    /// returns. One caller at a time.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn advance(&self, up_to: &Cursor, finished: &[i64])
    -> Result<AdvanceOutcome, StoreError>;
}
