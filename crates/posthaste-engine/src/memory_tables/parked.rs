//! Parked events: what waits, what holds its key, whose turn it is, and what an attempt changes.

use std::{collections::HashSet, fmt::Display, time::Duration};

use uuid::Uuid;

use super::{MarkerRow, Tables, from_micros, micros};
use crate::{
    AfterFailure, DeadAction, Due, DueAt, ParkedCopy, ParkedState, Parking, PutOff, RejectionKind,
    SetAside, Settlement, StoredEvent, audit, was_never_tried, was_put_off,
};

/// A parked event.
#[derive(Debug, Clone)]
pub struct ParkedRow {
    pub destination_id: i64,
    pub event: StoredEvent,
    pub state: ParkedState,
    pub attempts: u32,
    pub kind: String,
    pub reason: String,
    pub parked_at: i64,
    /// None where it is not tried again by itself, and where it waits for its turn.
    pub due_at: Option<i64>,
    /// Since when nothing waits for it. A skipped event that is tried again keeps it.
    pub settled_at: Option<i64>,
    /// A follower of a blocked key, which retention copied.
    pub evacuated: bool,
    /// When each recorded attempt was made.
    pub tried: Vec<i64>,
}

impl ParkedRow {
    pub fn waits(&self) -> bool {
        self.state.waits()
    }

    /// `holds_key.sql`. The key of a skipped event has gone on.
    pub fn holds_key(&self) -> bool {
        self.waits() && self.settled_at.is_none()
    }

    fn copy(&self, id: i64) -> ParkedCopy {
        ParkedCopy {
            id,
            event: self.event.clone(),
            attempts: self.attempts,
            holds_key: self.holds_key(),
            never_tried: was_never_tried(&self.kind),
        }
    }

    pub(super) fn is_of(&self, destination_id: i64, key: &str) -> bool {
        self.destination_id == destination_id && self.event.order_key() == Some(key)
    }

    /// Whether it waits behind an earlier event of its key.
    pub(super) fn waits_for_its_turn(&self) -> bool {
        self.state == ParkedState::Parked && self.due_at.is_none()
    }

    /// The effect of an operator's action.
    pub(super) fn act(&mut self, action: DeadAction, now: i64) {
        match action {
            DeadAction::Retry => {
                self.state = ParkedState::Parked;
                (self.attempts, self.due_at) = (0, Some(now));
            }
            DeadAction::Skip => self.close(ParkedState::Skipped, now),
            DeadAction::Discard => {
                self.close(ParkedState::Discarded, now);
                self.event = self.event.without_payload();
            }
        }
    }

    pub(super) fn close(&mut self, state: ParkedState, now: i64) {
        self.state = state;
        (self.due_at, self.settled_at) = (None, Some(now));
    }

    /// `retention_parked_due.sql`: whether nothing has waited for it since `before`. A dead event
    /// that holds its key waits for an operator, however long.
    pub fn is_settled(&self, before: i64) -> bool {
        match self.state {
            ParkedState::Parked => false,
            ParkedState::Dead => {
                let holds = self.event.key().is_some() && self.holds_key();
                let tried = self.tried.iter().any(|at| *at > before);
                !holds && !tried && self.settled_at.unwrap_or(self.parked_at) <= before
            }
            ParkedState::Skipped | ParkedState::Discarded | ParkedState::Delivered => {
                self.settled_at.is_some_and(|at| at <= before)
            }
        }
    }
}

impl<P> Tables<P> {
    /// Whether a parked event holds the key.
    pub fn holds(&self, destination_id: i64, key: &str) -> bool {
        let mut parked = self.parked.values();
        parked.any(|row| row.holds_key() && row.is_of(destination_id, key))
    }

    /// The keys that parked events hold: once for many keys, where [`Self::holds`] looks at all
    /// events for one.
    pub(super) fn held_keys(&self, destination_id: i64) -> HashSet<&str> {
        let of = |row: &&ParkedRow| row.destination_id == destination_id && row.holds_key();
        let held = self.parked.values().filter(of);
        held.filter_map(|row| row.event.order_key()).collect()
    }

