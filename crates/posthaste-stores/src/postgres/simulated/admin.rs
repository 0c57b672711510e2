//! The operators' side.

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AuditLine, DeadAction, DestinationState, ParkedEvent, ParkedFilter, Status, StoreError,
};

use super::{SimulatedPostgres, tables::pending_at};

#[async_trait]
impl Admin for SimulatedPostgres {
    async fn status(&self) -> Result<Status, StoreError> {
        let (connection, leaf_bits) = (self.connect(), self.server.leaf_bits);
        let look = connection.look("status", |database| {
            let (version, snapshot) = (&database.now, database.snapshot());
            let rows = version.mvcc.rows.values();
            let rows = rows.filter(|row| snapshot.sees(row.xid));
            let events = rows.map(|row| (&row.event, pending_at(&version.tables, row)));
            let retained = database.retained(leaf_bits);
            version.tables.status(events, retained, database.clock())
        });
        look.await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        let connection = self.connect();
        let look = connection.look("list hand-overs", |database| {
            database.now.tables.hand_overs(limit)
        });
        look.await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let connection = self.connect();
        let look = connection.look("list parked events", |database| {
            database.now.tables.parked_events(filter, limit)
        });
        look.await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        let (connection, filter) = (self.connect(), filter.clone());
        let act = connection.change(action.as_str(), move |database| {
            let now = database.clock();
            Ok(database.now.tables.act(&filter, action, now))
        });
        act.await
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        let (connection, name) = (self.connect(), name.to_owned());
        let set = connection.change("set the destination", move |database| {
            let now = database.clock();
            database.now.tables.set_destination(&name, state, now)
        });
        set.await
    }

    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError> {
        let (connection, name, place) = (self.connect(), name.to_owned(), place.to_owned());
        let set = connection.change("pause a place", move |database| {
            let now = database.clock();
            let tables = &mut database.now.tables;
            tables.set_place(&name, (&place, paused), now)
        });
        set.await
    }
}
