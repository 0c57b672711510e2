//! The markers of blocked keys.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use posthaste_engine::{Cursor, Marker, StoreError};

use super::owner::Owner;
use crate::postgres::{claim_connection::MarkerStatements, position::Position, sweep::Place};

/// True: the marker stands further along in the very same difference. A skipped event has taken it
/// there.
fn is_further(marker: &Position, to: &Position) -> bool {
    match (&marker.within, &to.within) {
        (Some((high, last)), Some((to_high, to_last))) => {
            marker.low == to.low && high == to_high && last > to_last
        }
        _ => false,
    }
}

#[async_trait]
impl MarkerStatements for Owner {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        let id = self.grant.destination_id;
        let look = self.connection.look("read the markers", |database| {
            let cursor = |at: &Position| Cursor::whole(Arc::new(Place::at(at)));
            let owns = |slot| self.owns(slot);
            database
                .now
                .tables
                .markers(id, (after, limit), owns, cursor)
        });
        look.await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let id = self.grant.destination_id;
        let look = self.connection.look("ask for markers", |database| {
            database.now.tables.marked(id, keys)
        });
        look.await
    }

    async fn stands(&self, keys: &[String]) -> Result<HashMap<String, Position>, StoreError> {
        let id = self.grant.destination_id;
        let look = self.connection.look("side read", |database| {
            let of = |key: &String| {
                let row = database.now.tables.markers.get(&(id, key.clone()))?;
                self.owns(row.slot)
                    .then(|| (key.clone(), row.position.clone()))
            };
            keys.iter().filter_map(of).collect()
        });
        look.await
    }

    async fn move_markers(&self, to: &[(String, Position)]) -> Result<bool, StoreError> {
        let to = to.to_vec();
        let change = self.change("advance a side read", move |database, grant| {
            let tables = &mut database.now.tables;
            let mut changed = true;
            for (key, to) in to {
                let held = tables.holds(grant.destination_id, &key);
                let row = tables.markers.get_mut(&(grant.destination_id, key));
                changed &= row.is_some();
                if let Some(row) = row.filter(|row| !held && !is_further(&row.position, &to)) {
                    row.position = to;
                }
            }
            Ok(changed)
        });
        change.await
    }

    async fn remove_markers(&self, keys: &[String]) -> Result<bool, StoreError> {
        let keys = keys.to_vec();
        let change = self.change("join", move |database, grant| {
            let (asked, now) = (keys.len(), database.clock());
            let joined = database.now.tables.join(grant.of(), keys, now);
            database.counters.joins += u64::from(joined > 0);
            Ok(joined == asked)
        });
        change.await
    }
}
