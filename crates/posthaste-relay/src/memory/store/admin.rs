use async_trait::async_trait;
use posthaste_engine::{
    Admin, AuditLine, DeadAction, DestinationState, ParkedEvent, ParkedFilter, Status, StoreError,
};

use super::{MemoryStore, wall_micros};

#[async_trait]
impl Admin for MemoryStore {
    async fn status(&self) -> Result<Status, StoreError> {
        let inner = self.lock();
        let events = inner.log.values();
        let events = events.map(|event| (event, inner.pending_at(event)));
        Ok(inner.tables.status(events, inner.retained(), wall_micros()))
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        Ok(self.lock().tables.hand_overs(limit))
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        Ok(self.lock().tables.parked_events(filter, limit))
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        Ok(self.lock().tables.act(filter, action, wall_micros()))
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        let mut inner = self.lock();
        inner.tables.set_destination(name, state, wall_micros())
    }

    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError> {
        let mut inner = self.lock();
        inner.tables.set_place(name, (place, paused), wall_micros())
    }
}
