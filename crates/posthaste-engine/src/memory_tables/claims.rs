//! The owners of partitions: what a claim looks at and writes, and what a dead relay loses.

use std::{fmt::Display, time::Duration};

use uuid::Uuid;

use super::{DestinationRow, Tables, from_micros, micros, small};
use crate::{
    ClaimDecision, ClaimRequest, DeadAction, DestinationFound, DestinationState, GroupFound,
    ParkedState, ShareChange, Start, StoreError, Wanted, audit,
};

/// Where the partitions of one group stand, and their owner.
#[derive(Debug, Clone)]
pub struct CursorRow<P> {
    pub destination_id: i64,
    pub position: P,
    /// The owner.
    pub relay: Option<Uuid>,
    pub epoch: i64,
    /// When a settle time ends.
    pub not_before: i64,
    /// Former owners that may still have something under way at the broker.
    pub former: Vec<Uuid>,
    /// The relay that lost or gave up the group.
    pub left_by: Option<Left>,
}

/// A relay that does not own a group any more.
#[derive(Debug, Clone)]
pub struct Left {
    relay: Uuid,
    name: String,
    died: bool,
}

/// A claim, by its row with the least id. All of its rows bear its epoch and are revoked together,
/// so that one of them speaks for all.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRow {
    pub destination_id: i64,
    pub cursor_id: i64,
    pub epoch: i64,
    pub registration: Uuid,
}

impl<P> CursorRow<P> {
    /// Whether it is one of the claim's rows.
    pub fn is_of(&self, claim: &ClaimRow) -> bool {
        self.destination_id == claim.destination_id
            && self.epoch == claim.epoch
            && self.relay == Some(claim.registration)
    }

    /// Makes it free. `settle`: how long bytes of the owner may still arrive, which never lowers
    /// what stands there.
    fn free(&mut self, left: Left, settle: Duration, now: i64) {
        self.relay = None;
        if !settle.is_zero() {
            self.not_before = self.not_before.max(now + micros(settle));
        }
        if !settle.is_zero() || left.died {
            self.former.retain(|former| *former != left.relay);
            self.former.push(left.relay);
        }
        self.left_by = Some(left);
    }
}

impl<P> Tables<P> {
    /// Whether the claim is the newest of its rows, and its relay is not fenced.
    pub fn is_newest(&self, claim: &ClaimRow) -> bool {
        let row = self.cursors.get(&claim.cursor_id);
        let relay = self.relays.get(&claim.registration);
        row.is_some_and(|row| row.is_of(claim)) && relay.is_some_and(|row| !row.fenced)
    }

    pub fn cursors_of_claim(&self, claim: &ClaimRow) -> impl Iterator<Item = (i64, &CursorRow<P>)> {
        let rows = self.cursors.iter().map(|(id, row)| (*id, row));
        rows.filter(|(_, row)| row.is_of(claim))
    }

