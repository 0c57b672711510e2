//! What operators see and do.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Admin, DeadAction, DestinationState, DestinationStatus, ParkedEvent, ParkedFilter, ParkedState,
    RelayStatus, Status, StoreError,
};
use rusqlite::{Row, Transaction, named_params};

use super::{
    SqliteStore, audit,
    connection::{clock, micros, until},
    error::{classify, unexpected},
    ownership::{Found, destination_state, execute, find, holder, last_seq},
    parking::limit_of,
    row, settings,
};

/// Up to here pending events are counted one by one.
const PENDING_EXACT_MAX: u64 = 100_000;
/// Rows that one count looks at; a second of work at the most.
const ROWS_LOOKED_AT_MAX: u64 = 1_000_000;
/// Parked events that one transaction acts upon, so that writers are never kept waiting.
const ACTS_A_TRANSACTION: usize = 200;
/// A relay that ended longer ago is not shown.
const RELAYS_SHOWN: Duration = Duration::from_secs(24 * 3_600);
/// A file larger than this is not walked page by page: its own size stands in as an upper bound.
const PAGES_WALKED_MAX: i64 = 1 << 18;

#[async_trait]
impl Admin for SqliteStore {
    async fn status(&self) -> Result<Status, StoreError> {
        const OPERATION: &str = "read the status";
        self.admin(OPERATION)
            .await?
            .read(OPERATION, |tx| status(tx, OPERATION))
            .await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        const OPERATION: &str = "list parked events";
        let filter = filter.clone();
        self.admin(OPERATION)
            .await?
            .read(OPERATION, move |tx| {
                let fail = |error| classify(OPERATION, error);
                let mut statement = tx
                    .prepare_cached(include_str!("sql/parked_list.sql"))
                    .map_err(fail)?;
                let mut rows = statement
                    .query(named_params! {
                        ":destination": filter.destination,
                        ":event_id": filter.id.map(|id| id.to_string()),
                        ":key": filter.key,
                        ":state": filter.state.map(ParkedState::as_str),
                        ":limit": limit_of(limit),
                    })
                    .map_err(fail)?;
                let mut parked = Vec::new();
                while let Some(row) = rows.next().map_err(fail)? {
                    parked.push(parked_event(OPERATION, row)?);
                }
                Ok(parked)
            })
            .await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        const OPERATION: &str = "act on parked events";
        let admin = self.admin(OPERATION).await?;
        let mut acted = 0;
        let mut after = 0;
        loop {
            let filter = filter.clone();
            let ids = admin
                .write(OPERATION, move |tx| {
                    act(tx, OPERATION, &filter, action, after)
                })
                .await?;
            acted += u64::try_from(ids.len()).unwrap_or(u64::MAX);
            match ids.last() {
                Some(&last) => after = last,
                None => return Ok(acted),
            }
        }
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "change a destination";
        let name = name.to_owned();
        self.admin(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                let Some(Found { id, .. }) = find(tx, OPERATION, &name)? else {
                    return Ok(false);
                };
                let detail = match state {
                    DestinationState::Removed => Some(remove(tx, OPERATION, id, &name)?),
                    DestinationState::Active | DestinationState::Paused => None,
                };
                execute(
                    tx,
                    OPERATION,
                    include_str!("sql/destination_state.sql"),
                    named_params! { ":id": id, ":state": state.as_str() },
                )?;
                audit::write(
                    tx,
                    OPERATION,
                    &audit::Line {
                        action: match state {
                            DestinationState::Active => "destination resumed",
                            DestinationState::Paused => "destination paused",
                            DestinationState::Removed => "destination removed",
                        },
                        destination: Some(&name),
                        detail: detail.as_deref(),
                        ..audit::Line::default()
                    },
                )?;
                Ok(true)
            })
            .await
    }
}

fn parked_event(operation: &'static str, row: &Row<'_>) -> Result<ParkedEvent, StoreError> {
    let fail = |error| classify(operation, error);
    let state: String = row.get(row::BEHIND + 1).map_err(fail)?;
    Ok(ParkedEvent {
        destination: row.get(row::BEHIND).map_err(fail)?,
        state: ParkedState::from_name(&state)
            .ok_or_else(|| unexpected(operation, format!("a parked event in state `{state}`")))?,
        attempts: row.get(row::BEHIND + 2).map_err(fail)?,
        kind: row.get(row::BEHIND + 3).map_err(fail)?,
        reason: row.get(row::BEHIND + 4).map_err(fail)?,
        parked_at: row.get(row::BEHIND + 5).map_err(fail)?,
        due_at: row.get(row::BEHIND + 6).map_err(fail)?,
        event: row::event(operation, row)?,
    })
}

