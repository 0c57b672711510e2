//! Owners of a destination's partitions, and what is kept of each.

use std::{collections::BTreeSet, fmt::Display, time::Duration};

use posthaste_engine::{
    AuditLine, AuditWords, ClaimDecision, DestinationFound, GroupFound, Partitions, audit,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{DestinationRow, Inner, wall_micros};

#[derive(Debug)]
pub(super) struct PartitionRow {
    pub(super) owner: Option<Uuid>,
    pub(super) epoch: u64,
    pub(super) not_before: Instant,
    /// Log mode: everything up to here is passed. Mark mode: where the destination started.
    pub(super) cursor: i64,
    /// Former owners that may still have something under way at the broker.
    pub(super) former: BTreeSet<Uuid>,
    /// Whose it was last.
    left_by: Option<Left>,
}

#[derive(Debug, Clone)]
struct Left {
    registration: Uuid,
    relay: String,
    died: bool,
}

impl PartitionRow {
    pub(super) fn new(cursor: i64) -> Self {
        Self {
            owner: None,
            epoch: 0,
            not_before: Instant::now(),
            cursor,
            former: BTreeSet::new(),
            left_by: None,
        }
    }

    /// Makes it free once `wait` is over. The settle time that stands there is never lowered.
    fn free(&mut self, left: Left, wait: Duration) {
        self.not_before = self.not_before.max(Instant::now() + wait);
        if !wait.is_zero() || left.died {
            self.former.insert(left.registration);
        }
        self.owner = None;
        self.left_by = Some(left);
    }
}

impl Inner {
    pub(super) fn name_of(&self, relay: Uuid) -> String {
        let row = self.relays.get(&relay);
        row.map(|row| row.name.clone()).unwrap_or_default()
    }

    /// Writes a line of the audit; without a relay, an operator did it.
    pub(super) fn note(
        &mut self,
        words: AuditWords,
        relay: Option<&str>,
        destination: Option<&str>,
        values: &[&dyn Display],
    ) {
        self.audit.push(AuditLine {
            at: wall_micros(),
            action: words.action.to_owned(),
            relay: relay.map(str::to_owned),
            destination: destination.map(str::to_owned),
            detail: words.detail(values),
        });
    }

    /// Fences the owners whose lease is over, makes free what dead ones own, and strikes off who is
    /// fenced.
    pub(super) fn revoke(&mut self, by: Uuid, index: usize, settle: Duration) {
        let us = self.name_of(by);
        for owner in self.destinations[index].owners() {
            let Some(relay) = self.relays.get_mut(&owner) else {
                continue;
            };
            if owner == by || relay.is_live() {
                continue;
            }
            let (expired, name) = (!relay.fenced, relay.name.clone());
            relay.fenced = true;
            if expired {
                let values: [&dyn Display; 3] = [&name, &owner, &audit::LEASE_OVER];
                self.note(audit::FENCE, Some(&us), None, &values);
            }
            let row = &mut self.destinations[index];
            row.epoch += 1;
            row.shares_version += 1;
            let left = Left {
                registration: owner,
                relay: name,
                died: true,
            };
            for partition in row.partitions.iter_mut().filter(|p| p.owner == Some(owner)) {
                partition.epoch = row.epoch;
                partition.free(left.clone(), settle);
            }
        }
        let (row, relays) = (&mut self.destinations[index], &self.relays);
        let before = row.members.len();
        row.members
            .retain(|relay, _| relays.get(relay).is_none_or(|relay| !relay.fenced));
        row.shares_version += i64::from(row.members.len() < before);
    }

    /// Gives up what `relay` owns. Answers how many partitions that were.
    pub(super) fn give_up(&mut self, relay: Uuid, index: usize, unsettled: Duration) -> usize {
        let left = self.left_by(relay);
        let row = &mut self.destinations[index];
        let ours = row.partitions.iter_mut();
        let mut given = 0;
        for partition in ours.filter(|p| p.owner == Some(relay)) {
            partition.free(left.clone(), unsettled);
            given += 1;
        }
        row.shares_version += i64::from(given > 0);
        given
    }

    fn left_by(&self, relay: Uuid) -> Left {
        Left {
            registration: relay,
            relay: self.name_of(relay),
            died: false,
        }
    }

    /// The destination as a claim finds it: each partition is a group of its own.
    pub(super) fn look(&self, index: usize) -> DestinationFound {
        let (row, now) = (&self.destinations[index], Instant::now());
        let group = |(number, partition): (u16, &PartitionRow)| {
            let left = partition.left_by.as_ref();
            GroupFound {
                id: i64::from(number),
                owner: partition.owner,
                partitions: vec![number],
                settling: partition.not_before.saturating_duration_since(now),
                former: partition.former.iter().copied().collect(),
                left_by: left.map(|left| left.registration),
                left_name: left.map(|left| left.relay.clone()),
                left_dead: left.is_some_and(|left| left.died),
            }
        };
        let count = u16::try_from(row.partitions.len()).unwrap_or(u16::MAX);
        DestinationFound {
            count,
            wanted_count: count,
            epoch: row.epoch.cast_signed(),
            state: row.state,
            breaker_open: row.breaker() == "open",
            store_id: self.store_id,
            groups: (0..).zip(&row.partitions).map(group).collect(),
        }
    }

    /// Writes who owns what.
    pub(super) fn apply(&mut self, us: Uuid, index: usize, claim: &ClaimDecision, wait: Duration) {
        let left = self.left_by(us);
        let row = &mut self.destinations[index];
        row.epoch = claim.epoch.cast_unsigned();
        row.shares_version += i64::from(claim.moves);
        for (number, partition) in (0..).zip(&mut row.partitions) {
            if claim.owned.contains(&number) {
                partition.owner = Some(us);
                partition.epoch = row.epoch;
                partition.left_by = None;
            } else if claim.given_up.contains(&number) {
                partition.free(left.clone(), wait);
            }
        }
        let destination = row.name.clone();
        for (action, detail) in &claim.notes {
            self.audit.push(AuditLine {
                at: wall_micros(),
                action: (*action).to_owned(),
                relay: Some(left.relay.clone()),
                destination: Some(destination.clone()),
                detail: detail.clone(),
            });
        }
    }
}

impl DestinationRow {
    pub(super) fn partition_of(&self, slot: u16) -> &PartitionRow {
        let slots = usize::from(posthaste::SLOTS);
        &self.partitions[usize::from(slot) * self.partitions.len() / slots]
    }

    pub(super) fn owners(&self) -> BTreeSet<Uuid> {
        self.partitions.iter().filter_map(|p| p.owner).collect()
    }

    pub(super) fn owned(&self, relay: Uuid) -> u16 {
        let owned = self.partitions.iter().filter(|p| p.owner == Some(relay));
        u16::try_from(owned.count()).unwrap_or(Partitions::COUNT_MAX)
    }
}
