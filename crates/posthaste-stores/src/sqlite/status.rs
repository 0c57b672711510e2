//! The outbox at a glance.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
    time::Duration,
};

use posthaste_engine::{DestinationStatus, OrderBy, RelayShare, RelayStatus, Status, StoreError};
use rusqlite::{Row, Transaction, named_params};

use super::{
    connection::{all, clock, micros, until},
    destination::last_seq,
    error::{classify, unexpected},
    live::with_live,
    retention::retained,
    row,
    shares::{host, registration},
};
use crate::{held_places, wanted::wanted};

static DESTINATIONS: LazyLock<String> =
    LazyLock::new(|| with_live(include_str!("sql/status_destinations.sql")));
static RELAYS: LazyLock<String> =
    LazyLock::new(|| with_live(include_str!("sql/status_relays.sql")));

/// Up to here pending events are counted one by one.
const PENDING_EXACT_MAX: u64 = 100_000;
/// Rows that one count looks at; a second of work at the most.
const ROWS_LOOKED_AT_MAX: u64 = 1_000_000;
/// A relay that ended longer ago is not shown.
const RELAYS_SHOWN: Duration = Duration::from_secs(24 * 3_600);
/// A file larger than this is not walked page by page: its own size stands in as an upper bound.
const PAGES_WALKED_MAX: i64 = 1 << 18;

/// The outbox at a glance, in one snapshot.
pub(super) fn status(tx: &Transaction<'_>, operation: &'static str) -> Result<Status, StoreError> {
    let now = clock(tx, operation)?;
    let age = |pending: Pending| pending.oldest_inserted_at.map(|at| until(at, now));
    let mut progresses = Vec::new();
    let mut destinations = Vec::new();
    for (id, cursor, mut destination) in destinations_of(tx, operation, now)? {
        let progress = Progress::read(tx, operation, (id, &destination.address), cursor)?;
        let own = pending(tx, operation, &[&progress])?;
        destination.pending = own.events;
        destination.pending_exact = own.exact;
        destination.oldest_pending_age = age(own);
        destinations.push(destination);
        progresses.push(progress);
    }
    let all: Vec<&Progress> = progresses.iter().collect();
    let together = pending(tx, operation, &all)?;
    Ok(Status {
        pending: together.events,
        pending_exact: together.exact,
        oldest_pending_age: age(together),
        destinations,
        relays: relays(tx, operation, now)?,
        retained_bytes: retained_bytes(tx, operation)?,
        retained: retained(tx, operation, now)?,
    })
}

/// A destination's progress, which decides whether an event is finished.
#[derive(Debug, Default)]
struct Progress {
    cursor: i64,
    order_by: OrderBy,
    markers: HashMap<String, i64>,
    /// Parked, but not passed by the cursor yet.
    parked_ahead: HashSet<i64>,
}

