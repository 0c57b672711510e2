//! `sql/evacuate.sql`: followers of blocked keys get out of the way, a few of them at a time.

use std::collections::BTreeMap;

use posthaste_engine::{Registered, StoredEvent};

use super::{
    database::Database,
    tables::{MarkerRow, OutboxRow, Tables, has_passed, passed},
};
use crate::postgres::evacuate::{BYTES_A_CHUNK, KEYS_A_CHUNK, NUMBERS_A_CHUNK, ROWS_A_CHUNK};

/// The numbers that are looked through.
struct Stretch {
    start: i64,
    stop: i64,
}

/// A row that a blocked key has passed over.
struct Follower {
    destination_id: i64,
    event: StoredEvent,
}

/// Copies one chunk, and moves the markers behind it; none: none of them moved.
pub(super) fn evacuate(
    database: &mut Database,
    leaf_bits: u8,
    by: Option<Registered>,
) -> Option<u64> {
    let Stretch { start, stop } = stretch(database, leaf_bits)?;
    let moving = moving(&database.now.tables, stop);
    let rows = database.visible_behind(start);
    let rows: Vec<&OutboxRow> = rows.take_while(|row| row.event.seq() <= stop).collect();
    let young = rows
        .iter()
        .find(|row| !database.is_past_window(row, leaf_bits));
    let last = young.map_or(stop, |row| row.event.seq() - 1);
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.event.seq() <= last) {
        for (of, key) in &moving {
            let marker = database.now.tables.markers.get(&(*of, key.clone()));
            let order = database.now.tables.order_of(*of);
            let is_behind = marker.is_some_and(|marker| is_behind(marker, row));
            if row.event.order_key_by(order) == Some(key) && is_behind {
                found.push(Follower {
                    destination_id: *of,
                    event: row.event.clone().ordered_by(order),
                });
            }
        }
    }
    let reach = reach(&found, last);
    found.retain(|found| found.event.seq() <= reach);
    let copied = found.len() as u64;
    let moved = move_markers(&mut database.now.tables, &moving, reach);
    copy(database, found, reach, by);
    database.counters.evacuated += copied;
    moved.then_some(copied)
}

/// Rows at or below the least floor of all cursors: every group has passed them over.
fn stretch(database: &Database, leaf_bits: u8) -> Option<Stretch> {
    let tables = &database.now.tables;
    let floor_min = |row: &MarkerRow| row.position.floors.floor_min;
    let markers = tables.markers.iter();
    let held = markers.filter(|((id, key), _)| tables.holds(*id, key));
    let start = held.map(|(_, row)| floor_min(row)).min()?;
    let first = database.visible_behind(start).next()?;
    let start = start.max(first.event.seq() - 1);
    let numbers = i64::try_from(NUMBERS_A_CHUNK).unwrap_or(i64::MAX);
    let stop = passed(tables)?.min(start.saturating_add(numbers));
    let is_due = database.is_past_window(first, leaf_bits) && start < stop;
    is_due.then_some(Stretch { start, stop })
}

/// The keys whose rows are looked for.
fn moving(tables: &Tables, stop: i64) -> Vec<(i64, String)> {
    let markers = tables.markers.iter();
    let held = markers
        .filter(|((id, key), row)| row.position.floors.floor_min < stop && tables.holds(*id, key));
    let mut held: Vec<_> = held.collect();
    held.sort_by_key(|((_, key), row)| (row.position.floors.floor_min, key.clone()));
    held.truncate(usize::try_from(KEYS_A_CHUNK).unwrap_or(usize::MAX));
    held.into_iter().map(|(of, _)| of.clone()).collect()
}

fn is_behind(marker: &MarkerRow, row: &OutboxRow) -> bool {
    row.event.seq() > marker.position.floors.floor_min && !has_passed(&marker.position, row)
}

/// How far the chunk goes. One number goes whatever its size.
fn reach(found: &[Follower], last: i64) -> i64 {
    let (mut rows, mut bytes) = (0, 0);
    let first = found.first().map(|found| found.event.seq());
    for Follower { event, .. } in found {
        rows += 1;
        bytes += event.footprint() as u64;
        if (rows > ROWS_A_CHUNK || bytes > BYTES_A_CHUNK) && Some(event.seq()) > first {
            return event.seq() - 1;
        }
    }
    last
}

/// From now on all at or below a marker's floor counts as done with as well.
fn move_markers(tables: &mut Tables, moving: &[(i64, String)], reach: i64) -> bool {
    let mut moved = false;
    for of in moving {
        let Some(row) = tables.markers.get_mut(of) else {
            continue;
        };
        let position = &mut row.position;
        if position.floors.floor_min >= reach {
            continue;
        }
        moved = true;
        position.floors.floor_min = reach;
        position.floors.floor = position.floors.floor.max(reach);
        if let Some((_, seq)) = &mut position.within {
            *seq = (*seq).max(reach);
        }
    }
    moved
}

fn copy(database: &mut Database, found: Vec<Follower>, reach: i64, by: Option<Registered>) {
    let (now, by) = (database.clock(), by.map(|by| by.registration));
    let mut followers: BTreeMap<i64, Vec<StoredEvent>> = BTreeMap::new();
    for found in found {
        followers
            .entry(found.destination_id)
            .or_default()
            .push(found.event);
    }
    for (id, followers) in followers {
        let tables = &mut database.now.tables;
        tables.evacuate(id, followers, reach, by, now);
    }
}
