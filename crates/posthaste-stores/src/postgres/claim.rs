//! Claims: one transaction, behind the lock of the destination, in which nobody else changes who owns what.

use std::{collections::BTreeMap, sync::Arc};

use posthaste_engine::{
    Claim, ClaimOutcome, ClaimRequest, Partitions, Registered, Start, StoreError, Want,
};
use tokio_postgres::{Client as Driver, Row, types::Type};
use uuid::Uuid;

use super::{
    Grant,
    client::Client,
    error::classify,
    ownership::{destination_state, from_micros, micros},
    share_out::{Change, Group, Owner, blocks_are_whole, share_out},
    shares::shares_within,
};

const OPERATION: &str = "claim";
const INCARNATION_REFILL: &str = include_str!("sql/incarnation_refill.sql");
const CLAIM_BEFORE: &str = include_str!("sql/claim_before.sql");
const SHARES_LOCK: &str = include_str!("sql/shares_lock.sql");
const CURSORS_LOCK: &str = include_str!("sql/cursors_lock.sql");
const FENCE_EXPIRED: &str = include_str!("sql/fence_expired.sql");
const REVOKE: &str = include_str!("sql/revoke.sql");
const CLAIM_LOOK: &str = include_str!("sql/claim_look.sql");
const CLAIM_SPLIT: &str = include_str!("sql/claim_split.sql");
const CLAIM_APPLY: &str = include_str!("sql/claim_apply.sql");
const RELEASE: &str = include_str!("sql/release.sql");
const BREAKER: &str = include_str!("sql/breaker.sql");
const RECUT_FINER: &str = include_str!("sql/recut_finer.sql");
const RECUT_COARSER: &str = include_str!("sql/recut_coarser.sql");
const RECUT_DONE: &str = include_str!("sql/recut_done.sql");
const DESTINATION_LOCK: &str = include_str!("sql/destination_lock.sql");
const DESTINATION_CREATE: &str = include_str!("sql/destination_create.sql");

/// Each lost race means that the destination was created or removed meanwhile.
const RACES_MAX: u32 = 16;

/// A statement whose text has its fragments filled in.
pub(super) fn with_fragments(sql: &str) -> String {
    sql.replace("{release}", RELEASE)
        .replace("{breaker}", BREAKER)
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    classify(OPERATION, error)
}

fn bug(reason: String) -> StoreError {
    StoreError::Bug {
        operation: OPERATION,
        reason,
    }
}

/// Gives the database's counters a token where a crash took it away.
pub(super) async fn refill_incarnation(client: &Client, by: Uuid) -> Result<(), StoreError> {
    client
        .execute_typed(INCARNATION_REFILL, &[(&by, Type::UUID)])
        .await
        .map(drop)
        .map_err(failed)
}

pub(super) async fn claim(
    client: &mut Client,
    relay: Registered,
    request: &ClaimRequest<'_>,
) -> Result<ClaimOutcome, StoreError> {
    refill_incarnation(client, relay.registration).await?;
    for _ in 0..RACES_MAX {
        // Received before the claim's own transaction is sent: see `Grant::proven`.
        let before = client
            .query_typed_one(CLAIM_BEFORE, &[(&request.destination, Type::TEXT)])
            .await
            .map_err(failed)?;
        let Some(destination_id) = before.get::<_, Option<i64>>("destination_id") else {
            create(client, relay, request).await?;
            continue;
        };
        let token: Option<Uuid> = before.get("token");
        let transaction = client.transaction().await.map_err(failed)?;
        let mut work = Work {
            client: transaction.client(),
            relay,
            request,
            destination_id,
            token: token.ok_or(StoreError::IncarnationChanged {
                operation: OPERATION,
            })?,
            proven: before.get("sequence"),
            name: String::new(),
        };
        if let Some(outcome) = work.run().await? {
            transaction.commit().await.map_err(failed)?;
            return Ok(outcome);
        }
    }
    Err(StoreError::Unavailable {
        operation: OPERATION,
        reason: format!("`{}` comes and goes all the time", request.destination),
        source: None,
    })
}

