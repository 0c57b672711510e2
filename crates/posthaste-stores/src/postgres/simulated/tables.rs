//! The relays' tables with PostgreSQL's places, and what its statements ask of those.

use posthaste_engine::{StoredEvent, memory_tables};

use crate::postgres::{
    mvcc,
    position::{Floors, Position},
    slots::Slots,
};

/// A row of the outbox.
pub(super) type OutboxRow = mvcc::Row<StoredEvent>;
pub(super) type Tables = memory_tables::Tables<Position>;
pub(super) type CursorRow = memory_tables::CursorRow<Position>;
pub(super) type MarkerRow = memory_tables::MarkerRow<Position>;

/// Whether a slot is one of these.
pub(super) fn within(slots: Option<&Slots>, slot: u16) -> bool {
    slots.is_none_or(|slots| {
        let bit = usize::from(slot) >> slots.shift;
        let byte = slots.mask.get(bit / 8).copied().unwrap_or(0);
        byte >> (bit % 8) & 1 == 1
    })
}

/// Whether a place has passed this row.
pub(super) fn has_passed(position: &Position, row: &OutboxRow) -> bool {
    let seq = row.event.seq();
    let within = position.within.as_ref();
    position.low.sees(row.xid) || within.is_some_and(|(high, at)| seq <= *at && high.sees(row.xid))
}

/// The destinations that have not finished this row.
pub(super) fn pending_at(tables: &Tables, row: &OutboxRow) -> Vec<i64> {
    let is_pending = |(id, destination)| {
        let cursor = tables.cursor_of(destination, &row.event);
        if cursor.is_some_and(|cursor| !has_passed(&cursor.position, row)) {
            return true;
        }
        let key = row.event.order_key_by(tables.order_of(id));
        let marker = key.and_then(|key| tables.markers.get(&(id, key.to_owned())));
        marker.is_some_and(|marker| {
            // Up to its floor retention has copied them.
            let behind = row.event.seq() > marker.position.floors.floor_min;
            behind && !has_passed(&marker.position, row)
        })
    };
    let kept = tables.kept_destinations();
    let pending = kept.filter(|kept| is_pending(*kept));
    pending.map(|(id, _)| id).collect()
}

/// `sql/retention_floor.sql`: at or below this nothing is needed any more; none without any
/// cursor.
pub(super) fn floor(tables: &Tables) -> Option<i64> {
    let floor_min = |floors: Floors| floors.floor_min;
    let markers = tables.markers.values().map(|row| row.position.floors);
    Some(markers.map(floor_min).fold(passed(tables)?, i64::min))
}

/// The least `floor_min` of all cursors.
pub(super) fn passed(tables: &Tables) -> Option<i64> {
    let cursors = tables.cursors.values();
    cursors.map(|row| row.position.floors.floor_min).min()
}