    /// `destination_create.sql`: all of its partitions stand at one place.
    ///
    /// `has`: whether the outbox has the event of this `seq`. A destination that begins at the
    /// oldest one sends these itself: copies that a removed one of its name left are discarded.
    pub fn create(
        &mut self,
        name: &str,
        position: P,
        (by, start): (Uuid, Start),
        has: impl Fn(i64) -> bool,
        now: i64,
    ) -> i64 {
        let mut read_again = 0;
        if start == Start::Oldest {
            let destinations = &self.destinations;
            for row in self.parked.values_mut() {
                let of = destinations.get(&row.destination_id);
                let is_left = of.is_some_and(|of| of.name == name && !of.is_kept())
                    && row.state == ParkedState::Skipped;
                if is_left && has(row.event.seq()) {
                    row.act(DeadAction::Discard, now);
                    read_again += 1;
                }
            }
        }
        // Sinks compare epochs, relays versions: a name that was removed goes on above them.
        let former = || self.destinations.values().filter(|row| row.name == name);
        let epoch = former().map(|row| row.epoch).max().unwrap_or(0);
        let version = former().map(|row| row.shares_version).max().unwrap_or(0);
        self.last_destination += 1;
        let id = self.last_destination;
        let cursor = self.insert_cursor(CursorRow {
            destination_id: id,
            position,
            relay: None,
            epoch: 0,
            not_before: 0,
            former: Vec::new(),
            left_by: None,
        });
        let destination = DestinationRow {
            name: name.to_owned(),
            address: String::new(),
            cluster: None,
            wanted: Wanted::whole(DestinationState::Active),
            breaker: "closed".to_owned(),
            last_error: None,
            epoch,
            shares_version: version + 1,
            partitions: vec![cursor; usize::from(self.partitions)],
        };
        self.destinations.insert(id, destination);
        if read_again > 0 {
            self.note(now, Some(by), audit::READ_AGAIN, Some(id), &[&read_again]);
        }
        let words = audit::DESTINATION_CREATED;
        self.note(now, Some(by), words, Some(id), &[&audit::start(start)]);
        id
    }

    fn insert_cursor(&mut self, row: CursorRow<P>) -> i64 {
        self.last_cursor += 1;
        self.cursors.insert(self.last_cursor, row);
        self.last_cursor
    }