    /// Whether nothing earlier of the copy's key waits.
    fn is_first(&self, copy: i64, row: &ParkedRow) -> bool {
        let Some(key) = row.event.order_key() else {
            return false;
        };
        let id = row.destination_id;
        let mut earlier = self.parked.range(..copy);
        self.markers.contains_key(&(id, key.to_owned()))
            && !earlier.any(|(_, row)| row.holds_key() && row.is_of(id, key))
    }

    fn insert_parked(&mut self, row: ParkedRow) {
        self.last_parked += 1;
        self.parked.insert(self.last_parked, row);
    }

    /// `park.sql` for one event. A skipped one leaves no marker. It takes along one that stands.
    pub fn park(&mut self, (id, by): (i64, Uuid), parking: Parking, at: P, now: i64) {
        let state = parking.next.state();
        let (event, kind) = (parking.event, parking.kind);
        let values: [&dyn Display; 3] = [&event.id(), &event.seq(), &kind];
        self.note(now, Some(by), audit::parked_as(state), Some(id), &values);
        if let Some(key) = event.order_key() {
            let of = (id, key.to_owned());
            if let Some(marker) = self.markers.get_mut(&of) {
                marker.position = at;
            } else if parking.next != AfterFailure::Skip {
                let marker = MarkerRow {
                    slot: event.slot(),
                    position: at,
                    since: now,
                };
                self.markers.insert(of, marker);
            }
        }
        self.insert_parked(ParkedRow {
            destination_id: id,
            event,
            state,
            attempts: parking.attempts,
            kind: kind.to_owned(),
            reason: parking.reason,
            parked_at: now,
            due_at: parking.next.retry_in().map(|wait| now + micros(wait)),
            settled_at: (!state.waits()).then_some(now),
            evacuated: false,
            tried: (parking.attempts > 0).then_some(now).into_iter().collect(),
        });
    }

    /// Parks followers of a destination's blocked keys behind the events that block them. `reach`:
    /// the last `seq` that was looked at.
    pub fn evacuate(
        &mut self,
        destination_id: i64,
        followers: Vec<StoredEvent>,
        reach: i64,
        by: Option<Uuid>,
        now: i64,
    ) {
        if followers.is_empty() {
            return;
        }
        let values: [&dyn Display; 2] = [&followers.len(), &reach];
        self.note(now, by, audit::EVACUATE, Some(destination_id), &values);
        for event in followers {
            self.insert_parked(ParkedRow {
                destination_id,
                event,
                state: ParkedState::Parked,
                attempts: 0,
                kind: "evacuated".to_owned(),
                reason: "waits for its turn behind an earlier event of its key".to_owned(),
                parked_at: now,
                due_at: None,
                settled_at: None,
                evacuated: true,
                tried: Vec::new(),
            });
        }
    }

    /// As [`crate::ClaimParking::set_aside`]. `passed`: what every cursor of the claim has passed.
    pub fn set_aside(
        &self,
        destination_id: i64,
        passed: Option<i64>,
        owns: impl Fn(u16) -> bool,
    ) -> SetAside {
        let is_ours = |row: &ParkedRow| {
            row.destination_id == destination_id && !row.evacuated && owns(row.event.slot())
        };
        let ours = || self.parked.values().filter(|row| is_ours(row));
        let again = ours().filter(|row| passed.is_some_and(|passed| row.event.seq() > passed));
        let is_alone = |row: &&ParkedRow| {
            let is_parked = row.state == ParkedState::Parked;
            is_parked && row.event.key().is_none() && row.kind == RejectionKind::NotNow.as_str()
        };
        SetAside {
            again: again.map(|row| row.event.reference()).collect(),
            put_off_alone: ours().filter(is_alone).count(),
        }
    }

