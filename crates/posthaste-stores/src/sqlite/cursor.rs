//! A cursor in SQLite is a number of the outbox. One writer at a time means that numbers are drawn
//! in the order of commits, so that a number says everything.

use std::{any::Any, sync::Arc};

use posthaste_engine::{Cursor, StoreError};

use super::error::unexpected;

/// The store's own part of a cursor: where its page ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position(pub(super) i64);

impl Position {
    pub(super) fn shared(self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self)
    }

    pub(super) fn cursor(self) -> Cursor {
        Cursor::whole(self.shared())
    }
}

/// The number up to which `cursor` has passed.
pub(super) fn seq(operation: &'static str, cursor: &Cursor) -> Result<i64, StoreError> {
    let Position(end) = cursor
        .base::<Position>()
        .ok_or_else(|| unexpected(operation, "a cursor of another store"))?;
    Ok(cursor.seq().unwrap_or(*end))
}
