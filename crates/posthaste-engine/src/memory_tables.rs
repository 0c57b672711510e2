//! The tables of a store in memory: plain rows, and pure functions over them. The memory store and
//! the simulated PostgreSQL have them in common. Not part of the interface.
//!
//! `P` is a place in the outbox. Each of the two has its own, and its own outbox; here a place is
//! stored and nothing more. The time is an argument. All times are microseconds, moments since
//! 1970-01-01 UTC.
//!
//! No rule can be left out here: a test that leaves one out compares the simulated PostgreSQL with
//! the memory store, which keeps them all.

mod claims;
mod leases;
mod markers;
mod members;
mod new_event;
mod operators;
mod parked;

use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    AuditLine, AuditWords, DestinationState, HAND_OVERS, OrderBy, StoredEvent, Wanted,
    partitions::SLOTS,
};

pub use claims::{ClaimRow, CursorRow};
pub use leases::RelayRow;
pub use markers::MarkerRow;
pub use members::MemberRow;
pub use new_event::NewEvent;
pub use parked::ParkedRow;

/// All tables of a store but its outbox.
#[derive(Debug, Clone)]
pub struct Tables<P> {
    /// Partitions of a new destination.
    pub partitions: u16,
    /// Whether destinations that have another number of them are to be cut anew.
    pub recuts: bool,
    /// As [`crate::Claim::store_id`].
    pub store_id: Uuid,
    /// By registration.
    pub relays: BTreeMap<Uuid, RelayRow>,
    pub destinations: BTreeMap<i64, DestinationRow>,
    pub cursors: BTreeMap<i64, CursorRow<P>>,
    /// The relays that serve a destination, by its id and their registration.
    pub members: BTreeMap<(i64, Uuid), MemberRow>,
    /// By the destination's id and the key.
    pub markers: BTreeMap<(i64, String), MarkerRow<P>>,
    pub parked: BTreeMap<i64, ParkedRow>,
    /// Oldest first.
    pub audit: Vec<Arc<AuditRow>>,
    last_destination: i64,
    last_cursor: i64,
    last_parked: i64,
}

/// A destination. It stays when it is removed.
#[derive(Debug, Clone)]
pub struct DestinationRow {
    pub name: String,
    /// Empty before the first claim.
    pub address: String,
    pub cluster: Option<String>,
    pub wanted: Wanted,
    /// As it was reported last, by whichever relay.
    pub breaker: String,
    pub last_error: Option<String>,
    /// The newest epoch that was drawn.
    pub epoch: i64,
    pub shares_version: i64,
    /// The cursor of each partition.
    pub partitions: Vec<i64>,
}

/// A line of the audit.
#[derive(Debug, Clone)]
pub struct AuditRow {
    /// The relay that did it; none: an operator.
    relay: Option<Uuid>,
    pub line: AuditLine,
}

impl DestinationRow {
    pub fn is_kept(&self) -> bool {
        self.wanted.state != DestinationState::Removed
    }
}

impl<P> Tables<P> {
    pub fn new(partitions: u16, recuts: bool, store_id: Uuid) -> Self {
        Self {
            partitions,
            recuts,
            store_id,
            relays: BTreeMap::new(),
            destinations: BTreeMap::new(),
            cursors: BTreeMap::new(),
            members: BTreeMap::new(),
            markers: BTreeMap::new(),
            parked: BTreeMap::new(),
            audit: Vec::new(),
            last_destination: 0,
            last_cursor: 0,
            last_parked: 0,
        }
    }

    /// Writes a line of the audit. `by`: the relay; none: an operator.
    pub fn note(
        &mut self,
        now: i64,
        by: Option<Uuid>,
        words: AuditWords,
        destination: Option<i64>,
        values: &[&dyn Display],
    ) {
        self.note_line(now, by, words.action, destination, words.detail(values));
    }

