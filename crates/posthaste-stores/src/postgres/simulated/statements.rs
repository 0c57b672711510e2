//! What the owner of a claim asks of the database.

use std::{collections::HashMap, fmt::Display, sync::Arc};

use async_trait::async_trait;
use posthaste_engine::{Budget, Due, EventRef, Marker, Parking, Settlement, StoreError, audit};
use uuid::Uuid;

use super::{
    database::Database,
    parking,
    read::{self, Reading},
    server::{Connection, Server},
    tables::within,
};
use crate::postgres::{
    Grant,
    claim::none_of,
    claimed::{Found, PostgresClaimed},
    converge::{Group, Row},
    course::Stored,
    read::{Read, Scope},
    slots::Slots,
    statements::Statements,
    sweep::{Position, Request},
};

/// The connections of one claim.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) grant: Arc<Grant>,
    pub(super) slots: Option<Slots>,
    /// All of its connections break together.
    pub(super) connection: Connection,
}

/// Reads the cursor under a claim.
pub(super) async fn open(
    server: &Arc<Server>,
    grant: &Grant,
) -> Result<PostgresClaimed, StoreError> {
    const OPERATION: &str = "open";
    let connection = Connection::open(server);
    let found = connection.look(OPERATION, |database| {
        find(database, grant, server.leaf_bits)
    });
    let found = found.await?.ok_or(StoreError::Fenced {
        operation: OPERATION,
    })?;
    PostgresClaimed::new(grant, found?, |found| {
        Arc::new(Owner {
            grant: Arc::new(grant.clone()),
            slots: found.slots(),
            connection,
        })
    })
}

/// `sql/open.sql`.
fn find(database: &Database, grant: &Grant, leaf_bits: u8) -> Option<Result<Found, StoreError>> {
    let tables = &database.now.tables;
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
            partitions.insert(u16::try_from(partition).unwrap_or(u16::MAX));
        }
        Group {
            row: Row {
                ids: vec![id],
                position: position.clone(),
            },
            partitions,
        }
    };
    let rows = tables.cursors_of(grant.destination_id);
    let ours = rows.filter(|(_, row)| {
        row.epoch == grant.epoch && row.relay == Some(grant.registration) && !relay.fenced
    });
    let groups: Vec<Group> = ours.map(|(id, row)| group(id, &row.position)).collect();
    (!groups.is_empty()).then_some(Ok(Found {
        groups,
        none,
        token: tables.token,
        sequence: database.sequence(),
        leaf_bits,
    }))
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

/// `sql/advance_merging.sql`, and with one place `sql/advance.sql`.
fn store(
    database: &mut Database,
    grant: &Grant,
    places: &[(i64, Position)],
    merged: &[(i64, i64)],
) {
    let now = database.clock();
    let tables = &mut database.now.tables;
    if let Some(destination) = tables.destinations.get_mut(&grant.destination_id) {
        for cursor in &mut destination.partitions {
            let rest = merged.iter().find(|(gone, _)| gone == cursor);
            *cursor = rest.map_or(*cursor, |(_, rest)| *rest);
        }
    }
    for (gone, rest) in merged {
        let is_ours = |row: &&_| -> bool {
            let row: &super::tables::CursorRow = row;
            row.destination_id == grant.destination_id
        };
        if tables.cursors.get(gone).filter(is_ours).is_none() {
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
            row.updated_at = now;
        }
    }
}

#[async_trait]
impl Statements for Owner {
    fn leaf_bits(&self) -> u8 {
        self.connection.server.leaf_bits
    }

    async fn read(
        &self,
        operation: &'static str,
        request: &Request,
        scope: Scope<'_>,
        budget: Budget,
    ) -> Result<Read, StoreError> {
        let reading = Reading {
            connection: &self.connection,
            grant: &self.grant,
            operation,
            request,
            scope,
            budget,
        };
        read::read(reading).await
    }

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

    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        parking::markers(self, after, limit).await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        parking::marked(self, keys).await
    }

    async fn stands(&self, keys: &[String]) -> Result<HashMap<String, Position>, StoreError> {
        parking::stands(self, keys).await
    }

    async fn move_markers(&self, to: &[(String, Position)]) -> Result<bool, StoreError> {
        parking::move_markers(self, to).await
    }

    async fn join(&self, keys: &[String]) -> Result<bool, StoreError> {
        parking::join(self, keys).await
    }

    async fn set_aside(&self) -> Result<Vec<EventRef>, StoreError> {
        parking::set_aside(self).await
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        parking::park(self, events).await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        parking::due(self, limit).await
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        parking::settle(self, id, settlement).await
    }

    /// `sql/report.sql`; who is fenced tells nothing, and is told so elsewhere.
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let (breaker, last_error) = (breaker.to_owned(), last_error.map(str::to_owned));
        let grant = Arc::clone(&self.grant);
        let report = self.connection.change("report", move |database| {
            let now = database.clock();
            let tables = &mut database.now.tables;
            if tables.guard(&grant, now, "report").is_err() {
                return Ok(());
            }
            let reaches = Some(breaker == "closed");
            let member = (grant.destination_id, grant.registration);
            let member = tables.members.get_mut(&member);
            let news = member.as_ref().is_some_and(|row| row.reaches != reaches);
            if let Some(row) = member {
                row.reaches = reaches;
                row.last_error = last_error.clone();
            }
            if let Some(row) = tables.destinations.get_mut(&grant.destination_id) {
                row.breaker = breaker;
                row.last_error = last_error;
                row.shares_version += i64::from(news);
            }
            Ok(())
        });
        report.await
    }

    /// `sql/reached.sql`.
    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let cluster = cluster.to_owned();
        let store = self.change("store the cluster", move |database, grant| {
            let now = database.clock();
            let tables = &mut database.now.tables;
            let row = tables.destinations.get_mut(&grant.destination_id);
            let Some(row) = row.filter(|row| row.cluster.as_ref() != Some(&cluster)) else {
                return Ok(None);
            };
            let (name, former) = (row.name.clone(), row.cluster.replace(cluster.clone()));
            if let Some(former) = &former {
                let by = (Some(grant.registration), None);
                let values: [&dyn Display; 2] = [former, &cluster];
                tables.note(now, by, audit::CLUSTER_CHANGED, Some(&name), &values);
            }
            Ok(former)
        });
        store.await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        let former = former.to_owned();
        let note = self.change("note taken fences", move |database, grant| {
            for row in database.now.tables.cursors.values_mut() {
                if row.destination_id == grant.destination_id
                    && row.relay == Some(grant.registration)
                    && row.epoch == grant.epoch
                {
                    row.former
                        .retain(|f| !former.contains(f) && *f != grant.registration);
                }
            }
            Ok(())
        });
        note.await
    }

    /// Nobody hints.
    async fn hinted(&self) {
        std::future::pending().await
    }
}
