//! What operators see and do.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AuditLine, DeadAction, DestinationState, DestinationStatus, HAND_OVERS, ParkedEvent,
    ParkedFilter, ParkedState, RelayShare, RelayStatus, Status, StoreError, audit,
};
use uuid::Uuid;

use super::{
    SimulatedPostgres,
    database::{Database, OutboxRow},
    tables::{AuditRow, Destination, MemberRow, ParkedRow, Relay, Tables},
    writer::without_payload,
};
use crate::postgres::{micros::from_micros, position::Position};

/// As the original: relays that are gone for longer are not told of.
const GONE: i64 = 24 * 3_600 * 1_000_000;

/// Whether a place has passed this row.
pub(super) fn has_passed(position: &Position, row: &OutboxRow) -> bool {
    let seq = row.event.seq();
    let within = position.within.as_ref();
    position.low.sees(row.xid) || within.is_some_and(|(high, at)| seq <= *at && high.sees(row.xid))
}

impl Tables {
    pub(super) fn audit_line(&self, row: &AuditRow) -> AuditLine {
        let known = row.relay.and_then(|relay| self.relays.get(&relay));
        AuditLine {
            at: row.at,
            action: row.action.clone(),
            relay: row
                .relay_name
                .clone()
                .or_else(|| known.map(|relay| relay.name.clone())),
            destination: row.destination.clone(),
            detail: row.detail.clone(),
        }
    }

    /// Whether the destination has not finished this row.
    pub(super) fn is_pending(&self, id: i64, destination: &Destination, row: &OutboxRow) -> bool {
        let count = destination.partitions.len();
        let partition = usize::from(row.event.slot()) * count / usize::from(posthaste::SLOTS);
        let cursor = destination.partitions.get(partition);
        let cursor = cursor.and_then(|cursor| self.cursors.get(cursor));
        if cursor.is_some_and(|cursor| !has_passed(&cursor.position, row)) {
            return true;
        }
        let marker = row.event.key();
        let marker = marker.and_then(|key| self.markers.get(&(id, key.to_owned())));
        marker.is_some_and(|marker| {
            // Up to its floor retention has copied them.
            let behind = row.event.seq() > marker.position.floors.floor_min;
            behind && !has_passed(&marker.position, row)
        })
    }

    fn relay_share(&self, relay: Uuid, id: i64, destination: &Destination) -> Option<RelayShare> {
        let member = self.members.get(&(id, relay));
        let owned = || {
            self.cursors_of(id)
                .filter(|(_, row)| row.relay == Some(relay))
        };
        let partitions = owned().map(|(cursor, _)| self.partitions_of(id, cursor).len());
        let partitions: usize = partitions.sum();
        let epoch = owned().map(|(_, row)| row.epoch).max().unwrap_or(0);
        (member.is_some() || partitions > 0).then(|| RelayShare {
            destination: destination.name.clone(),
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            epoch: u64::try_from(epoch).unwrap_or(0),
            reaches: member.and_then(|row| row.reaches),
        })
    }

    fn relay_status(&self, registration: Uuid, row: &Relay, now: i64) -> RelayStatus {
        let kept = self.destinations.iter().filter(|(_, row)| row.is_kept());
        let mut shares: Vec<RelayShare> = kept
            .filter_map(|(id, destination)| self.relay_share(registration, *id, destination))
            .collect();
        shares.sort_by(|a, b| a.destination.cmp(&b.destination));
        let mut members = self.members.iter();
        RelayStatus {
            registration,
            name: row.name.clone(),
            host: row.host.clone(),
            started_at: row.started_at,
            version: row.version.clone(),
            state: match (row.fenced, row.lease_until > now) {
                (true, _) => "fenced",
                (false, true) => "live",
                (false, false) => "expired",
            }
            .to_owned(),
            lease_expires_at: row.lease_until,
            partitions: shares.iter().map(|share| share.partitions).sum(),
            leaving: members.any(|((_, relay), row)| *relay == registration && row.leaving),
            shares,
        }
    }