    fn note_line(
        &mut self,
        at: i64,
        by: Option<Uuid>,
        action: &str,
        destination: Option<i64>,
        detail: String,
    ) {
        let line = AuditLine {
            at,
            action: action.to_owned(),
            relay: self.relay_name(by),
            destination: destination.and_then(|id| self.name_of(id)),
            detail,
        };
        self.audit.push(Arc::new(AuditRow { relay: by, line }));
    }

    fn relay_name(&self, relay: Option<Uuid>) -> Option<String> {
        let relay = self.relays.get(&relay?)?;
        Some(relay.name.clone())
    }

    /// The audit, oldest first. A relay may write a line before it is registered: its name is
    /// looked up here.
    pub fn audit_lines(&self) -> impl DoubleEndedIterator<Item = AuditLine> {
        self.audit.iter().map(|row| {
            let mut line = row.line.clone();
            line.relay = line.relay.or_else(|| self.relay_name(row.relay));
            line
        })
    }

    /// As [`crate::Admin::hand_overs`].
    pub fn hand_overs(&self, limit: usize) -> Vec<AuditLine> {
        let lines = self.audit_lines().rev();
        let lines = lines.filter(|line| HAND_OVERS.contains(&line.action.as_str()));
        lines.take(limit).collect()
    }

    /// Makes every line of the audit so much older.
    pub fn age_audit(&mut self, by: Duration) {
        for row in &mut self.audit {
            let at = &mut Arc::make_mut(row).line.at;
            *at = at.saturating_sub(micros(by));
        }
    }

    /// Removes the lines that are older than `before`, of the first `limit`. Answers how many.
    pub fn remove_audit(&mut self, limit: usize, before: i64) -> u64 {
        let lines = self.audit.len();
        let later = self.audit.split_off(limit.min(lines));
        self.audit.retain(|row| row.line.at > before);
        self.audit.extend(later);
        (lines - self.audit.len()) as u64
    }

    /// The destination that has this name now.
    pub fn destination_id(&self, name: &str) -> Option<i64> {
        let found = self.kept_destinations().find(|(_, row)| row.name == name);
        found.map(|(id, _)| id)
    }

    pub fn name_of(&self, destination_id: i64) -> Option<String> {
        let row = self.destinations.get(&destination_id);
        row.map(|row| row.name.clone())
    }

    /// The order that the destination keeps.
    pub fn order_of(&self, destination_id: i64) -> OrderBy {
        let row = self.destinations.get(&destination_id);
        row.map_or_else(OrderBy::default, |row| OrderBy::of_target(&row.address).0)
    }

    /// The destinations that are not removed.
    pub fn kept_destinations(&self) -> impl Iterator<Item = (i64, &DestinationRow)> + Clone {
        let rows = self.destinations.iter().map(|(id, row)| (*id, row));
        rows.filter(|(_, row)| row.is_kept())
    }

    pub fn cursors_of(&self, destination_id: i64) -> impl Iterator<Item = (i64, &CursorRow<P>)> {
        let rows = self.cursors.iter().map(|(id, row)| (*id, row));
        rows.filter(move |(_, row)| row.destination_id == destination_id)
    }

    /// The partitions of a cursor, ascending.
    pub fn partitions_of(&self, destination_id: i64, cursor: i64) -> Vec<u16> {
        let row = self.destinations.get(&destination_id);
        let rows = row.map(|row| row.partitions.as_slice()).unwrap_or_default();
        let rows = (0..).zip(rows).filter(|(_, row)| **row == cursor);
        rows.map(|(partition, _)| partition).collect()
    }

    /// The cursor that has passed the event, or is to.
    pub fn cursor_of(&self, of: &DestinationRow, event: &StoredEvent) -> Option<&CursorRow<P>> {
        let partition = usize::from(event.slot()) * of.partitions.len() / SLOTS as usize;
        self.cursors.get(of.partitions.get(partition)?)
    }
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The duration of so many microseconds; zero below that.
pub fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A number of partitions.
fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
