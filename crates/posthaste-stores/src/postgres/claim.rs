//! Claims: one transaction, behind the lock of the destination, in which nobody else changes who owns what.

mod transaction;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use posthaste_engine::{
    Claim, ClaimOutcome, ClaimRequest, DestinationState, Partitions, Registered, Shares,
    StoreError, Want, audit,
};
use uuid::Uuid;

use super::{
    Grant,
    micros::{from_micros, micros},
    share_out::{Change, Group, Owner, blocks_are_whole, share_out},
};
pub(super) use transaction::{claim, lock_and_revoke, refill_incarnation, with_fragments};

pub(super) const OPERATION: &str = "claim";

/// Each lost race means that the destination was created or removed meanwhile.
pub(super) const RACES_MAX: u32 = 16;

fn bug(reason: String) -> StoreError {
    StoreError::Bug {
        operation: OPERATION,
        reason,
    }
}

pub(super) fn comes_and_goes(destination: &str) -> StoreError {
    StoreError::Unavailable {
        operation: OPERATION,
        reason: format!("`{destination}` comes and goes all the time"),
        source: None,
    }
}

/// The statements of one claim, all of them in one transaction.
#[async_trait]
pub(super) trait ClaimTransaction: Send + Sync {
    /// Waits for the destination's lock, then frees what dead relays own of it; answers our name.
    async fn lock_and_revoke(&self, relay: Registered, settle: i64) -> Result<String, StoreError>;

    /// None: the destination is gone.
    async fn look(&self) -> Result<Option<Found>, StoreError>;

    /// Cuts the slots into `count` partitions. No slot changes its row.
    async fn recut(
        &self,
        cut: Cut,
        count: i32,
        name: &str,
        relay: Registered,
    ) -> Result<(), StoreError>;

    /// Gives what is free of the row from now on a row of its own, at the same place; answers its id.
    async fn split(&self, change: &Change) -> Result<i64, StoreError>;

    /// Writes who owns what, and enlists us.
    async fn apply(&self, apply: &Apply<'_>) -> Result<(), StoreError>;

    async fn shares(&self, destination: &str) -> Result<Option<Shares>, StoreError>;
}

/// How partitions are cut anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// So many for each one.
    Finer(i32),
    /// So many become one.
    Coarser(i32),
}

/// What a claim writes.
pub(super) struct Apply<'a> {
    pub(super) relay: Registered,
    pub(super) name: &'a str,
    pub(super) request: &'a ClaimRequest<'a>,
    pub(super) epoch: i64,
    pub(super) changed: &'a Changed,
    /// Whether partitions change hands.
    pub(super) moves: bool,
}

/// One claim inside its transaction.
pub(super) struct Claiming<'a> {
    pub(super) relay: Registered,
    pub(super) request: &'a ClaimRequest<'a>,
    pub(super) destination_id: i64,
    pub(super) token: Uuid,
    /// As [`Grant::proven`].
    pub(super) proven: i64,
}

/// What a claim finds of a destination.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) count: i32,
    pub(super) wanted_count: i32,
    pub(super) epoch: i64,
    pub(super) state: DestinationState,
    pub(super) breaker_open: bool,
    pub(super) store_id: Uuid,
    /// Empty: nobody has claimed the destination yet.
    pub(super) address: String,
    /// Ascending; at least one.
    pub(super) groups: Vec<FoundGroup>,
}

/// A cursor group as a claim finds it.
#[derive(Debug)]
pub(super) struct FoundGroup {
    pub(super) id: i64,
    /// Live: dead relays own nothing any more.
    pub(super) owner: Option<Uuid>,
    pub(super) partitions: Vec<i32>,
    /// Microseconds.
    pub(super) settling: i64,
    pub(super) former: Vec<Uuid>,
    pub(super) left_by: Option<Uuid>,
    pub(super) left_name: Option<String>,
    pub(super) left_dead: bool,
}

/// What a claim changed.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) owned: Vec<i64>,
    pub(super) given_up: Vec<i64>,
    /// Each partition with the row in which it lies now, of those that we own or gave up.
    rows: BTreeMap<i32, i64>,
    /// Actions and details for the audit.
    pub(super) notes: Vec<(&'static str, String)>,
}

