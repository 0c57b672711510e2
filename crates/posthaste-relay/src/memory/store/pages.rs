//! Pages of the log, and places in it.

use std::{collections::BTreeMap, sync::Arc};

use posthaste_engine::{Budget, Cursor, OrderBy, Page, StoredEvent};

use super::{Inner, ownership::Held};

pub(super) fn place(cursor: &Cursor) -> i64 {
    cursor
        .seq()
        .or_else(|| cursor.base::<i64>().copied())
        .unwrap_or_default()
}

/// The events of the log that `wanted` names, behind `after` and up to `until`, within the budget;
/// and the place up to which the log was looked at.
pub(super) fn read(
    log: &BTreeMap<i64, StoredEvent>,
    order: OrderBy,
    (after, until): (i64, i64),
    budget: Budget,
    wanted: impl Fn(&StoredEvent) -> bool,
) -> (Vec<StoredEvent>, i64) {
    // The rows there may have gone since.
    let all = after.max(until.min(last(log)));
    let (mut events, mut bytes, mut place) = (Vec::new(), 0, after);
    let behind = log.range(after.saturating_add(1)..);
    for (seq, event) in behind.take_while(|(seq, _)| **seq <= until) {
        let event = event.clone().ordered_by(order);
        if wanted(&event) {
            let size = event.footprint();
            let full = events.len() >= budget.events || bytes + size > budget.bytes;
            if full && !events.is_empty() {
                return (events, place);
            }
            bytes += size;
            events.push(event);
        }
        place = *seq;
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

pub(super) fn last(log: &BTreeMap<i64, StoredEvent>) -> i64 {
    log.last_key_value().map_or(0, |(seq, _)| *seq)
}
