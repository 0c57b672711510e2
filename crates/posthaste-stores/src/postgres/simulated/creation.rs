//! How a destination comes to be.

use std::sync::Arc;

use posthaste_engine::{ClaimRequest, Registered, Start, StoreError};

use super::server::Connection;
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
        let (tables, rows) = (&mut database.now.tables, &database.now.mvcc.rows);
        if tables.destination_id(&name).is_some() {
            return Ok(());
        }
        let low = match start {
            Start::Oldest => Snapshot::empty(),
            Start::Now => now,
        };
        let position = Position {
            low: low.into(),
            within: None,
            floors: Floors {
                floor: 0,
                floor_min: 0,
            },
        };
        let has = |seq| rows.contains_key(&seq);
        tables.create(&name, position, (relay.registration, start), has, at);
        database.note_creation(&name);
        Ok(())
    });
    create.await
}
