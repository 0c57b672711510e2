//! The decision of a claim: which partitions change hands, under which epoch, and what the audit
//! says of it. Pure, no I/O. Behind its lock a store revokes, looks ([`DestinationFound`]), splits
//! the rows of which only a part changes hands, writes what is decided ([`ClaimDecision`]), and
//! answers with its outcome.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use uuid::Uuid;

use super::{
    AuditWords, Claim, ClaimOutcome, ClaimRequest, ShareChange, Shares, StoreError, Want, Wanted,
    audit,
    share_out::{GroupFound, blocks_are_whole, share_out},
};
use crate::Partitions;

/// A destination as a claim finds it.
#[derive(Debug)]
pub struct DestinationFound {
    /// Its partitions.
    pub count: u16,
    /// How many it is to have.
    pub wanted_count: u16,
    /// The newest epoch that was drawn.
    pub epoch: i64,
    /// The operators' wishes.
    pub wanted: Wanted,
    /// As [`Claim::breaker_open`].
    pub breaker_open: bool,
    /// As [`Claim::store_id`].
    pub store_id: Uuid,
    /// Ascending; at least one.
    pub groups: Vec<GroupFound>,
}

/// The changes of a claim.
#[derive(Debug)]
pub struct ClaimDecision {
    found: DestinationFound,
    us: Uuid,
    block: u16,
    /// Each partition with the row in which it lies now.
    rows: BTreeMap<u16, i64>,
    /// Rows that the relay owns from now on.
    pub owned: Vec<i64>,
    /// Rows that it gives up.
    pub given_up: Vec<i64>,
    /// Whether partitions change hands.
    pub moves: bool,
    /// The destination's epoch from now on.
    pub epoch: i64,
    /// Actions and details for the audit.
    pub notes: Vec<(&'static str, String)>,
}

impl DestinationFound {
    /// So many partitions are to be made of each one first; after that a claim looks again.
    #[must_use]
    pub fn finer(&self) -> Option<u16> {
        (self.wanted_count > self.count).then(|| self.wanted_count / self.count)
    }

    /// So many partitions are to become one.
    fn block(&self) -> u16 {
        self.count / self.wanted_count.max(1)
    }

    /// The groups that change hands, in the order of the rows. `finer`: so many partitions were
    /// made of each one that the request counts. A store gives the free partitions of a row that
    /// [`ShareChange::splits`] a row of their own, and says which; then the claim is decided.
    #[must_use]
    pub fn share_out(
        &self,
        us: Uuid,
        request: &ClaimRequest<'_>,
        finer: Option<u16>,
    ) -> Vec<ShareChange> {
        let want = scaled(request.want, finer.unwrap_or(1), request.partitions_max);
        let want = whole_blocks(want, self.block(), request.partitions_max);
        share_out(&self.groups, us, want, self.block())
    }

    /// The relay that lost or gave up a free group, unless that was `us`: whether it had died, and
    /// its name.
    fn left(&self, id: i64, us: Uuid) -> Option<(bool, String)> {
        let group = self.groups.iter().find(|group| group.id == id)?;
        group.left_by.filter(|by| *by != us)?;
        Some((group.left_dead, group.left_name.clone()?))
    }
}

impl ClaimDecision {
    /// Decides the claim of `us`.
    #[must_use]
    pub fn new(found: DestinationFound, us: Uuid, changes: &[ShareChange]) -> Self {
        let of_group = |group: &GroupFound| (group.id, group.partitions.clone());
        let groups = found.groups.iter().map(of_group);
        let rows = groups.flat_map(|(id, partitions)| partitions.into_iter().map(move |p| (p, id)));
        let mut decision = Self {
            rows: rows.collect(),
            block: found.block(),
            epoch: found.epoch,
            found,
            us,
            owned: Vec::new(),
            given_up: Vec::new(),
            moves: false,
            notes: Vec::new(),
        };
        let mut taken: BTreeMap<(bool, String), usize> = BTreeMap::new();
        let mut released = 0;
        for change in changes {
            decision
                .rows
                .extend(change.free.iter().map(|&p| (p, change.free_row)));
            if !change.ours.is_empty() {
                decision.owned.push(change.id);
            }
            if !change.was_ours {
                decision.moves = true;
                if let Some(left) = decision.found.left(change.id, us) {
                    *taken.entry(left).or_default() += change.ours.len();
                }
            } else if !change.free.is_empty() {
                decision.moves = true;
                decision.given_up.push(change.free_row);
                released += change.free.len();
            }
        }
        if !decision.owned.is_empty() {
            decision.epoch += 1;
        }
        if released > 0 {
            decision.note(audit::RELEASE, &[&released]);
        }
        for ((died, relay), count) in taken {
            decision.note(audit::taken_from(died), &[&count, &relay]);
        }
        decision
    }

