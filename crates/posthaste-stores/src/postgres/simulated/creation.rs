//! How a destination comes to be.

use std::sync::Arc;

use posthaste_engine::{ClaimRequest, DestinationState, Registered, Start, StoreError, audit};

use super::{
    server::Connection,
    tables::{CursorRow, Destination, Tables},
};
use crate::postgres::{
    position::{Floors, Position},
    types::Snapshot,
};

/// Creates the destination where it starts; somebody else's creation counts as well.
pub(super) async fn create(
    connection: &Connection,
    relay: Registered,
    request: &ClaimRequest<'_>,
) -> Result<(), StoreError> {
    const OPERATION: &str = "create the destination";
    connection.server.step().await;
    // A statement of its own, so that the snapshot comes behind the lock.
    let retention = Arc::clone(&connection.server.retention);
    let locked = retention.lock_owned().await;
    let now = connection.look(OPERATION, |database| database.snapshot());
    let now = now.await?;
    let (name, start) = (request.destination.to_owned(), request.start);
    let create = connection.change(OPERATION, move |database| {
        // Held for as long as this goes on, whoever waits for it.
        let _locked = locked;
        let at = database.clock();
        let tables = &mut database.now.tables;
        if tables.destination_id(&name).is_some() {
            return Ok(());
        }
        let low = match start {
            Start::Oldest => Snapshot::empty(),
            Start::Now => now,
        };
        tables.create(&name, low, at);
        let start = audit::start(start);
        let by = (Some(relay.registration), None);
        tables.note(at, by, audit::DESTINATION_CREATED, Some(&name), &[&start]);
        database.note_creation(&name);
        Ok(())
    });
    create.await
}

impl Tables {
    /// `sql/destination_create.sql`.
    fn create(&mut self, name: &str, low: Snapshot, now: i64) {
        // Sinks compare epochs, relays versions: a name that was removed goes on above them.
        let former = || self.destinations.values().filter(|row| row.name == name);
        let epoch = former().map(|row| row.epoch).max().unwrap_or(0);
        let version = former().map(|row| row.shares_version).max().unwrap_or(0);
        self.last_destination += 1;
        let position = Position {
            low: low.into(),
            within: None,
            floors: Floors {
                floor: 0,
                floor_min: 0,
            },
        };
        let cursor = self.insert_cursor(CursorRow {
            destination_id: self.last_destination,
            position,
            updated_at: now,
            relay: None,
            epoch: 0,
            not_before: 0,
            former: Vec::new(),
            left_by: None,
            left_name: None,
            left_dead: false,
        });
        let destination = Destination {
            name: name.to_owned(),
            address: String::new(),
            cluster: None,
            state: DestinationState::Active,
            breaker: "closed".to_owned(),
            last_error: None,
            epoch,
            shares_version: version + 1,
            partitions: vec![cursor; usize::from(self.partitions)],
        };
        self.destinations.insert(self.last_destination, destination);
    }
}