/// Creates the destination where it starts; somebody else's creation counts as well.
async fn create(
    client: &mut Client,
    relay: Registered,
    request: &ClaimRequest<'_>,
) -> Result<(), StoreError> {
    let failed = |error| classify("create the destination", error);
    let transaction = client.transaction().await.map_err(failed)?;
    transaction
        .batch_execute(DESTINATION_LOCK)
        .await
        .map_err(failed)?;
    transaction
        .execute_typed(
            DESTINATION_CREATE,
            &[
                (&request.destination, Type::TEXT),
                (&(request.start == Start::Now), Type::BOOL),
                (&relay.registration, Type::UUID),
            ],
        )
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// Waits for the destination's lock, then frees what dead relays own of it; answers our name.
pub(super) async fn lock_and_revoke(
    client: &Driver,
    relay: Registered,
    destination_id: i64,
    settle: i64,
    operation: &'static str,
) -> Result<String, StoreError> {
    let failed = |error| classify(operation, error);
    let destination = (&destination_id as _, Type::INT8);
    let us = (&relay.registration as _, Type::UUID);
    client
        .query_typed(SHARES_LOCK, std::slice::from_ref(&destination))
        .await
        .map_err(failed)?;
    let myself = client
        .query_typed_opt(FENCE_EXPIRED, &[us.clone(), destination.clone()])
        .await
        .map_err(failed)?;
    let Some(myself) = myself else {
        return Err(StoreError::Fenced { operation });
    };
    client
        .query_typed(CURSORS_LOCK, std::slice::from_ref(&destination))
        .await
        .map_err(failed)?;
    client
        .execute_typed(REVOKE, &[destination, us, (&settle, Type::INT8)])
        .await
        .map_err(failed)?;
    Ok(myself.get("name"))
}

/// One claim inside its transaction.
struct Work<'a> {
    client: &'a Driver,
    relay: Registered,
    request: &'a ClaimRequest<'a>,
    destination_id: i64,
    token: Uuid,
    proven: i64,
    /// Our own.
    name: String,
}

/// What a claim finds of a destination.
struct Found {
    rows: Vec<Row>,
    groups: Vec<Group>,
    count: i32,
    wanted_count: i32,
}

/// What a claim changed.
#[derive(Default)]
struct Changed {
    owned: Vec<i64>,
    given_up: Vec<i64>,
    /// Each partition with the row in which it lies now, of those that we own or gave up.
    rows: BTreeMap<i32, i64>,
    /// Actions and details for the audit.
    notes: Vec<(&'static str, String)>,
}

impl Work<'_> {
    /// None: the destination is gone.
    async fn run(&mut self) -> Result<Option<ClaimOutcome>, StoreError> {
        let settle = micros(self.request.settle);
        self.name = lock_and_revoke(
            self.client,
            self.relay,
            self.destination_id,
            settle,
            OPERATION,
        )
        .await?;
        let Some(mut found) = self.look().await? else {
            return Ok(None);
        };
        let mut want = self.request.want;
        if found.wanted_count > found.count {
            let finer = found.wanted_count / found.count;
            want = scaled(want, finer, self.request.partitions_max);
            self.recut(RECUT_FINER, finer, found.wanted_count).await?;
            found = self.look().await?.ok_or_else(|| bug("no cursor".into()))?;
        }
        let block = found.count / found.wanted_count.max(1);
        let want = whole_blocks(want, block, self.request.partitions_max);
        let changes = share_out(&found.groups, want, block);
        let changed = self.change(&found, changes).await?;
        let epoch = self.apply(&found, &changed).await?;
        if let Some(count) = self.recut_coarser(&found, &changed, block).await? {
            found.count = count;
        }
        self.answer(&found, &changed, epoch, block).await.map(Some)
    }

    async fn look(&self) -> Result<Option<Found>, StoreError> {
        let sql = with_fragments(CLAIM_LOOK);
        let destination = (&self.destination_id as _, Type::INT8);
        let rows = self.client.query_typed(&sql, &[destination]).await;
        let rows = rows.map_err(failed)?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let group = |row: &Row| Group {
            id: row.get("id"),
            owner: match row.get::<_, Option<Uuid>>("relay") {
                Some(relay) if relay == self.relay.registration => Owner::Us,
                // Dead relays own nothing any more.
                Some(_) => Owner::Other,
                None => Owner::Free {
                    settling: row.get::<_, i64>("settling") > 0,
                },
            },
            partitions: row.get("partitions"),
        };
        Ok(Some(Found {
            groups: rows.iter().map(group).collect(),
            count: first.get("count"),
            wanted_count: first.get("wanted_count"),
            rows,
        }))
    }

