//! Storing where a claim stands.

use async_trait::async_trait;
use posthaste_engine::StoreError;

use super::{database::Database, owner::Owner};
use crate::postgres::{
    Grant, claim_connection::ProgressStatements, position::Position, read_plan::Stored,
};

/// `sql/advance_merging.sql`, and with one place `sql/advance.sql`.
fn store(
    database: &mut Database,
    grant: &Grant,
    places: &[(i64, Position)],
    merged: &[(i64, i64)],
) {
    let tables = &mut database.now.tables;
    if let Some(destination) = tables.destinations.get_mut(&grant.destination_id) {
        for cursor in &mut destination.partitions {
            let rest = merged.iter().find(|(gone, _)| gone == cursor);
            *cursor = rest.map_or(*cursor, |(_, rest)| *rest);
        }
    }
    for (gone, rest) in merged {
        let row = tables.cursors.get(gone);
        if row.is_none_or(|row| row.destination_id != grant.destination_id) {
            continue;
        }
        if let (Some(gone), Some(row)) = (tables.cursors.remove(gone), tables.cursors.get_mut(rest))
        {
            row.not_before = row.not_before.max(gone.not_before);
            row.former.extend(gone.former);
            row.former.sort_unstable();
            row.former.dedup();
        }
    }
    for (id, position) in places {
        if let Some(row) = tables.cursors.get_mut(id)
            && row.destination_id == grant.destination_id
        {
            row.position = position.clone();
        }
    }
}

#[async_trait]
impl ProgressStatements for Owner {
    async fn store_one(&self, stored: &Stored) -> Result<(), StoreError> {
        let position = stored.advance.position.clone();
        let store = self.change("advance", move |database, grant| {
            store(database, grant, &[(grant.cursor_id, position)], &[]);
            Ok(())
        });
        store.await
    }

    async fn store_several(&self, stored: &Stored) -> Result<(), StoreError> {
        let (places, merged) = (stored.places.clone(), stored.merged.clone());
        let store = self.change("advance", move |database, grant| {
            store(database, grant, &places, &merged);
            Ok(())
        });
        store.await
    }
}
