//! The relays' tables, and what several statements ask of them.

use std::{collections::BTreeMap, fmt::Display, sync::Arc};

use posthaste_engine::{
    AuditWords, DestinationState, HostIdentity, Member, ParkedState, Rates, RetentionMode, Shares,
    StoreError, StoredEvent,
    rule::{Rule, left_out},
};
use uuid::Uuid;

use super::Settings;
use crate::postgres::{
    Grant,
    micros::from_micros,
    position::{Floors, Position},
    slots::Slots,
};

#[derive(Debug, Clone)]
pub(super) struct Tables {
    /// Settings: partitions of a destination, seconds of retention.
    pub(super) partitions: u16,
    pub(super) retention_seconds: u64,
    pub(super) retention_mode: RetentionMode,
    pub(super) store_id: Uuid,
    /// Unlogged: none after a crash, until a relay refills it.
    pub(super) token: Option<Uuid>,
    pub(super) relays: BTreeMap<Uuid, Relay>,
    pub(super) destinations: BTreeMap<i64, Destination>,
    pub(super) cursors: BTreeMap<i64, CursorRow>,
    pub(super) members: BTreeMap<(i64, Uuid), MemberRow>,
    pub(super) markers: BTreeMap<(i64, String), MarkerRow>,
    pub(super) parked: BTreeMap<i64, ParkedRow>,
    pub(super) audit: Vec<Arc<AuditRow>>,
    /// No table: what its observers ask for, of the history that survived.
    pub(super) created: Vec<Arc<Creation>>,
    pub(super) last_destination: i64,
    pub(super) last_cursor: i64,
    pub(super) last_parked: i64,
}

/// A destination that was created, and the events that retention had removed by then.
pub(super) type Creation = (String, Vec<Uuid>);

#[derive(Debug, Clone)]
pub(super) struct Relay {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) host: HostIdentity,
    pub(super) lease_until: i64,
    pub(super) rates: Rates,
    pub(super) fenced: bool,
    pub(super) started_at: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) state: DestinationState,
    pub(super) breaker: String,
    pub(super) last_error: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) epoch: i64,
    pub(super) shares_version: i64,
    /// The cursor of each partition.
    pub(super) partitions: Vec<i64>,
}

#[derive(Debug, Clone)]
pub(super) struct CursorRow {
    pub(super) destination_id: i64,
    pub(super) position: Position,
    pub(super) updated_at: i64,
    pub(super) relay: Option<Uuid>,
    pub(super) epoch: i64,
    pub(super) not_before: i64,
    pub(super) former: Vec<Uuid>,
    pub(super) left_by: Option<Uuid>,
    pub(super) left_name: Option<String>,
    pub(super) left_dead: bool,
}

#[derive(Debug, Clone)]
pub(super) struct MemberRow {
    pub(super) partitions_max: u16,
    pub(super) leaving: bool,
    pub(super) reaches: Option<bool>,
    pub(super) last_error: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct MarkerRow {
    pub(super) slot: u16,
    pub(super) position: Position,
    pub(super) since: i64,
}

#[derive(Debug, Clone)]
pub(super) struct ParkedRow {
    pub(super) destination_id: i64,
    pub(super) event: StoredEvent,
    pub(super) state: ParkedState,
    pub(super) attempts: u32,
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) parked_at: i64,
    pub(super) due_at: Option<i64>,
    pub(super) settled_at: Option<i64>,
    pub(super) evacuated: bool,
    /// When each recorded attempt was made.
    pub(super) tried: Vec<i64>,
}

#[derive(Debug, Clone)]
pub(super) struct AuditRow {
    pub(super) at: i64,
    pub(super) relay: Option<Uuid>,
    pub(super) relay_name: Option<String>,
    pub(super) action: String,
    pub(super) destination: Option<String>,
    pub(super) detail: String,
}

impl Relay {
    pub(super) fn is_live(&self, now: i64) -> bool {
        !self.fenced && self.lease_until > now
    }
}

impl ParkedRow {
    pub(super) fn waits(&self) -> bool {
        self.state.waits()
    }