impl Progress {
    fn read(
        tx: &Transaction<'_>,
        operation: &'static str,
        (destination_id, target): (i64, &str),
        cursor: i64,
    ) -> Result<Self, StoreError> {
        let sql = include_str!("sql/status_markers.sql");
        let of = named_params! { ":destination_id": destination_id };
        let markers = all(tx, operation, sql, of, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let sql = include_str!("sql/parked_after.sql");
        let of = named_params! { ":destination_id": destination_id, ":after": cursor };
        let parked_ahead = all(tx, operation, sql, of, |row| row.get(0))?;
        Ok(Self {
            cursor,
            order_by: OrderBy::of_target(target).0,
            markers: markers.into_iter().collect(),
            parked_ahead: parked_ahead.into_iter().collect(),
        })
    }

    fn has_pending(&self, seq: i64, topic: &str, key: Option<&str>) -> bool {
        if seq > self.cursor {
            return !self.parked_ahead.contains(&seq);
        }
        key.and_then(|key| self.markers.get(&*self.order_by.order_key(topic, key)))
            .is_some_and(|&marker| seq > marker)
    }

    /// Everything up to here is finished.
    fn lowest(&self) -> i64 {
        self.markers.values().copied().fold(self.cursor, i64::min)
    }

    /// Nothing behind this is.
    fn highest(&self) -> i64 {
        self.parked_ahead
            .iter()
            .copied()
            .fold(self.cursor, i64::max)
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Pending {
    events: u64,
    exact: bool,
    oldest_inserted_at: Option<i64>,
}

/// Events that at least one of the destinations has not finished; without any destination, none.
fn pending(
    tx: &Transaction<'_>,
    operation: &'static str,
    destinations: &[&Progress],
) -> Result<Pending, StoreError> {
    let fail = |error| classify(operation, error);
    let last = last_seq(tx, operation)?;
    let after = destinations.iter().map(|d| d.lowest()).min();
    let after = after.unwrap_or(last);
    let highest = destinations.iter().map(|d| d.highest()).max();
    let highest = highest.unwrap_or(last);
    let mut pending = Pending {
        exact: true,
        ..Pending::default()
    };
    let mut statement = tx
        .prepare_cached(include_str!("sql/keys_after.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":after": after, ":until": last })
        .map_err(fail)?;
    let mut looked_at = 0;
    while let Some(row) = rows.next().map_err(fail)? {
        let seq: i64 = row.get(0).map_err(fail)?;
        looked_at += 1;
        if pending.events >= PENDING_EXACT_MAX || looked_at > ROWS_LOOKED_AT_MAX {
            // Rolled-back transactions leave no gaps in SQLite, deleted rows do: an upper bound.
            pending.events += u64::try_from(last - seq + 1).unwrap_or(0);
            pending.exact = false;
            break;
        }
        let (topic, key) = row::topic_and_key(operation, row, 1)?;
        if seq > highest
            || destinations
                .iter()
                .any(|d| d.has_pending(seq, &topic, key.as_deref()))
        {
            pending.events += 1;
            if pending.oldest_inserted_at.is_none() {
                pending.oldest_inserted_at = Some(row.get(3).map_err(fail)?);
            }
        }
    }
    Ok(pending)
}

fn destinations_of(
    tx: &Transaction<'_>,
    operation: &'static str,
    now: i64,
) -> Result<Vec<(i64, i64, DestinationStatus)>, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx.prepare_cached(&DESTINATIONS).map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":now": now })
        .map_err(fail)?;
    let mut destinations = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        let (state, places): (String, String) =
            (row.get(2).map_err(fail)?, row.get(13).map_err(fail)?);
        let wanted = wanted(operation, &state, &places)?;
        let name: String = row.get(1).map_err(fail)?;
        let told: String = row.get(12).map_err(fail)?;
        let told: Vec<String> = serde_json::from_str(&told)
            .map_err(|error| unexpected(operation, format!("held places: {error}")))?;
        let (places_held, places) = held_places::read(&name, &told);
        let status = DestinationStatus {
            name,
            address: row.get(6).map_err(fail)?,
            state: wanted.state,
            paused_places: wanted.paused_places,
            pending: 0,
            pending_exact: true,
            parked: count(operation, row.get(8).map_err(fail)?)?,
            dead: count(operation, row.get(9).map_err(fail)?)?,
            blocked_keys: count(operation, row.get(10).map_err(fail)?)?,
            oldest_pending_age: None,
            breaker: row.get(3).map_err(fail)?,
            last_error: row.get(4).map_err(fail)?,
            relay: row.get(7).map_err(fail)?,
            accepted_per_second: row.get(11).map_err(fail)?,
            places_held,
            places,
        };
        destinations.push((row.get(0).map_err(fail)?, row.get(5).map_err(fail)?, status));
    }
    Ok(destinations)
}

fn relays(
    tx: &Transaction<'_>,
    operation: &'static str,
    now: i64,
) -> Result<Vec<RelayStatus>, StoreError> {
    let fail = |error| classify(operation, error);
    let since = now.saturating_sub(micros(RELAYS_SHOWN));
    let mut statement = tx.prepare_cached(&RELAYS).map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":now": now, ":since": since })
        .map_err(fail)?;
    let mut relays = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        let registration = registration(operation, row, 0)?;
        let shares = relay_shares(tx, operation, &registration.to_string())?;
        relays.push(RelayStatus {
            registration,
            name: row.get(1).map_err(fail)?,
            host: host(operation, row, 2)?,
            started_at: row.get(6).map_err(fail)?,
            version: row.get(7).map_err(fail)?,
            state: row.get(8).map_err(fail)?,
            lease_expires_at: row.get(9).map_err(fail)?,
            leaving: row.get(10).map_err(fail)?,
            partitions: shares.iter().map(|share| share.partitions).sum(),
            shares,
        });
    }
    Ok(relays)
}

fn relay_shares(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: &str,
) -> Result<Vec<RelayShare>, StoreError> {
    let share = |row: &Row<'_>| {
        let epoch: i64 = row.get(2)?;
        Ok(RelayShare {
            destination: row.get(0)?,
            partitions: row.get(1)?,
            epoch: u64::try_from(epoch).unwrap_or_default(),
            reaches: row.get(3)?,
        })
    };
    let sql = include_str!("sql/status_shares.sql");
    all(
        tx,
        operation,
        sql,
        named_params! { ":registration": relay },
        share,
    )
}

/// Bytes of the outbox's own pages; of a large file, those of the file.
fn retained_bytes(tx: &Transaction<'_>, operation: &'static str) -> Result<u64, StoreError> {
    let fail = |error| classify(operation, error);
    let pages: i64 = tx
        .query_row("pragma page_count", [], |row| row.get(0))
        .map_err(fail)?;
    let page_size: i64 = tx
        .query_row("pragma page_size", [], |row| row.get(0))
        .map_err(fail)?;
    let bytes: i64 = if pages <= PAGES_WALKED_MAX {
        tx.query_row(include_str!("sql/outbox_bytes.sql"), [], |row| row.get(0))
            .map_err(fail)?
    } else {
        pages.saturating_mul(page_size)
    };
    count(operation, bytes)
}

fn count(operation: &'static str, number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| unexpected(operation, "a negative count"))
}