    /// The relays that own something of a destination.
    pub fn owners(&self, destination_id: i64) -> Vec<Uuid> {
        let owners = self.cursors_of(destination_id);
        let mut owners: Vec<Uuid> = owners.filter_map(|(_, row)| row.relay).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The cursors of a destination that a relay owns.
    pub(super) fn owned_by(
        &self,
        destination_id: i64,
        relay: Uuid,
    ) -> impl Iterator<Item = (i64, &CursorRow<P>)> {
        let all = self.cursors_of(destination_id);
        all.filter(move |(_, row)| row.relay == Some(relay))
    }

    /// `fence_expired.sql`, then `revoke.sql`.
    pub fn fence_and_revoke(&mut self, by: Uuid, destination_id: i64, settle: Duration, now: i64) {
        let mut owners = self.owners(destination_id);
        owners.retain(|owner| *owner != by);
        self.fence_expired(by, &owners, now);
        owners.retain(|owner| self.relays.get(owner).is_none_or(|row| row.fenced));
        self.revoke(&owners, destination_id, settle, now);
    }

    /// Fences those of these relays whose lease is over.
    pub fn fence_expired(&mut self, by: Uuid, relays: &[Uuid], now: i64) {
        for relay in relays {
            if self.live(*relay, now).is_none() {
                self.set_fenced(by, *relay, audit::LEASE_OVER, now);
            }
        }
    }

    /// Makes free what dead relays own of a destination, and strikes off the fenced ones.
    pub fn revoke(&mut self, dead: &[Uuid], destination_id: i64, settle: Duration, now: i64) {
        let epoch = self.destinations.get(&destination_id).map(|row| row.epoch);
        let mut changed = false;
        for row in self.cursors.values_mut() {
            let owner = row.relay.filter(|relay| dead.contains(relay));
            let Some(relay) = owner.filter(|_| row.destination_id == destination_id) else {
                continue;
            };
            changed = true;
            row.epoch = epoch.unwrap_or(0) + 1;
            let known = self.relays.get(&relay);
            let left = Left {
                relay,
                name: known.map(|row| row.name.clone()).unwrap_or_default(),
                died: true,
            };
            row.free(left, settle, now);
        }
        let (members, relays) = (&mut self.members, &self.relays);
        let before = members.len();
        members.retain(|(of, relay), _| {
            *of != destination_id || relays.get(relay).is_none_or(|row| !row.fenced)
        });
        changed |= members.len() < before;
        let row = self.destinations.get_mut(&destination_id);
        if let Some(row) = row.filter(|_| changed) {
            row.epoch += 1;
            row.shares_version += 1;
        }
    }

    /// `claim_look.sql`: the destination's address, and how it stands; none: it is gone.
    pub fn look(&self, destination_id: i64, now: i64) -> Option<(String, DestinationFound)> {
        let destination = self.destinations.get(&destination_id)?;
        if !destination.is_kept() {
            return None;
        }
        let group = |(id, row): (i64, &CursorRow<P>)| GroupFound {
            id,
            owner: row.relay,
            partitions: self.partitions_of(destination_id, id),
            settling: from_micros(row.not_before - now),
            former: row.former.clone(),
            left_by: row.left_by.as_ref().map(|left| left.relay),
            left_name: row.left_by.as_ref().map(|left| left.name.clone()),
            left_dead: row.left_by.as_ref().is_some_and(|left| left.died),
        };
        let count = small(destination.partitions.len());
        let found = DestinationFound {
            count,
            wanted_count: match self.recuts {
                true => self.partitions,
                false => count,
            },
            epoch: destination.epoch,
            wanted: destination.wanted.clone(),
            breaker_open: self.breaker(destination_id) == "open",
            store_id: self.store_id,
            groups: self.cursors_of(destination_id).map(group).collect(),
        };
        Some((destination.address.clone(), found))
    }

    /// `claim_apply.sql`: writes who owns what, and enlists the relay.
    pub fn apply(
        &mut self,
        us: Uuid,
        destination_id: i64,
        (request, decision): (&ClaimRequest<'_>, &ClaimDecision),
        now: i64,
    ) {
        for id in &decision.owned {
            if let Some(row) = self.cursors.get_mut(id) {
                (row.relay, row.epoch, row.left_by) = (Some(us), decision.epoch, None);
            }
        }
        self.release(us, &decision.given_up, request.unsettled, now);
        let (member, wanted) = ((destination_id, us), request.partitions_max);
        let known = self.members.get(&member).map(|row| row.partitions_max);
        self.members.entry(member).or_default().partitions_max = wanted;
        for (action, detail) in &decision.notes {
            self.note_line(now, Some(us), action, Some(destination_id), detail.clone());
        }
        let Some(row) = self.destinations.get_mut(&destination_id) else {
            return;
        };
        row.epoch = decision.epoch;
        row.shares_version += i64::from(decision.moves || known != Some(wanted));
        let former = std::mem::replace(&mut row.address, request.address.to_owned());
        if !former.is_empty() && former != request.address {
            let values: [&dyn Display; 2] = [&former, &request.address];
            self.note(
                now,
                Some(us),
                audit::ADDRESS_CHANGED,
                Some(destination_id),
                &values,
            );
        }
    }

    /// `release.sql`: gives these cursors up.
    pub fn release(&mut self, relay: Uuid, cursors: &[i64], unsettled: Duration, now: i64) {
        let left = Left {
            relay,
            name: self.relay_name(Some(relay)).unwrap_or_default(),
            died: false,
        };
        for id in cursors {
            if let Some(row) = self.cursors.get_mut(id) {
                row.free(left.clone(), unsettled, now);
            }
        }
    }

    /// As [`crate::ClaimReports::fences_taken`]. A lane takes our own fence when it is opened.
    pub fn fences_taken(&mut self, claim: &ClaimRow, former: &[Uuid]) {
        for row in self.cursors.values_mut().filter(|row| row.is_of(claim)) {
            let is_taken = |id: &Uuid| former.contains(id) || *id == claim.registration;
            row.former.retain(|id| !is_taken(id));
        }
    }
}

impl<P: Clone> Tables<P> {
    /// `claim_split.sql`: gives the free partitions of a row one of their own, at the same place.
    /// Answers its id.
    ///
    /// # Errors
    /// [`StoreError::Bug`] where they are not in that row.
    pub fn split(&mut self, destination_id: i64, change: &ShareChange) -> Result<i64, StoreError> {
        let bug = || StoreError::Bug {
            operation: "claim",
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
}