    async fn recut(&self, sql: &str, factor: i32, count: i32) -> Result<(), StoreError> {
        let destination = (&self.destination_id as _, Type::INT8);
        self.client
            .execute_typed(sql, &[destination.clone(), (&factor, Type::INT4)])
            .await
            .map_err(failed)?;
        self.client
            .execute_typed(
                RECUT_DONE,
                &[
                    destination,
                    (&count, Type::INT4),
                    (&self.name, Type::TEXT),
                    (&self.relay.registration, Type::UUID),
                ],
            )
            .await
            .map(drop)
            .map_err(failed)
    }

    /// Cuts rows in two where only a part changes hands.
    async fn change(&self, found: &Found, changes: Vec<Change>) -> Result<Changed, StoreError> {
        let mut changed = Changed::default();
        let mut taken: BTreeMap<(bool, String), usize> = BTreeMap::new();
        let mut released = 0;
        for change in changes {
            let mut free_row = change.id;
            if !change.ours.is_empty() {
                changed.owned.push(change.id);
                if !change.free.is_empty() {
                    free_row = self.split(&change).await?;
                }
            }
            changed
                .rows
                .extend(change.ours.iter().map(|&p| (p, change.id)));
            changed
                .rows
                .extend(change.free.iter().map(|&p| (p, free_row)));
            if change.was_ours {
                released += change.free.len();
                if !change.free.is_empty() {
                    changed.given_up.push(free_row);
                }
            } else if let Some(left) = found.left(change.id, self.relay.registration) {
                *taken.entry(left).or_default() += change.ours.len();
            }
        }
        if released > 0 {
            let detail = format!("{released} partitions");
            changed.notes.push(("release", detail));
        }
        for ((died, relay), count) in taken {
            let action = if died { "take-over" } else { "hand-over" };
            let detail = format!("{count} partitions of relay `{relay}`");
            changed.notes.push((action, detail));
        }
        Ok(changed)
    }

    async fn split(&self, change: &Change) -> Result<i64, StoreError> {
        let row = self
            .client
            .query_typed_one(
                CLAIM_SPLIT,
                &[(&change.id, Type::INT8), (&change.free, Type::INT4_ARRAY)],
            )
            .await
            .map_err(failed)?;
        Ok(row.get("id"))
    }

    /// Writes who owns what, enlists us, and answers the epoch.
    async fn apply(&self, found: &Found, changed: &Changed) -> Result<i64, StoreError> {
        let former_epoch: i64 = found.rows.first().map_or(0, |row| row.get("epoch"));
        let epoch = former_epoch + i64::from(!changed.owned.is_empty());
        let (actions, details): (Vec<&str>, Vec<&str>) = changed
            .notes
            .iter()
            .map(|(action, detail)| (*action, detail.as_str()))
            .unzip();
        self.client
            .execute_typed(
                &with_fragments(CLAIM_APPLY),
                &[
                    (&self.destination_id, Type::INT8),
                    (&self.relay.registration, Type::UUID),
                    (&self.name, Type::TEXT),
                    (&epoch, Type::INT8),
                    (&changed.owned, Type::INT8_ARRAY),
                    (&changed.given_up, Type::INT8_ARRAY),
                    (&micros(self.request.unsettled), Type::INT8),
                    (&i32::from(self.request.partitions_max), Type::INT4),
                    (&self.request.address, Type::TEXT),
                    (&found.moves(changed), Type::BOOL),
                    (&actions, Type::TEXT_ARRAY),
                    (&details, Type::TEXT_ARRAY),
                ],
            )
            .await
            .map_err(failed)?;
        Ok(epoch)
    }

    /// Makes blocks one partition, once each of them lies in one row; answers how many there are then.
    async fn recut_coarser(
        &self,
        found: &Found,
        changed: &Changed,
        block: i32,
    ) -> Result<Option<i32>, StoreError> {
        let mut rows: BTreeMap<i32, i64> = BTreeMap::new();
        for group in &found.groups {
            rows.extend(group.partitions.iter().map(|&p| (p, group.id)));
        }
        rows.extend(&changed.rows);
        let rows: Vec<i64> = rows.into_values().collect();
        if !blocks_are_whole(&rows, usize::try_from(block).unwrap_or(0)) {
            return Ok(None);
        }
        self.recut(RECUT_COARSER, block, found.wanted_count).await?;
        Ok(Some(found.wanted_count))
    }

