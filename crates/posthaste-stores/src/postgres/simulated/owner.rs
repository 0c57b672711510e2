//! The connections of one claim.

use std::sync::Arc;

use posthaste_engine::StoreError;

use super::{database::Database, server::Connection, tables::within};
use crate::postgres::{Grant, slots::Slots};

/// The connections of one claim.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) grant: Arc<Grant>,
    pub(super) slots: Option<Slots>,
    /// All of its connections break together.
    pub(super) connection: Connection,
}

impl Owner {
    /// A guarded statement.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Database, &Grant) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let grant = Arc::clone(&self.grant);
        let change = self.connection.change(operation, move |database| {
            let now = database.clock();
            database.now.tables.guard(&grant, now, operation)?;
            work(database, &grant)
        });
        change.await
    }

    /// Whether a key or an event of this slot is this claim's.
    pub(super) fn owns(&self, slot: u16) -> bool {
        within(self.slots.as_ref(), slot)
    }
}
