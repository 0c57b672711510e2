//! Parked events and their attempts.

use std::fmt::Display;

use async_trait::async_trait;
use posthaste_engine::{
    AfterFailure, ClaimParking, Due, EventRef, ParkedCopy, ParkedState, Parking, Settlement,
    StoreError, audit, was_never_tried,
};
use uuid::Uuid;

use super::{
    database::Database,
    owner::Owner,
    tables::{MarkerRow, ParkedRow, Tables},
};
use crate::postgres::{
    claimed::PostgresClaimed,
    micros::{from_micros, micros},
    position::Position,
    side_read::marker_at,
};

/// A parked event on its way, with the place behind it.
struct Parked {
    parking: Parking,
    at: Position,
}

fn set_one_aside(database: &mut Database, (id, by): (i64, Uuid), one: Parked, now: i64) {
    let Parked { parking, at } = one;
    let tables = &mut database.now.tables;
    let state = parking.next.state();
    let (event, kind) = (parking.event, parking.kind);
    let (name, by) = (tables.name_of(id), (Some(by), None));
    let values: [&dyn Display; 3] = [&event.id(), &event.seq(), &kind];
    tables.note(now, by, audit::parked_as(state), name.as_deref(), &values);
    if let Some(key) = event.key() {
        let marker = tables.markers.entry((id, key.to_owned()));
        let marker = marker.and_modify(|row| row.position = at.clone());
        if parking.next != AfterFailure::Skip {
            marker.or_insert(MarkerRow {
                slot: event.slot(),
                position: at,
                since: now,
            });
        }
    }
    tables.insert_parked(ParkedRow {
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
        tried: vec![now],
    });
}

impl Tables {
    pub(super) fn insert_parked(&mut self, row: ParkedRow) {
        self.last_parked += 1;
        self.parked.insert(self.last_parked, row);
    }

    /// The markers of a claim, the oldest first.
    pub(super) fn markers_of(&self, owner: &Owner) -> Vec<(&str, &MarkerRow)> {
        let id = owner.grant.destination_id;
        let ours = self.markers.range((id, String::new())..);
        let ours = ours.take_while(|((of, _), _)| *of == id);
        let mut ours: Vec<(&str, &MarkerRow)> = ours
            .filter(|(_, row)| owner.owns(row.slot))
            .map(|((_, key), row)| (key.as_str(), row))
            .collect();
        ours.sort_by_key(|(key, row)| (row.since, *key));
        ours
    }

    /// Whether nothing earlier of the key waits.
    fn is_first(&self, destination_id: i64, copy: i64, row: &ParkedRow) -> bool {
        let Some(key) = row.event.key() else {
            return false;
        };
        let marked = (destination_id, key.to_owned());
        let mut earlier = self.parked.range(..copy);
        self.markers.contains_key(&marked)
            && !earlier.any(|(_, row)| row.holds_key() && row.is_of(destination_id, key))
    }
}

#[async_trait]
impl ClaimParking for PostgresClaimed<Owner> {
    async fn set_aside(&self) -> Result<Vec<EventRef>, StoreError> {
        let grant = &self.connection.grant;
        let look = self
            .connection
            .connection
            .look("read what is set aside", |database| {
                let tables = &database.now.tables;
                let ours = tables.cursors_of(grant.destination_id).filter(|(_, row)| {
                    row.epoch == grant.epoch && row.relay == Some(grant.registration)
                });
                let passed = ours.map(|(_, row)| row.position.floors.floor_min).min();
                let parked = tables.parked.values().filter(|row| {
                    row.destination_id == grant.destination_id
                        && !row.evacuated
                        && passed.is_some_and(|passed| row.event.seq() > passed)
                        && self.connection.owns(row.event.slot())
                });
                parked.map(|row| row.event.reference()).collect()
            });
        look.await
    }

    /// `sql/park.sql`.
    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        const OPERATION: &str = "park";
        let mut parked = Vec::new();
        for parking in events {
            let at = marker_at(OPERATION, &parking.at, parking.event.key())?;
            let parking = parking.clone();
            parked.push(Parked { parking, at });
        }
        let change = self.connection.change(OPERATION, move |database, grant| {
            // The copy is made from the row itself: all or none.
            let is_there = |parked: &Parked| {
                let row = database.now.mvcc.rows.get(&parked.parking.event.seq());
                row.is_some_and(|row| row.event.id() == parked.parking.event.id())
            };
            if !parked.iter().all(is_there) {
                return Err(StoreError::Bug {
                    operation: OPERATION,
                    reason: "an event that the cursor has not passed is gone from posthaste.outbox"
                        .to_owned(),
                });
            }
            let now = database.clock();
            for one in parked {
                set_one_aside(
                    database,
                    (grant.destination_id, grant.registration),
                    one,
                    now,
                );
            }
            Ok(())
        });
        change.await
    }

    /// `sql/due.sql`.
    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let id = self.connection.grant.destination_id;
        let look = self
            .connection
            .connection
            .look("read what is due", |database| {
                let (tables, now) = (&database.now.tables, database.clock());
                let waits = |row: &ParkedRow| {
                    row.destination_id == id
                        && row.state == ParkedState::Parked
                        && self.connection.owns(row.event.slot())
                };
                let mut found: Vec<(i64, i64, &ParkedRow)> = Vec::new();
                let mut next_at: Option<i64> = None;
                for (copy, row) in tables.parked.iter().filter(|(_, row)| waits(row)) {
                    match row.due_at {
                        Some(at) if at <= now => found.push((at, *copy, row)),
                        Some(at) => next_at = Some(next_at.unwrap_or(at).min(at)),
                        // A copy that retention made: its turn comes behind all that waits of its key.
                        None if tables.is_first(id, *copy, row) => {
                            found.push((row.parked_at, *copy, row))
                        }
                        None => {}
                    }
                }
                found.sort_by_key(|(at, copy, _)| (*at, *copy));
                let copy = |(_, id, row): (i64, i64, &ParkedRow)| ParkedCopy {
                    id,
                    event: row.event.clone(),
                    attempts: row.attempts,
                    holds_key: row.holds_key(),
                    never_tried: was_never_tried(&row.kind),
                };
                let released = tables.markers_of(&self.connection).into_iter();
                let released = released.filter(|(key, _)| !tables.holds(id, key));
                Due {
                    events: found.into_iter().take(limit).map(copy).collect(),
                    released: released
                        .take(limit)
                        .map(|(key, _)| key.to_owned())
                        .collect(),
                    next_in: next_at.map(|at| from_micros(at - now)),
                }
            });
        look.await
    }

    /// `sql/settle.sql`.
    async fn settle(&self, copy: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let settlement = settlement.clone();
        let change = self.connection.change("settle", move |database, grant| {
            let (id, now) = (grant.destination_id, database.clock());
            let tables = &mut database.now.tables;
            let attempted = settlement.attempted();
            let row = tables.parked.get_mut(&copy);
            let row = row.filter(|row| row.destination_id == id && attempted.changes(row.state));
            let Some(row) = row else {
                return Ok(());
            };
            row.attempts += 1;
            row.tried.push(now);
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
                let (by, name) = ((Some(grant.registration), None), tables.name_of(id));
                let values: [&dyn Display; 4] = [&event, &seq, &attempts, &attempted.kind];
                tables.note(now, by, words, name.as_deref(), &values);
            }
            Ok(())
        });
        change.await
    }
}