    /// `sql/status_destinations.sql`.
    fn destination_status(&self, id: i64, row: &Destination, now: i64) -> DestinationStatus {
        let parked = |state| {
            let rows = self.parked.values();
            rows.filter(|row| row.destination_id == id && row.state == state)
                .count() as u64
        };
        let breaker = self.breaker(id).to_owned();
        let members = || self.members_of(id).map(|(_, row)| row);
        let told = members().find(|row| row.reaches == Some(false) && row.last_error.is_some());
        let told = told.and_then(|row: &MemberRow| row.last_error.clone());
        let reaches = members().any(|row| row.reaches == Some(true));
        let stored = (breaker != "closed" || !reaches).then(|| row.last_error.clone());
        let owners = self.cursors_of(id).filter_map(|(_, row)| row.relay);
        let live = owners.filter_map(|relay| self.relays.get(&relay));
        let live = live.filter(|relay| relay.is_live(now));
        let mut names: Vec<&str> = live.map(|relay| relay.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        DestinationStatus {
            name: row.name.clone(),
            address: row.address.clone(),
            state: row.state,
            pending: 0,
            pending_exact: true,
            parked: parked(ParkedState::Parked),
            dead: parked(ParkedState::Dead),
            blocked_keys: self.markers.keys().filter(|(of, _)| *of == id).count() as u64,
            oldest_pending_age: None,
            breaker,
            last_error: told.or(stored.flatten()),
            relay: (!names.is_empty()).then(|| names.join(", ")),
            accepted_per_second: {
                let live = self.relays.values().filter(|relay| relay.is_live(now));
                live.filter_map(|relay| relay.rates.get(&row.name).copied())
                    .reduce(|a, b| a + b)
            },
        }
    }

    /// `sql/dead_act.sql`.
    fn act(
        &mut self,
        filter: &ParkedFilter,
        action: DeadAction,
        now: i64,
    ) -> Result<u64, StoreError> {
        let state = match action {
            DeadAction::Retry => ParkedState::Parked,
            DeadAction::Skip => ParkedState::Skipped,
            DeadAction::Discard => ParkedState::Discarded,
        };
        let meant: Vec<i64> = self
            .parked
            .iter()
            .filter(|(_, row)| self.is_meant(filter, row))
            .filter(|(_, row)| {
                let key = row.event.key();
                let marker = key.map(|key| (row.destination_id, key.to_owned()));
                let has_gone_on = marker.is_none_or(|marker| !self.markers.contains_key(&marker));
                let of = self.destinations.get(&row.destination_id);
                let is_kept = of.is_some_and(Destination::is_kept);
                filter.acts_on(action, row.state, is_kept, has_gone_on)
            })
            .filter(|(_, row)| {
                let by_id = filter.id.is_some() && state != ParkedState::Parked;
                row.due_at.is_some() || row.state != ParkedState::Parked || by_id
            })
            .map(|(id, _)| *id)
            .collect();
        for id in &meant {
            let Some(row) = self.parked.get_mut(id) else {
                continue;
            };
            row.state = state;
            if state == ParkedState::Parked {
                (row.attempts, row.due_at) = (0, Some(now));
            } else {
                (row.due_at, row.settled_at) = (None, Some(now));
            }
            if state == ParkedState::Discarded {
                row.event = without_payload(&row.event)?;
            }
            let (event, of) = (&row.event, row.destination_id);
            let (id, seq, name) = (event.id(), event.seq(), self.name_of(of));
            let (by, words) = ((None, None), audit::acted(action));
            self.note(now, by, words, name.as_deref(), &[&id, &seq]);
        }
        Ok(meant.len() as u64)
    }

    /// `sql/dead_adopt.sql`.
    fn adopt(&mut self, filter: &ParkedFilter, outbox: &BTreeSet<i64>) {
        let names = |id| self.destinations.get(&id).map(|of| of.name.as_str());
        let adopted: Vec<(i64, i64)> = self
            .parked
            .iter()
            .filter(|(_, row)| self.is_meant(filter, row))
            .filter_map(|(id, row)| {
                let name = names(row.destination_id)?;
                let named = self.destination_id(name)?;
                let is_newest = !self.parked.iter().any(|(other, copy)| {
                    copy.event.seq() == row.event.seq()
                        && names(copy.destination_id) == Some(name)
                        && (copy.destination_id == named || other > id)
                });
                let adopts = is_newest && !outbox.contains(&row.event.seq());
                adopts.then_some((*id, named))
            })
            .collect();
        for (id, named) in adopted {
            if let Some(row) = self.parked.get_mut(&id) {
                row.destination_id = named;
            }
        }
    }

    fn is_meant(&self, filter: &ParkedFilter, row: &ParkedRow) -> bool {
        let of = self.destinations.get(&row.destination_id);
        let state = filter.state.map_or(row.waits(), |state| row.state == state);
        let key = filter.key.as_deref();
        let name = |of: &Destination| filter.destination.as_ref().is_none_or(|n| *n == of.name);
        state
            && of.is_some_and(name)
            && filter.id.is_none_or(|id| row.event.id() == id)
            && key.is_none_or(|key| row.event.key() == Some(key))
    }

    fn parked_event(&self, row: &ParkedRow) -> Option<ParkedEvent> {
        Some(ParkedEvent {
            destination: self.name_of(row.destination_id)?,
            state: row.state,
            attempts: row.attempts,
            kind: row.kind.clone(),
            reason: row.reason.clone(),
            parked_at: row.parked_at,
            due_at: row.due_at,
            holds_key: row.event.key().is_some() && row.holds_key(),
            event: row.event.clone(),
        })
    }

    /// `sql/destination_set.sql`, then `sql/destination_held.sql` where that changed nothing.
    fn set_destination(
        &mut self,
        name: &str,
        state: DestinationState,
        now: i64,
    ) -> Result<bool, StoreError> {
        let Some(id) = self.destination_id(name) else {
            return Ok(false);
        };
        let (removes, mut closed) = (state == DestinationState::Removed, 0);
        let holder = self.members_of(id).find_map(|((_, relay), _)| {
            let relay = self.relays.get(relay)?;
            relay.is_live(now).then(|| relay.name.clone())
        });
        if let Some(relay) = holder.filter(|_| removes) {
            return Err(StoreError::Misconfigured {
                operation: "set the destination",
                reason: format!(
                    "destination `{name}` is held by the live relay `{relay}`; nothing was \
                     changed\nfix: stop that relay, or take the destination out of its \
                     configuration; then remove it"
                ),
            });
        }
        let row = self.destinations.get_mut(&id);
        if row.is_none_or(|row| std::mem::replace(&mut row.state, state) == state) {
            return Ok(true);
        }
        if removes {
            self.cursors.retain(|_, row| row.destination_id != id);
            self.members.retain(|(of, _), _| *of != id);
            self.markers.retain(|(of, _), _| *of != id);
            for row in self.parked.values_mut() {
                if row.destination_id == id && row.waits() {
                    row.state = ParkedState::Skipped;
                    (row.due_at, row.settled_at) = (None, Some(now));
                    closed += 1;
                }
            }
        }
        let by = (None, None);
        self.note(
            now,
            by,
            audit::destination_set(state),
            Some(name),
            &[&closed],
        );
        Ok(true)
    }
}

fn status(database: &Database, leaf_bits: u8) -> Status {
    let (tables, now) = (&database.now.tables, database.clock());
    let snapshot = database.snapshot();
    let visible = || {
        let rows = database.now.mvcc.rows.values();
        rows.filter(|row| snapshot.sees(row.xid))
    };
    let age = |row: &OutboxRow| from_micros(now - row.event.inserted_at());
    let oldest =
        |old: Option<Duration>, row: &OutboxRow| Some(age(row).max(old.unwrap_or_default()));
    let kept = tables.destinations.iter().filter(|(_, row)| row.is_kept());
    let mut status = Status {
        pending: 0,
        pending_exact: true,
        oldest_pending_age: None,
        destinations: kept
            .clone()
            .map(|(id, row)| tables.destination_status(*id, row, now))
            .collect(),
        relays: Vec::new(),
        retained_bytes: visible().map(|row| row.event.footprint() as u64).sum(),
        retained: database.retained(leaf_bits),
    };
    for row in visible() {
        let mut is_pending = false;
        for ((id, destination), told) in kept.clone().zip(&mut status.destinations) {
            if tables.is_pending(*id, destination, row) {
                is_pending = true;
                told.pending += 1;
                told.oldest_pending_age = oldest(told.oldest_pending_age, row);
            }
        }
        if is_pending {
            status.pending += 1;
            status.oldest_pending_age = oldest(status.oldest_pending_age, row);
        }
    }
    status.destinations.sort_by(|a, b| a.name.cmp(&b.name));
    let relays = tables.relays.iter();
    let relays = relays.filter(|(_, row)| row.lease_until > now - GONE);
    status.relays = relays
        .map(|(registration, row)| tables.relay_status(*registration, row, now))
        .collect();
    status
        .relays
        .sort_by_key(|relay| (relay.started_at, relay.registration));
    status
}

#[async_trait]
impl Admin for SimulatedPostgres {
    async fn status(&self) -> Result<Status, StoreError> {
        let (connection, leaf_bits) = (self.connect(), self.server.leaf_bits);
        let look = connection.look("status", |database| status(database, leaf_bits));
        look.await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        let connection = self.connect();
        let look = connection.look("list hand-overs", |database| {
            let tables = &database.now.tables;
            let lines = tables.audit.iter().rev();
            let lines = lines.filter(|row| HAND_OVERS.contains(&row.action.as_str()));
            lines
                .take(limit)
                .map(|row| tables.audit_line(row))
                .collect()
        });
        look.await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let connection = self.connect();
        let look = connection.look("list parked events", |database| {
            let tables = &database.now.tables;
            let rows = tables.parked.iter();
            let mut rows: Vec<_> = rows
                .filter(|(_, row)| tables.is_meant(filter, row))
                .collect();
            rows.sort_by_key(|(id, row)| (row.parked_at, **id));
            let rows = rows.into_iter().take(limit);
            rows.filter_map(|(_, row)| tables.parked_event(row))
                .collect()
        });
        look.await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        let (connection, filter) = (self.connect(), filter.clone());
        let act = connection.change(action.as_str(), move |database| {
            let now = database.clock();
            if filter.undoes_skipping(action) {
                let rows = database.now.mvcc.rows.values();
                let outbox = rows.map(|row| row.event.seq()).collect();
                database.now.tables.adopt(&filter, &outbox);
            }
            database.now.tables.act(&filter, action, now)
        });
        act.await
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        let (connection, name) = (self.connect(), name.to_owned());
        let set = connection.change("set the destination", move |database| {
            let now = database.clock();
            database.now.tables.set_destination(&name, state, now)
        });
        set.await
    }
}
