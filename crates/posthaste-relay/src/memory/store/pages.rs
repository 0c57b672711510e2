//! Pages of the log, and places in it.

use std::sync::Arc;

use posthaste_engine::{Budget, Cursor, Page, StoredEvent};

use super::{Inner, ownership::Held};

pub(super) fn place(cursor: &Cursor) -> i64 {
    cursor
        .seq()
        .or_else(|| cursor.base::<i64>().copied())
        .unwrap_or_default()
}

/// The events of the log that `wanted` names, behind `after`, within the budget; and the place up
/// to which the log was looked at.
pub(super) fn read(
    log: &[StoredEvent],
    after: i64,
    until: i64,
    budget: Budget,
    wanted: impl Fn(&StoredEvent) -> bool,
) -> (Vec<StoredEvent>, i64) {
    // The rows there may have gone since.
    let all = after.max(until.min(last(log)));
    let (mut events, mut bytes, mut place) = (Vec::new(), 0, after);
    let from = log.partition_point(|event| event.seq() <= after);
    for event in log[from..].iter().take_while(|event| event.seq() <= until) {
        if wanted(event) {
            let size = event.footprint();
            let full = events.len() >= budget.events || bytes + size > budget.bytes;
            if full && !events.is_empty() {
                return (events, place);
            }
            bytes += size;
            events.push(event.clone());
        }
        place = event.seq();
    }
    (events, all)
}

pub(super) fn page(
    inner: &Inner,
    held: &Held,
    events: Vec<StoredEvent>,
    place: i64,
    joinable: bool,
    caught_up: bool,
) -> Page {
    let row = inner.tables.destinations.get(&held.claim.destination_id);
    Page {
        joinable,
        caught_up,
        shares_version: row.map_or(0, |row| row.shares_version),
        ..Page::up_to(Arc::new(place), events)
    }
}

pub(super) fn last(log: &[StoredEvent]) -> i64 {
    log.last().map_or(0, StoredEvent::seq)
}
