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
    ClaimOutcome, ClaimRequest, DestinationFound, GroupFound, Registered, ShareChange, Shares,
    StoreError, audit,
    rule::{Rule, left_out},
};
use uuid::Uuid;

use super::{
    creation::create,
    database::Database,
    server::{Connection, Several},
    tables::{CursorRow, MemberRow, Relay, Tables, small},
};
use crate::postgres::{
    claim::{Apply, ClaimTransaction, Claiming, Cut, OPERATION, RACES_MAX, comes_and_goes},
    micros::{from_micros, micros},
};

/// Gives the database's counters a token where a crash took it away.
pub(super) async fn refill_incarnation(
    connection: &Connection,
    by: Uuid,
) -> Result<(), StoreError> {
    let lost = connection.look(OPERATION, |database| database.now.tables.token.is_none());
    if !lost.await? {
        return Ok(());
    }
    let refill = connection.change(OPERATION, move |database| {
        if database.now.tables.token.is_some() {
            return Ok(());
        }
        let (token, now) = (database.new_id(), database.clock());
        let tables = &mut database.now.tables;
        tables.token = Some(token);
        tables.note(now, (Some(by), None), audit::INCARNATION, None, &[&token]);
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
                tables.token,
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
            tables.fence_expired((us, ""), &others, now);
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

impl Tables {
    pub(super) fn insert_cursor(&mut self, row: CursorRow) -> i64 {
        self.last_cursor += 1;
        self.cursors.insert(self.last_cursor, row);
        self.last_cursor
    }

    /// `sql/fence_expired.sql`, then `sql/revoke.sql`; answers our name.
    pub(super) fn lock_and_revoke(
        &mut self,
        relay: Registered,
        destination_id: Option<i64>,
        settle: i64,
        now: i64,
        operation: &'static str,
    ) -> Result<String, StoreError> {
        let us = relay.registration;
        let ours = self.relays.get(&us).filter(|row| !row.fenced);
        let name = ours
            .map(|row| row.name.clone())
            .ok_or(StoreError::Fenced { operation })?;
        let Some(destination_id) = destination_id else {
            return Ok(name);
        };
        let owners = self.cursors_of(destination_id);
        let mut owners: Vec<Uuid> = owners.filter_map(|(_, row)| row.relay).collect();
        owners.sort_unstable();
        owners.dedup();
        owners.retain(|owner| *owner != us);
        if left_out(Rule::FenceBeforeEpoch) {
            let is_over = |row: &Relay| row.fenced || row.lease_until <= now;
            owners.retain(|owner| self.relays.get(owner).is_none_or(is_over));
            self.revoke(&owners, destination_id, settle, now);
            return Ok(name);
        }
        self.fence_expired((us, &name), &owners, now);
        owners.retain(|owner| self.relays.get(owner).is_none_or(|row| row.fenced));
        self.revoke(&owners, destination_id, settle, now);
        Ok(name)
    }

    pub(super) fn fence_expired(&mut self, by: (Uuid, &str), owners: &[Uuid], now: i64) {
        for owner in owners {
            let expired = self
                .relays
                .get_mut(owner)
                .filter(|row| !row.fenced && row.lease_until <= now);
            if let Some(row) = expired {
                row.fenced = true;
                let name = row.name.clone();
                let values: [&dyn Display; 3] = [&name, owner, &audit::LEASE_OVER];
                self.note(now, (Some(by.0), Some(by.1)), audit::FENCE, None, &values);
            }
        }
    }

    fn revoke(&mut self, dead: &[Uuid], destination_id: i64, settle: i64, now: i64) {
        let epoch = self.destinations.get(&destination_id).map(|row| row.epoch);
        let mut changed = false;
        for row in self.cursors.values_mut() {
            let Some(relay) = row.relay.filter(|relay| dead.contains(relay)) else {
                continue;
            };
            if row.destination_id != destination_id {
                continue;
            }
            changed = true;
            row.relay = None;
            row.epoch = epoch.unwrap_or(0) + 1;
            if settle > 0 {
                row.not_before = row.not_before.max(now + settle);
            }
            row.former.retain(|former| *former != relay);
            row.former.push(relay);
            row.left_by = Some(relay);
            row.left_name = Some(
                self.relays
                    .get(&relay)
                    .map_or_else(String::new, |r| r.name.clone()),
            );
            row.left_dead = true;
        }
        let (members, relays) = (&mut self.members, &self.relays);
        let before = members.len();
        members.retain(|(of, relay), _| {
            *of != destination_id || !relays.get(relay).is_some_and(|row| row.fenced)
        });
        changed |= members.len() < before;
        if let Some(row) = self
            .destinations
            .get_mut(&destination_id)
            .filter(|_| changed)
        {
            row.epoch += 1;
            row.shares_version += 1;
        }
    }

    /// `sql/claim_look.sql`.
    fn look(&self, destination_id: i64, now: i64) -> Option<(String, DestinationFound)> {
        let destination = self.destinations.get(&destination_id)?;
        if !destination.is_kept() {
            return None;
        }
        let group = |(id, row): (i64, &CursorRow)| GroupFound {
            id,
            owner: row.relay,
            partitions: self.partitions_of(destination_id, id),
            settling: from_micros((row.not_before - now).max(0)),
            former: row.former.clone(),
            left_by: row.left_by,
            left_name: row.left_name.clone(),
            left_dead: row.left_dead,
        };
        let found = DestinationFound {
            count: small(destination.partitions.len()),
            wanted_count: self.partitions,
            epoch: destination.epoch,
            state: destination.state,
            breaker_open: self.breaker(destination_id) == "open",
            store_id: self.store_id,
            groups: self.cursors_of(destination_id).map(group).collect(),
        };
        Some((destination.address.clone(), found))
    }

    fn recut(&mut self, destination_id: i64, cut: Cut) {
        let Some(row) = self.destinations.get_mut(&destination_id) else {
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

    /// `sql/claim_split.sql`.
    fn split(&mut self, destination_id: i64, change: &ShareChange) -> Result<i64, StoreError> {
        let bug = || StoreError::Bug {
            operation: OPERATION,
            reason: "the row to be split is gone".to_owned(),
        };
        let apart = self.cursors.get(&change.id).cloned().ok_or_else(bug)?;
        let apart = self.insert_cursor(CursorRow {
            relay: None,
            ..apart
        });
        let row = self.destinations.get_mut(&destination_id).ok_or_else(bug)?;
        for partition in &change.free {
            match row.partitions.get_mut(usize::from(*partition)) {
                Some(cursor) if *cursor == change.id => *cursor = apart,
                _ => return Err(bug()),
            }
        }
        Ok(apart)
    }

    /// `sql/claim_apply.sql`.
    fn apply(&mut self, destination_id: i64, apply: &Apply<'_>, now: i64) {
        let (us, decision) = (apply.relay.registration, apply.decision);
        for id in &decision.owned {
            if let Some(row) = self.cursors.get_mut(id) {
                row.relay = Some(us);
                row.epoch = decision.epoch;
                (row.left_by, row.left_name, row.left_dead) = (None, None, false);
            }
        }
        let unsettled = micros(apply.request.unsettled);
        release(self, (us, apply.name), &decision.given_up, unsettled, now);
        let partitions_max = apply.request.partitions_max;
        let known = self.members.get(&(destination_id, us));
        let as_known = known.is_some_and(|row| row.partitions_max == partitions_max);
        let row = known.cloned().unwrap_or(MemberRow {
            partitions_max,
            leaving: false,
            reaches: None,
            last_error: None,
        });
        let enlisted = MemberRow {
            partitions_max,
            ..row
        };
        self.members.insert((destination_id, us), enlisted);
        let Some(row) = self.destinations.get_mut(&destination_id) else {
            return;
        };
        let (name, former) = (row.name.clone(), row.address.clone());
        row.epoch = decision.epoch;
        row.address = apply.request.address.to_owned();
        row.shares_version += i64::from(decision.moves || !as_known);
        let by = (Some(us), Some(apply.name));
        for (action, detail) in &decision.notes {
            self.note_line(now, by, action, Some(&name), detail.clone());
        }
        if !former.is_empty() && former != apply.request.address {
            let values: [&dyn Display; 2] = [&former, &apply.request.address];
            self.note(now, by, audit::ADDRESS_CHANGED, Some(&name), &values);
        }
    }
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
            tables.lock_and_revoke(relay, Some(self.destination_id), settle, now, OPERATION)
        });
        revoke.await
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
        name: &str,
        relay: Registered,
    ) -> Result<(), StoreError> {
        let recut = self.several.statement(|tables, now| {
            let id = self.destination_id;
            let former = tables.destinations.get(&id).map(|row| row.partitions.len());
            tables.recut(id, cut);
            let destination = tables.name_of(id);
            let by = (Some(relay.registration), Some(name));
            let values: [&dyn Display; 2] = [&former.unwrap_or(0), &count];
            tables.note(now, by, audit::RECUT, destination.as_deref(), &values);
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
            tables.apply(self.destination_id, apply, now);
            Ok(())
        });
        write.await
    }

    async fn shares(&self, destination: &str) -> Result<Option<Shares>, StoreError> {
        let look = self.several.statement(|tables, now| {
            let id = tables.destination_id(destination);
            Ok(id.and_then(|id| tables.shares(id, now, None)))
        });
        look.await
    }
}

/// `sql/release.sql`.
pub(super) fn release(
    tables: &mut Tables,
    (us, name): (Uuid, &str),
    cursors: &[i64],
    unsettled: i64,
    now: i64,
) {
    for id in cursors {
        let Some(row) = tables.cursors.get_mut(id) else {
            continue;
        };
        row.relay = None;
        (row.left_by, row.left_name, row.left_dead) = (Some(us), Some(name.to_owned()), false);
        if unsettled > 0 {
            row.not_before = row.not_before.max(now + unsettled);
            row.former.retain(|former| *former != us);
            row.former.push(us);
        }
    }
}