    fn note(&mut self, words: AuditWords, values: &[&dyn std::fmt::Display]) {
        self.notes.push((words.action, words.detail(values)));
    }

    /// So many partitions become one now, since each such block lies in one row.
    #[must_use]
    pub fn coarser(&self) -> Option<u16> {
        let rows: Vec<i64> = self.rows.values().copied().collect();
        blocks_are_whole(&rows, usize::from(self.block)).then_some(self.block)
    }

    /// The answer, once everything is written. `inner` makes the store's own part of the claim, of
    /// the least row that is owned and of the partitions.
    ///
    /// # Errors
    /// [`StoreError::Bug`] where the count of partitions is none.
    pub fn outcome(
        self,
        destination_id: i64,
        request: &ClaimRequest<'_>,
        shares: Shares,
        inner: impl FnOnce(i64, &Partitions) -> Arc<dyn Any + Send + Sync>,
    ) -> Result<ClaimOutcome, StoreError> {
        let Some(&first) = self.owned.iter().min() else {
            return Ok(ClaimOutcome::Held(shares));
        };
        // A coarser cut has other numbers than those found.
        let width = self.coarser().unwrap_or(1);
        let mut partitions =
            Partitions::none_of(self.found.count / width).map_err(|reason| StoreError::Bug {
                operation: "claim",
                reason,
            })?;
        for (partition, row) in &self.rows {
            if self.owned.contains(row) {
                partitions.insert(partition / width);
            }
        }
        let groups = self.found.groups.iter();
        let ours: Vec<_> = groups.filter(|g| self.owned.contains(&g.id)).collect();
        let mut former: Vec<Uuid> = ours.iter().flat_map(|group| group.former.clone()).collect();
        former.sort_unstable();
        former.dedup();
        // Our own fence is taken by opening a lane.
        former.retain(|registration| *registration != self.us);
        Ok(ClaimOutcome::Owned(Claim {
            destination: request.destination.to_owned(),
            destination_id,
            epoch: u64::try_from(self.epoch).unwrap_or(0),
            settle: ours
                .iter()
                .map(|group| group.settling)
                .max()
                .unwrap_or_default(),
            wanted: self.found.wanted,
            breaker_open: self.found.breaker_open,
            store_id: self.found.store_id,
            former,
            shares,
            inner: inner(first, &partitions),
            partitions,
        }))
    }
}

/// A number of few partitions that was asked for, in terms of more; the bound that a person has set
/// holds.
fn scaled(want: Want, finer: u16, partitions_max: u16) -> Want {
    match want {
        Want::All => Want::All,
        Want::AtMost(count) => {
            Want::AtMost(count.saturating_mul(finer).min(partitions_max.max(count)))
        }
    }
}

/// The number that was asked for, in whole blocks: the rest of one could become nobody's.
fn whole_blocks(want: Want, block: u16, partitions_max: u16) -> Want {
    match want {
        Want::AtMost(count) if block > 1 => {
            let blocks = count.div_ceil(block).saturating_mul(block);
            Want::AtMost(blocks.min(partitions_max.max(count)))
        }
        _ => want,
    }
}
