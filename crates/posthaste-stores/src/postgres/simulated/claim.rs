//! A claim's statements, on the tables of its transaction.

use std::{
    fmt::Display,
    sync::{
        LockResult, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    ClaimOutcome, ClaimRequest, DestinationFound, Registered, ShareChange, Shares, StoreError,
    audit,
    rule::{Rule, left_out},
};
use uuid::Uuid;

use super::{
    creation::create,
    database::Database,
    server::{Connection, Several},
    tables::{CursorRow, Tables},
};
use crate::postgres::{
    claim::{Apply, ClaimTransaction, Claiming, Cut, OPERATION, RACES_MAX, comes_and_goes},
    micros::from_micros,
};

/// Gives the database's counters a token where a crash took it away.
pub(super) async fn refill_incarnation(
    connection: &Connection,
    by: Uuid,
) -> Result<(), StoreError> {
    let lost = connection.look(OPERATION, |database| database.now.token.is_none());
    if !lost.await? {
        return Ok(());
    }
    let refill = connection.change(OPERATION, move |database| {
        if database.now.token.is_some() {
            return Ok(());
        }
        let (token, now) = (database.new_id(), database.clock());
        database.now.token = Some(token);
        let tables = &mut database.now.tables;
        tables.note(now, Some(by), audit::INCARNATION, None, &[&token]);
        database.counters.incarnations += 1;
        Ok(())
    });
    refill.await
}

pub(super) async fn claim(
    connection: &Connection,
    relay: Registered,
    request: &ClaimRequest<'_>,
) -> Result<ClaimOutcome, StoreError> {
    refill_incarnation(connection, relay.registration).await?;
    for _ in 0..RACES_MAX {
        // Received before the claim's own transaction is sent: see `Grant::proven`.
        let before = connection.look(OPERATION, |database| {
            let tables = &database.now.tables;
            let destination_id = tables.destination_id(request.destination);
            let us = tables.relays.get(&relay.registration);
            let may_create = us.is_some_and(|row| !row.fenced);
            (
                database.sequence(),
                database.now.token,
                destination_id,
                may_create,
            )
        });
        let (proven, token, destination_id, may_create) = before.await?;
        let Some(destination_id) = destination_id else {
            if !may_create {
                return Err(StoreError::Fenced {
                    operation: OPERATION,
                });
            }
            create(connection, relay, request).await?;
            continue;
        };
        let claiming = Claiming {
            relay,
            request,
            destination_id,
            token: token.ok_or(StoreError::IncarnationChanged {
                operation: OPERATION,
            })?,
            proven,
        };
        let transaction = Transaction {
            several: connection.transaction(OPERATION).await?,
            destination_id,
            takes_over: AtomicBool::new(false),
            late: Mutex::default(),
        };
        if let Some(outcome) = claiming.run(&transaction).await? {
            let late = transaction.late.into_inner();
            transaction.several.commit().await?;
            in_transactions_of_their_own(connection, relay, late).await?;
            if transaction.takes_over.load(Relaxed) {
                connection.server.lock().note_take_over(destination_id);
            }
            return Ok(outcome);
        }
    }
    Err(comes_and_goes(request.destination))
}

/// A part of the claim's transaction, which comes later where a rule is left out.
async fn in_transactions_of_their_own(
    connection: &Connection,
    relay: Registered,
    late: LockResult<Vec<(i64, CursorRow)>>,
) -> Result<(), StoreError> {
    let late = late.unwrap_or_else(PoisonError::into_inner);
    if !late.is_empty() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let cover = connection.change(OPERATION, |database| {
            database.now.tables.cursors.extend(late);
            Ok(())
        });
        cover.await?;
    }
    if left_out(Rule::FenceBeforeEpoch) {
        let fence = move |database: &mut Database| {
            let (us, now) = (relay.registration, database.clock());
            let tables = &mut database.now.tables;
            let mut others: Vec<Uuid> = tables.relays.keys().copied().collect();
            others.retain(|other| *other != us);
            tables.fence_expired(us, &others, now);
            Ok(())
        };
        let connection = connection.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            connection.change(OPERATION, fence).await
        });
    }
    Ok(())
}