    /// `sql/holds_key.sql`.
    pub(super) fn holds_key(&self) -> bool {
        self.waits() && self.settled_at.is_none()
    }

    pub(super) fn is_of(&self, destination_id: i64, key: &str) -> bool {
        self.destination_id == destination_id && self.event.key() == Some(key)
    }
}

/// Whether a slot is one of these.
pub(super) fn within(slots: Option<&Slots>, slot: u16) -> bool {
    slots.is_none_or(|slots| {
        let bit = usize::from(slot) >> slots.shift;
        let byte = slots.mask.get(bit / 8).copied().unwrap_or(0);
        byte >> (bit % 8) & 1 == 1
    })
}

impl Tables {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            partitions: settings.partitions,
            retention_seconds: settings.retention.as_secs(),
            retention_mode: RetentionMode::Truncate,
            store_id: Uuid::nil(),
            token: None,
            relays: BTreeMap::new(),
            destinations: BTreeMap::new(),
            cursors: BTreeMap::new(),
            members: BTreeMap::new(),
            markers: BTreeMap::new(),
            parked: BTreeMap::new(),
            audit: Vec::new(),
            created: Vec::new(),
            last_destination: 0,
            last_cursor: 0,
            last_parked: 0,
        }
    }

    /// A line of the audit. The name of a relay is looked up when it is read, unless it is given.
    pub(super) fn note(
        &mut self,
        at: i64,
        relay: (Option<Uuid>, Option<&str>),
        words: AuditWords,
        destination: Option<&str>,
        values: &[&dyn Display],
    ) {
        self.note_line(at, relay, words.action, destination, words.detail(values));
    }

    pub(super) fn note_line(
        &mut self,
        at: i64,
        relay: (Option<Uuid>, Option<&str>),
        action: &str,
        destination: Option<&str>,
        detail: String,
    ) {
        self.audit.push(Arc::new(AuditRow {
            at,
            relay: relay.0,
            relay_name: relay.1.map(str::to_owned),
            action: action.to_owned(),
            destination: destination.map(str::to_owned),
            detail,
        }));
    }

    pub(super) fn destination_id(&self, name: &str) -> Option<i64> {
        let mut rows = self.destinations.iter();
        let found = rows.find(|(_, row)| row.name == name && row.is_kept());
        found.map(|(id, _)| *id)
    }

    pub(super) fn name_of(&self, destination_id: i64) -> Option<String> {
        self.destinations
            .get(&destination_id)
            .map(|row| row.name.clone())
    }

    pub(super) fn cursors_of(
        &self,
        destination_id: i64,
    ) -> impl Iterator<Item = (i64, &CursorRow)> {
        let rows = self.cursors.iter();
        rows.filter(move |(_, row)| row.destination_id == destination_id)
            .map(|(id, row)| (*id, row))
    }

    /// The partitions of a cursor, ascending.
    pub(super) fn partitions_of(&self, destination_id: i64, cursor: i64) -> Vec<u16> {
        let Some(destination) = self.destinations.get(&destination_id) else {
            return Vec::new();
        };
        let rows = (0..).zip(&destination.partitions);
        rows.filter(|(_, row)| **row == cursor)
            .map(|(partition, _)| partition)
            .collect()
    }

    /// `sql/guard.sql`; else why it was not met, as `sql/refused.sql` tells.
    pub(super) fn guard(
        &self,
        grant: &Grant,
        now: i64,
        operation: &'static str,
    ) -> Result<(), StoreError> {
        let live = |relay: &Uuid| self.relays.get(relay).is_some_and(|row| row.is_live(now));
        let ours = self.cursors.get(&grant.cursor_id).is_some_and(|row| {
            row.destination_id == grant.destination_id
                && row.epoch == grant.epoch
                && row.relay == Some(grant.registration)
        });
        if self.token != Some(grant.token) && !left_out(Rule::IncarnationIsChecked) {
            return Err(StoreError::IncarnationChanged { operation });
        }
        match ours && live(&grant.registration) || left_out(Rule::EpochIsChecked) {
            true => Ok(()),
            false => Err(StoreError::Fenced { operation }),
        }
    }

    /// Whether something that waits holds the key.
    pub(super) fn holds(&self, destination_id: i64, key: &str) -> bool {
        let mut parked = self.parked.values();
        parked.any(|row| row.holds_key() && row.is_of(destination_id, key))
    }

    /// `sql/shares.sql` for one destination. `asked`: who renews, and its lease.
    pub(super) fn shares(
        &self,
        destination_id: i64,
        now: i64,
        asked: Option<(Uuid, i64)>,
    ) -> Option<Shares> {
        let destination = self.destinations.get(&destination_id)?;
        let lease_left = |registration: &Uuid| match asked {
            Some((relay, left)) if relay == *registration => Some(left),
            _ => {
                let relay = self.relays.get(registration)?;
                relay.is_live(now).then_some(relay.lease_until - now)
            }
        };
        let mut shares = Shares {
            version: destination.shares_version,
            partitions: small(destination.partitions.len()),
            recut: destination.partitions.len() != usize::from(self.partitions),
            ..Shares::default()
        };
        let mut owned: BTreeMap<Uuid, u16> = BTreeMap::new();
        for (id, row) in self.cursors_of(destination_id) {
            let count = small(self.partitions_of(destination_id, id).len());
            let wait = (row.not_before - now).max(0);
            match row.relay {
                Some(relay) => {
                    *owned.entry(relay).or_default() += count;
                    if lease_left(&relay).is_none() {
                        shares.dead += count;
                    }
                }
                None if wait == 0 => shares.free += count,
                None => {
                    shares.settling += count;
                    let wait = from_micros(wait);
                    let first = shares.settled_in.unwrap_or(wait).min(wait);
                    shares.settled_in = Some(first);
                }
            }
        }
        for ((_, registration), member) in self.members_of(destination_id) {
            let (Some(relay), Some(left)) =
                (self.relays.get(registration), lease_left(registration))
            else {
                continue;
            };
            shares.members.push(Member {
                registration: *registration,
                name: relay.name.clone(),
                host: relay.host.clone(),
                lease_left: from_micros(left),
                owned: owned.get(registration).copied().unwrap_or(0),
                partitions_max: member.partitions_max,
                leaving: member.leaving,
                reaches: member.reaches,
            });
        }
        Some(shares)
    }

    pub(super) fn members_of(
        &self,
        destination_id: i64,
    ) -> impl Iterator<Item = (&(i64, Uuid), &MemberRow)> {
        let range = (destination_id, Uuid::nil())..=(destination_id, Uuid::max());
        self.members.range(range)
    }

    /// `sql/breaker.sql`.
    pub(super) fn breaker(&self, destination_id: i64) -> &str {
        let stored = self.destinations.get(&destination_id);
        let stored = stored.map_or("closed", |row| row.breaker.as_str());
        let owns = |relay: Uuid| {
            let mut cursors = self.cursors_of(destination_id);
            cursors.any(|(_, row)| row.relay == Some(relay))
        };
        let members = || self.members_of(destination_id);
        let cut_off = |((_, relay), row): (&(i64, Uuid), &MemberRow)| {
            row.reaches == Some(false) && owns(*relay)
        };
        if members().any(cut_off) {
            return if stored == "closed" { "open" } else { stored };
        }
        if members().any(|(_, row)| row.reaches == Some(true)) {
            return "closed";
        }
        stored
    }

    /// `sql/retention_floor.sql`: at or below this nothing is needed any more; none without any
    /// cursor.
    pub(super) fn floor(&self) -> Option<i64> {
        let floor_min = |floors: Floors| floors.floor_min;
        let passed = self.passed()?;
        let markers = self.markers.values().map(|row| row.position.floors);
        Some(markers.map(floor_min).fold(passed, i64::min))
    }

    /// The least `floor_min` of all cursors.
    pub(super) fn passed(&self) -> Option<i64> {
        let cursors = self.cursors.values();
        cursors.map(|row| row.position.floors.floor_min).min()
    }
}

impl Destination {
    pub(super) fn is_kept(&self) -> bool {
        self.state != DestinationState::Removed
    }
}

pub(super) fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