    /// `due.sql`.
    pub fn due(
        &self,
        destination_id: i64,
        owns: impl Fn(u16) -> bool,
        limit: usize,
        now: i64,
    ) -> Due {
        let waits = |row: &ParkedRow| {
            row.destination_id == destination_id
                && row.state == ParkedState::Parked
                && owns(row.event.slot())
        };
        let mut found: Vec<(i64, i64, &ParkedRow)> = Vec::new();
        let mut next_at: Option<i64> = None;
        for (copy, row) in self.parked.iter().filter(|(_, row)| waits(row)) {
            match row.due_at {
                Some(at) if at <= now => found.push((at, *copy, row)),
                Some(at) => next_at = Some(next_at.unwrap_or(at).min(at)),
                None if self.is_first(*copy, row) => found.push((row.parked_at, *copy, row)),
                None => {}
            }
        }
        found.sort_by_key(|(at, copy, _)| (*at, *copy));
        let held = self.held_keys(destination_id);
        let mut released = self.markers_of(destination_id, owns);
        released.sort_by_key(|(key, row)| (row.since, *key));
        released.retain(|(key, _)| !held.contains(key));
        let released = released.into_iter().take(limit);
        let events = found.into_iter().take(limit);
        Due {
            events: events.map(|(_, copy, row)| row.copy(copy)).collect(),
            released: released.map(|(key, _)| key.to_owned()).collect(),
            next_in: next_at.map(|at| from_micros(at - now)),
        }
    }

    /// `put_off.sql`.
    pub fn put_off(
        &self,
        destination_id: i64,
        owns: impl Fn(u16) -> bool,
        after: Option<DueAt>,
        limit: usize,
        now: i64,
    ) -> Vec<PutOff> {
        let found = self.parked.iter().filter_map(|(copy, row)| {
            let at = DueAt(row.due_at.filter(|at| *at > now)?, *copy);
            let waits = row.destination_id == destination_id
                && row.state == ParkedState::Parked
                && was_put_off(&row.kind)
                && owns(row.event.slot())
                && after.is_none_or(|after| at > after);
            waits.then_some((at, row))
        });
        let mut found: Vec<(DueAt, &ParkedRow)> = found.collect();
        found.sort_by_key(|(at, _)| *at);
        let put_off = |(at, row): (DueAt, &ParkedRow)| PutOff {
            at,
            copy: row.copy(at.1),
        };
        found.into_iter().take(limit).map(put_off).collect()
    }

    /// `settle.sql`.
    pub fn settle(
        &mut self,
        (destination_id, by): (i64, Uuid),
        copy: i64,
        settlement: &Settlement,
        now: i64,
    ) {
        let attempted = settlement.attempted();
        let row = self.parked.get_mut(&copy);
        let Some(row) =
            row.filter(|row| row.destination_id == destination_id && attempted.changes(row.state))
        else {
            return;
        };
        if attempted.counts {
            row.attempts += 1;
            row.tried.push(now);
        }
        row.state = attempted.state;
        row.due_at = attempted.retry_in.map(|wait| now + micros(wait));
        if row.state != ParkedState::Delivered {
            attempted.kind.clone_into(&mut row.kind);
            attempted.reason.clone_into(&mut row.reason);
        }
        if !row.waits() {
            row.settled_at = Some(now);
        }
        if let Some(words) = audit::settled_as(row.state) {
            let (event, seq, attempts) = (row.event.id(), row.event.seq(), row.attempts);
            let values: [&dyn Display; 4] = [&event, &seq, &attempts, &attempted.kind];
            self.note(now, Some(by), words, Some(destination_id), &values);
        }
    }

    /// `retention_parked.sql`: removes what was settled before, `limit` at most. Answers how many,
    /// and how many records of attempts.
    pub fn remove_parked(
        &mut self,
        limit: usize,
        before: i64,
        by: Option<Uuid>,
        now: i64,
    ) -> (u64, u64) {
        let settled = self.parked.iter().filter(|(_, row)| row.is_settled(before));
        let settled: Vec<i64> = settled.take(limit).map(|(id, _)| *id).collect();
        let mut attempts = 0;
        for row in settled
            .iter()
            .filter_map(|id| self.parked.remove(id))
            .collect::<Vec<_>>()
        {
            attempts += row.tried.len() as u64;
            if row.state == ParkedState::Dead {
                let values: [&dyn Display; 2] = [&row.event.id(), &row.event.seq()];
                self.note(now, by, audit::FORGET, Some(row.destination_id), &values);
            }
        }
        (settled.len() as u64, attempts)
    }

    /// Makes all that is parked so much older, with what was attempted and decided of it.
    pub fn age_parked(&mut self, by: Duration) {
        let by = micros(by);
        for row in self.parked.values_mut() {
            let times = row.tried.iter_mut().chain(&mut row.settled_at);
            for at in times.chain([&mut row.parked_at]) {
                *at = at.saturating_sub(by);
            }
        }
    }
}
