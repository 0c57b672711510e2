//! The connections of one claim.

use std::sync::Arc;

use posthaste_engine::{
    StoreError,
    memory_tables::ClaimRow,
    rule::{Rule, left_out},
};

use super::{
    database::{Database, Version},
    server::Connection,
    tables::within,
};
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
            database.now.guard(&grant, now, operation)?;
            work(database, &grant)
        });
        change.await
    }

    /// Whether a key or an event of this slot is this claim's.
    pub(super) fn owns(&self, slot: u16) -> bool {
        within(self.slots.as_ref(), slot)
    }
}

impl Grant {
    pub(super) fn row(&self) -> ClaimRow {
        ClaimRow {
            destination_id: self.destination_id,
            cursor_id: self.cursor_id,
            epoch: self.epoch,
            registration: self.registration,
        }
    }

    /// The destination and the relay.
    pub(super) fn of(&self) -> (i64, uuid::Uuid) {
        (self.destination_id, self.registration)
    }
}

impl Version {
    /// `sql/guard.sql`; else why it was not met, as `sql/refused.sql` tells.
    pub(super) fn guard(
        &self,
        grant: &Grant,
        now: i64,
        operation: &'static str,
    ) -> Result<(), StoreError> {
        if self.token != Some(grant.token) && !left_out(Rule::IncarnationIsChecked) {
            return Err(StoreError::IncarnationChanged { operation });
        }
        let tables = &self.tables;
        let is_newest = tables.is_newest(&grant.row());
        let is_live = tables.live(grant.registration, now).is_some();
        match is_newest && is_live || left_out(Rule::EpochIsChecked) {
            true => Ok(()),
            false => Err(StoreError::Fenced { operation }),
        }
    }
}