/// Acts on the next parked events behind `after`; answers their ids.
fn act(
    tx: &Transaction<'_>,
    operation: &'static str,
    filter: &ParkedFilter,
    action: DeadAction,
    after: i64,
) -> Result<Vec<i64>, StoreError> {
    let fail = |error| classify(operation, error);
    let now = clock(tx, operation)?;
    let candidates: Vec<(i64, String, String)> = tx
        .prepare_cached(include_str!("sql/act_candidates.sql"))
        .and_then(|mut statement| {
            statement
                .query_map(
                    named_params! {
                        ":after": after,
                        ":destination": filter.destination,
                        ":event_id": filter.id.map(|id| id.to_string()),
                        ":key": filter.key,
                        ":state": filter.state.map(ParkedState::as_str),
                        ":limit": limit_of(ACTS_A_TRANSACTION),
                    },
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )?
                .collect()
        })
        .map_err(fail)?;
    let sql = match action {
        DeadAction::Retry => include_str!("sql/act_retry.sql"),
        DeadAction::Skip => include_str!("sql/act_skip.sql"),
        DeadAction::Discard => include_str!("sql/act_discard.sql"),
    };
    for (id, event_id, destination) in &candidates {
        execute(tx, operation, sql, named_params! { ":id": id, ":now": now })?;
        audit::write(
            tx,
            operation,
            &audit::Line {
                action: action.as_str(),
                destination: Some(destination),
                event_id: Some(event_id),
                ..audit::Line::default()
            },
        )?;
    }
    Ok(candidates.into_iter().map(|(id, _, _)| id).collect())
}

/// Ends a destination's progress; answers what it had, for the record.
fn remove(
    tx: &Transaction<'_>,
    operation: &'static str,
    id: i64,
    name: &str,
) -> Result<String, StoreError> {
    let now = clock(tx, operation)?;
    if let Some((holder, true)) = holder(tx, operation, id, now)? {
        return Err(StoreError::Misconfigured {
            operation,
            reason: format!(
                "destination `{name}` is held by the live relay `{}`: stop it, or take the \
                 destination out of its configuration, then remove it",
                holder.name
            ),
        });
    }
    let seq: i64 = tx
        .query_row(
            "select seq from posthaste_cursors where destination_id = ?1",
            [id],
            |row| row.get(0),
        )
        .map_err(|error| classify(operation, error))?;
    // The epoch goes up with it: a relay that still believes to own it is fenced.
    execute(
        tx,
        operation,
        include_str!("sql/destination_disown.sql"),
        named_params! { ":id": id },
    )?;
    for sql in [
        "delete from posthaste_cursors where destination_id = :id",
        "delete from posthaste_markers where destination_id = :id",
    ] {
        execute(tx, operation, sql, named_params! { ":id": id })?;
    }
    let skipped = execute(
        tx,
        operation,
        include_str!("sql/destination_close_parked.sql"),
        named_params! { ":id": id, ":now": now },
    )?;
    Ok(format!(
        "stood at event {seq}; {skipped} parked events closed as skipped"
    ))
}

/// What decides whether a destination has finished an event.
#[derive(Debug, Default)]
struct Progress {
    cursor: i64,
    markers: HashMap<String, i64>,
    /// Parked, but not passed by the cursor yet.
    parked_ahead: HashSet<i64>,
}

impl Progress {
    fn read(
        tx: &Transaction<'_>,
        operation: &'static str,
        destination_id: i64,
        cursor: i64,
    ) -> Result<Self, StoreError> {
        let fail = |error| classify(operation, error);
        let markers = tx
            .prepare_cached(include_str!("sql/status_markers.sql"))
            .and_then(|mut statement| {
                statement
                    .query_map(named_params! { ":destination_id": destination_id }, |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })?
                    .collect()
            })
            .map_err(fail)?;
        let parked_ahead = tx
            .prepare_cached(include_str!("sql/parked_after.sql"))
            .and_then(|mut statement| {
                statement
                    .query_map(
                        named_params! { ":destination_id": destination_id, ":after": cursor },
                        |row| row.get(0),
                    )?
                    .collect()
            })
            .map_err(fail)?;
        Ok(Self {
            cursor,
            markers,
            parked_ahead,
        })
    }

    fn has_pending(&self, seq: i64, key: Option<&str>) -> bool {
        if seq > self.cursor {
            return !self.parked_ahead.contains(&seq);
        }
        key.and_then(|key| self.markers.get(key))
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

/// Events that at least one of the destinations has not finished; without any, all events.
fn pending(
    tx: &Transaction<'_>,
    operation: &'static str,
    destinations: &[&Progress],
) -> Result<Pending, StoreError> {
    let fail = |error| classify(operation, error);
    let last = last_seq(tx, operation)?;
    let after = destinations.iter().map(|d| d.lowest()).min().unwrap_or(0);
    let highest = destinations.iter().map(|d| d.highest()).max().unwrap_or(0);
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
        let key = row::key(operation, row, 1)?;
        if seq > highest
            || destinations
                .iter()
                .any(|d| d.has_pending(seq, key.as_deref()))
        {
            pending.events += 1;
            if pending.oldest_inserted_at.is_none() {
                pending.oldest_inserted_at = Some(row.get(2).map_err(fail)?);
            }
        }
    }
    Ok(pending)
}