    async fn answer(
        &self,
        found: &Found,
        changed: &Changed,
        epoch: i64,
        block: i32,
    ) -> Result<ClaimOutcome, StoreError> {
        let destination = self.request.destination;
        let shares = shares_within(self.client, OPERATION, destination).await?;
        let shares = shares.ok_or_else(|| bug(format!("`{destination}` has no shares")))?;
        let Some(&cursor_id) = changed.owned.iter().min() else {
            return Ok(ClaimOutcome::Held(shares));
        };
        let mut partitions = none_of(found.count)?;
        // What was cut coarser has other numbers than what was found.
        let width = if found.count == found.wanted_count {
            block.max(1)
        } else {
            1
        };
        for (partition, row) in &changed.rows {
            if changed.owned.contains(row) {
                partitions.insert(number(partition / width)?);
            }
        }
        let ours = || {
            found
                .rows
                .iter()
                .filter(|row| changed.owned.contains(&row.get("id")))
        };
        let mut former: Vec<Uuid> = ours()
            .flat_map(|row| row.get::<_, Vec<Uuid>>("former"))
            .collect();
        former.sort_unstable();
        former.dedup();
        // Our own fence is taken by opening a lane.
        former.retain(|registration| *registration != self.relay.registration);
        let settling = ours().map(|row| row.get::<_, i64>("settling")).max();
        let first = found.rows.first().ok_or_else(|| bug("no cursor".into()))?;
        Ok(ClaimOutcome::Owned(Claim {
            destination: destination.to_owned(),
            destination_id: self.destination_id,
            epoch: u64::try_from(epoch).unwrap_or(0),
            partitions,
            settle: from_micros(settling.unwrap_or(0)),
            state: destination_state(first.get("state")),
            breaker_open: first.get("breaker_open"),
            store_id: first.get("store_id"),
            former,
            shares,
            inner: Arc::new(Grant {
                destination_id: self.destination_id,
                cursor_id,
                epoch,
                registration: self.relay.registration,
                token: self.token,
                proven: self.proven,
            }),
        }))
    }
}

impl Found {
    /// Who lost or gave up a free group, unless that was `us`: whether it had died, and its name.
    fn left(&self, id: i64, us: Uuid) -> Option<(bool, String)> {
        let row = self.rows.iter().find(|row| row.get::<_, i64>("id") == id)?;
        row.get::<_, Option<Uuid>>("left_by")
            .filter(|by| *by != us)?;
        Some((
            row.get("left_dead"),
            row.get::<_, Option<String>>("left_name")?,
        ))
    }

    /// Whether partitions change hands.
    fn moves(&self, changed: &Changed) -> bool {
        let ours = |id: &i64| {
            let mut groups = self.groups.iter();
            groups.any(|group| group.id == *id && group.owner == Owner::Us)
        };
        !changed.given_up.is_empty() || !changed.owned.iter().all(ours)
    }
}

/// What was asked for of few partitions, in terms of more; the bound that a person has set holds.
fn scaled(want: Want, finer: i32, partitions_max: u16) -> Want {
    match want {
        Want::All => Want::All,
        Want::AtMost(count) => {
            let factor = u16::try_from(finer).unwrap_or(u16::MAX);
            Want::AtMost(count.saturating_mul(factor).min(partitions_max.max(count)))
        }
    }
}

/// What was asked for, in whole blocks: the rest of one could become nobody's.
fn whole_blocks(want: Want, block: i32, partitions_max: u16) -> Want {
    match (want, u16::try_from(block)) {
        (Want::AtMost(count), Ok(block)) if block > 1 => {
            let blocks = count.div_ceil(block).saturating_mul(block);
            Want::AtMost(blocks.min(partitions_max.max(count)))
        }
        _ => want,
    }
}

pub(super) fn none_of(count: i32) -> Result<Partitions, StoreError> {
    Partitions::none_of(number(count)?).map_err(bug)
}

/// A partition's number, or how many there are.
pub(super) fn number(number: i32) -> Result<u16, StoreError> {
    u16::try_from(number).map_err(|_| bug(format!("there is no partition {number}")))
}
