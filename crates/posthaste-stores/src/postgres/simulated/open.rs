//! Opening a claim.

use std::sync::Arc;

use posthaste_engine::StoreError;

use super::{
    database::Database,
    owner::Owner,
    server::{Connection, Server},
};
use crate::postgres::{
    Grant,
    claim::none_of,
    claimed::{OpenedRows, PostgresClaimed},
    converge::Group,
    layout::GroupRow,
    position::Position,
};

/// Reads the cursor under a claim.
pub(super) async fn open(
    server: &Arc<Server>,
    grant: &Grant,
) -> Result<PostgresClaimed<Owner>, StoreError> {
    const OPERATION: &str = "open";
    let connection = Connection::open(server);
    let found = connection.look(OPERATION, |database| {
        find(database, grant, server.leaf_bits)
    });
    let found = found.await?.ok_or(StoreError::Fenced {
        operation: OPERATION,
    })?;
    PostgresClaimed::new(grant, found?, |slots| Owner {
        grant: Arc::new(grant.clone()),
        slots,
        connection,
    })
}

/// `sql/open.sql`.
fn find(
    database: &Database,
    grant: &Grant,
    leaf_bits: u8,
) -> Option<Result<OpenedRows, StoreError>> {
    let (tables, claim) = (&database.now.tables, grant.row());
    let destination = tables.destinations.get(&grant.destination_id)?;
    let relay = tables.relays.get(&grant.registration)?;
    let count = i32::try_from(destination.partitions.len()).unwrap_or(i32::MAX);
    let none = match none_of(count) {
        Ok(none) => none,
        Err(error) => return Some(Err(error)),
    };
    let group = |id: i64, position: &Position| {
        let mut partitions = none.clone();
        for partition in tables.partitions_of(grant.destination_id, id) {
            partitions.insert(partition);
        }
        Group {
            row: GroupRow {
                ids: vec![id],
                position: position.clone(),
            },
            partitions,
        }
    };
    let ours = tables.cursors_of_claim(&claim);
    let ours = ours.filter(|_| !relay.fenced);
    let groups: Vec<Group> = ours.map(|(id, row)| group(id, &row.position)).collect();
    (!groups.is_empty()).then_some(Ok(OpenedRows {
        groups,
        none,
        token: database.now.token,
        sequence: database.sequence(),
        leaf_bits,
    }))
}