fn status(tx: &Transaction<'_>, operation: &'static str) -> Result<Status, StoreError> {
    let now = clock(tx, operation)?;
    let age = |pending: Pending| pending.oldest_inserted_at.map(|at| until(at, now));
    let mut progresses = Vec::new();
    let mut destinations = Vec::new();
    for (id, cursor, mut destination) in destinations_of(tx, operation, now)? {
        let progress = Progress::read(tx, operation, id, cursor)?;
        let own = pending(tx, operation, &[&progress])?;
        destination.pending = own.events;
        destination.pending_exact = own.exact;
        destination.oldest_pending_age = age(own);
        destinations.push(destination);
        progresses.push(progress);
    }
    let all: Vec<&Progress> = progresses.iter().collect();
    let together = pending(tx, operation, &all)?;
    let pinned_at = progresses.iter().map(Progress::lowest).min().unwrap_or(0);
    Ok(Status {
        pending: together.events,
        pending_exact: together.exact,
        oldest_pending_age: age(together),
        destinations,
        relays: relays(tx, operation, now)?,
        retained_bytes: retained_bytes(tx, operation)?,
        retention_debt_events: retention_debt(tx, operation, now, pinned_at)?,
    })
}

fn destinations_of(
    tx: &Transaction<'_>,
    operation: &'static str,
    now: i64,
) -> Result<Vec<(i64, i64, DestinationStatus)>, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/status_destinations.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":now": now })
        .map_err(fail)?;
    let mut destinations = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        let state: String = row.get(2).map_err(fail)?;
        let status = DestinationStatus {
            name: row.get(1).map_err(fail)?,
            address: row.get(6).map_err(fail)?,
            state: destination_state(operation, &state)?,
            pending: 0,
            pending_exact: true,
            parked: count(operation, row.get(8).map_err(fail)?)?,
            dead: count(operation, row.get(9).map_err(fail)?)?,
            blocked_keys: count(operation, row.get(10).map_err(fail)?)?,
            oldest_pending_age: None,
            breaker: row.get(3).map_err(fail)?,
            last_error: row.get(4).map_err(fail)?,
            relay: row.get(7).map_err(fail)?,
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
    let since = now.saturating_sub(micros(RELAYS_SHOWN));
    tx.prepare_cached(include_str!("sql/status_relays.sql"))
        .and_then(|mut statement| {
            statement
                .query_map(named_params! { ":now": now, ":since": since }, |row| {
                    Ok(RelayStatus {
                        name: row.get(0)?,
                        version: row.get(1)?,
                        state: row.get(2)?,
                        lease_expires_at: row.get(3)?,
                        partitions: row.get(4)?,
                    })
                })?
                .collect()
        })
        .map_err(|error| classify(operation, error))
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

/// Events beyond the retention window that a cursor or a marker pins, among the oldest ones.
fn retention_debt(
    tx: &Transaction<'_>,
    operation: &'static str,
    now: i64,
    pinned_at: i64,
) -> Result<u64, StoreError> {
    let window = settings::retention(tx, operation)?;
    let events = tx
        .prepare_cached(include_str!("sql/debt.sql"))
        .and_then(|mut statement| {
            statement.query_row(
                named_params! {
                    ":pinned_at": pinned_at,
                    ":limit": i64::try_from(PENDING_EXACT_MAX).unwrap_or(i64::MAX),
                    ":before": now.saturating_sub(micros(window)),
                },
                |row| row.get(0),
            )
        })
        .map_err(|error| classify(operation, error))?;
    count(operation, events)
}