impl Claiming<'_> {
    /// None: the destination is gone.
    pub(super) async fn run(
        &self,
        statements: &dyn ClaimTransaction,
    ) -> Result<Option<ClaimOutcome>, StoreError> {
        let settle = micros(self.request.settle);
        let name = statements.lock_and_revoke(self.relay, settle).await?;
        let Some(mut found) = statements.look().await? else {
            return Ok(None);
        };
        if self.request.is_elsewhere(OPERATION, &found.address)? {
            let shares = self.shares(statements).await?;
            if shares.is_served_beside(self.relay.registration) {
                let address = found.address;
                return Ok(Some(ClaimOutcome::Elsewhere { address, shares }));
            }
        }
        let mut want = self.request.want;
        if found.wanted_count > found.count {
            let finer = found.wanted_count / found.count;
            want = scaled(want, finer, self.request.partitions_max);
            statements
                .recut(Cut::Finer(finer), found.wanted_count, &name, self.relay)
                .await?;
            let anew = statements.look().await?;
            found = anew.ok_or_else(|| bug("no cursor".into()))?;
        }
        let block = found.count / found.wanted_count.max(1);
        let want = whole_blocks(want, block, self.request.partitions_max);
        let groups = found.groups(self.relay.registration);
        let changes = share_out(&groups, want, block);
        let changed = self.change(statements, &found, changes).await?;
        let epoch = found.epoch + i64::from(!changed.owned.is_empty());
        let apply = Apply {
            relay: self.relay,
            name: &name,
            request: self.request,
            epoch,
            changed: &changed,
            moves: moves(&groups, &changed),
        };
        statements.apply(&apply).await?;
        if found.is_whole(&changed, block) {
            statements
                .recut(Cut::Coarser(block), found.wanted_count, &name, self.relay)
                .await?;
            found.count = found.wanted_count;
        }
        let shares = self.shares(statements).await?;
        self.answer(&found, &changed, epoch, block, shares)
            .map(Some)
    }

    async fn shares(&self, statements: &dyn ClaimTransaction) -> Result<Shares, StoreError> {
        let destination = self.request.destination;
        let shares = statements.shares(destination).await?;
        shares.ok_or_else(|| bug(format!("`{destination}` has no shares")))
    }

    /// Cuts rows in two where only a part changes hands.
    async fn change(
        &self,
        statements: &dyn ClaimTransaction,
        found: &Found,
        changes: Vec<Change>,
    ) -> Result<Changed, StoreError> {
        let mut changed = Changed::default();
        let mut taken: BTreeMap<(bool, String), usize> = BTreeMap::new();
        let mut released = 0;
        for change in changes {
            let mut free_row = change.id;
            if !change.ours.is_empty() {
                changed.owned.push(change.id);
                if !change.free.is_empty() {
                    free_row = statements.split(&change).await?;
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
            let detail = audit::RELEASE.detail(&[&released]);
            changed.notes.push((audit::RELEASE.action, detail));
        }
        for ((died, relay), count) in taken {
            let words = if died {
                audit::TAKE_OVER
            } else {
                audit::HAND_OVER
            };
            let detail = words.detail(&[&count, &relay]);
            changed.notes.push((words.action, detail));
        }
        Ok(changed)
    }

    fn answer(
        &self,
        found: &Found,
        changed: &Changed,
        epoch: i64,
        block: i32,
        shares: Shares,
    ) -> Result<ClaimOutcome, StoreError> {
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
            let groups = found.groups.iter();
            groups.filter(|group| changed.owned.contains(&group.id))
        };
        let mut former: Vec<Uuid> = ours().flat_map(|group| group.former.clone()).collect();
        former.sort_unstable();
        former.dedup();
        // Our own fence is taken by opening a lane.
        former.retain(|registration| *registration != self.relay.registration);
        let settling = ours().map(|group| group.settling).max();
        Ok(ClaimOutcome::Owned(Claim {
            destination: self.request.destination.to_owned(),
            destination_id: self.destination_id,
            epoch: u64::try_from(epoch).unwrap_or(0),
            partitions,
            settle: from_micros(settling.unwrap_or(0)),
            state: found.state,
            breaker_open: found.breaker_open,
            store_id: found.store_id,
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
    fn groups(&self, us: Uuid) -> Vec<Group> {
        let group = |group: &FoundGroup| Group {
            id: group.id,
            owner: match group.owner {
                Some(relay) if relay == us => Owner::Us,
                Some(_) => Owner::Other,
                None => Owner::Free {
                    settling: group.settling > 0,
                },
            },
            partitions: group.partitions.clone(),
        };
        self.groups.iter().map(group).collect()
    }

    /// Who lost or gave up a free group, unless that was `us`: whether it had died, and its name.
    fn left(&self, id: i64, us: Uuid) -> Option<(bool, String)> {
        let group = self.groups.iter().find(|group| group.id == id)?;
        group.left_by.filter(|by| *by != us)?;
        Some((group.left_dead, group.left_name.clone()?))
    }

    /// Whether each block lies in one row, so that it can become one partition.
    fn is_whole(&self, changed: &Changed, block: i32) -> bool {
        let mut rows: BTreeMap<i32, i64> = BTreeMap::new();
        for group in &self.groups {
            rows.extend(group.partitions.iter().map(|&p| (p, group.id)));
        }
        rows.extend(&changed.rows);
        let rows: Vec<i64> = rows.into_values().collect();
        blocks_are_whole(&rows, usize::try_from(block).unwrap_or(0))
    }
}

/// Whether partitions change hands.
fn moves(groups: &[Group], changed: &Changed) -> bool {
    let ours = |id: &i64| {
        let mut groups = groups.iter();
        groups.any(|group| group.id == *id && group.owner == Owner::Us)
    };
    !changed.given_up.is_empty() || !changed.owned.iter().all(ours)
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