/// `sql/fence_expired.sql`, then `sql/revoke.sql`; answers our name.
pub(super) fn lock_and_revoke(
    tables: &mut Tables,
    (relay, destination_id): (Registered, Option<i64>),
    settle: Duration,
    now: i64,
    operation: &'static str,
) -> Result<String, StoreError> {
    let us = relay.registration;
    let name = tables.unless_fenced(us, operation)?.name.clone();
    let Some(id) = destination_id else {
        return Ok(name);
    };
    if left_out(Rule::FenceBeforeEpoch) {
        let mut owners = tables.owners(id);
        owners.retain(|owner| *owner != us && tables.live(*owner, now).is_none());
        tables.revoke(&owners, id, settle, now);
    } else {
        tables.fence_and_revoke(us, id, settle, now);
    }
    Ok(name)
}

fn recut(tables: &mut Tables, destination_id: i64, cut: Cut) {
    let Some(row) = tables.destinations.get_mut(&destination_id) else {
        return;
    };
    let factor = |factor: u16| usize::from(factor).max(1);
    let cursors = row.partitions.iter().copied();
    row.partitions = match cut {
        Cut::Finer(finer) => cursors
            .flat_map(|cursor| std::iter::repeat_n(cursor, factor(finer)))
            .collect(),
        Cut::Coarser(coarser) => cursors.step_by(factor(coarser)).collect(),
    };
    row.shares_version += 1;
}

/// One claim's transaction.
struct Transaction {
    several: Several,
    destination_id: i64,
    takes_over: AtomicBool,
    /// Rows that come in the next transaction.
    late: Mutex<Vec<(i64, CursorRow)>>,
}

#[async_trait]
impl ClaimTransaction for Transaction {
    async fn lock_and_revoke(&self, relay: Registered, settle: i64) -> Result<String, StoreError> {
        let revoke = self.several.statement(|tables, now| {
            let (of, settle) = ((relay, Some(self.destination_id)), from_micros(settle));
            lock_and_revoke(tables, of, settle, now, OPERATION)
        });
        revoke.await
    }

    /// All are of this version.
    async fn older_relay(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    async fn look(&self) -> Result<Option<(String, DestinationFound)>, StoreError> {
        let look = self
            .several
            .statement(|tables, now| Ok(tables.look(self.destination_id, now)));
        look.await
    }

    async fn recut(
        &self,
        cut: Cut,
        count: u16,
        _name: &str,
        relay: Registered,
    ) -> Result<(), StoreError> {
        let recut = self.several.statement(|tables, now| {
            let id = self.destination_id;
            let former = tables.destinations.get(&id).map(|row| row.partitions.len());
            recut(tables, id, cut);
            let (by, values): (_, [&dyn Display; 2]) =
                (relay.registration, [&former.unwrap_or(0), &count]);
            tables.note(now, Some(by), audit::RECUT, Some(id), &values);
            Ok(())
        });
        recut.await
    }

    async fn split(&self, change: &ShareChange) -> Result<i64, StoreError> {
        let split = self.several.statement(|tables, _| {
            let apart = tables.split(self.destination_id, change)?;
            let late =
                left_out(Rule::MovedPartitionIsCovered).then(|| tables.cursors.remove(&apart));
            let late = late.flatten().map(|row| (apart, row));
            self.late
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(late);
            Ok(apart)
        });
        split.await
    }

    async fn apply(&self, apply: &Apply<'_>) -> Result<(), StoreError> {
        let mut notes = apply.decision.notes.iter();
        let takes_over = notes.any(|(action, _)| *action == audit::TAKE_OVER.action);
        self.takes_over.store(takes_over, Relaxed);
        let write = self.several.statement(|tables, now| {
            let (us, decided) = (apply.relay.registration, (apply.request, apply.decision));
            tables.apply(us, self.destination_id, decided, now);
            Ok(())
        });
        write.await
    }

    async fn shares(&self, destination: &str) -> Result<Option<Shares>, StoreError> {
        let look = self.several.statement(|tables, now| {
            let id = tables.destination_id(destination);
            Ok(id.and_then(|id| tables.shares(id, now)))
        });
        look.await
    }
}
