//! Parked events and the markers of the keys that wait behind them.

use std::{fmt::Display, sync::LazyLock, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    AfterFailure, Attempted, ClaimParking, Due, DueAt, EventRef, Field, OrderBy, ParkedCopy,
    ParkedState, Parking, PutOff, SetAside, Settlement, StoreError, audit as words,
};
use rusqlite::{Row, ToSql, Transaction, named_params};
use uuid::Uuid;

use super::{
    audit,
    claimed::SqliteClaimed,
    connection::{all, at_most_one, clock, execute, limit_of, micros, one, until},
    cursor, destination,
    error::{classify, unexpected},
    guard::Changed,
    holds_key::with_holds_key,
    row,
};
use crate::{about::About, headers};

/// Bytes of due events that one answer holds at the most, beyond its first event.
const DUE_BYTES_MAX: usize = 8 << 20;

const PUT_OFF: &str = include_str!("sql/put_off.sql");
static DUE: LazyLock<String> = LazyLock::new(|| with_holds_key(include_str!("sql/due.sql")));
static RELEASED: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/released.sql")));

#[async_trait]
impl ClaimParking for SqliteClaimed {
    async fn set_aside(&self) -> Result<SetAside, StoreError> {
        const OPERATION: &str = "read what is set aside";
        let destination_id = self.guard().destination_id();
        let worker = self.parking(OPERATION).await?;
        self.guard()
            .read(&worker, OPERATION, move |tx, standing| {
                let fail = |error| classify(OPERATION, error);
                let mut statement = tx
                    .prepare_cached(include_str!("sql/set_aside.sql"))
                    .map_err(fail)?;
                let params = named_params! {
                    ":destination_id": destination_id, ":cursor_id": standing.cursor_id
                };
                let mut rows = statement.query(params).map_err(fail)?;
                let mut set_aside = SetAside::default();
                while let Some(row) = rows.next().map_err(fail)? {
                    if let Some(count) = row.get::<_, Option<i64>>(2).map_err(fail)? {
                        set_aside.put_off_alone = usize::try_from(count).unwrap_or(usize::MAX);
                        continue;
                    }
                    let seq = row.get(0).map_err(fail)?;
                    let id = row::event_id(row, 1).map_err(fail)?.unwrap_or_default();
                    set_aside.again.push(EventRef { seq, id });
                }
                Ok(set_aside)
            })
            .await
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        const OPERATION: &str = "park events";
        let (destination_id, by) = self.guard().of();
        let events = events.to_vec();
        self.guard()
            .write(&self.writer, OPERATION, move |tx, _| {
                for parking in &events {
                    park(tx, OPERATION, (destination_id, by), parking)?;
                }
                Ok(((), Changed::Something))
            })
            .await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        const OPERATION: &str = "look for due events";
        let (destination_id, order_by) = self.guard().ordered();
        let worker = self.parking(OPERATION).await?;
        self.guard()
            .read(&worker, OPERATION, move |tx, _| {
                let now = clock(tx, OPERATION)?;
                let sql = include_str!("sql/due_next.sql");
                let of = named_params! { ":destination_id": destination_id, ":now": now };
                let next: Option<i64> = one(tx, OPERATION, sql, of, |row| row.get(0))?;
                Ok(Due {
                    events: due_events(tx, OPERATION, (destination_id, order_by), now, limit)?,
                    released: released(tx, OPERATION, destination_id, limit)?,
                    next_in: next.map(|at| until(now, at)),
                })
            })
            .await
    }

    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError> {
        const OPERATION: &str = "read what was put off";
        let (destination_id, order_by) = self.guard().ordered();
        let worker = self.parking(OPERATION).await?;
        self.guard()
            .read(&worker, OPERATION, move |tx, _| {
                let DueAt(due_at, id) = after.unwrap_or(DueAt(i64::MIN, i64::MIN));
                let of = named_params! {
                    ":destination_id": destination_id, ":now": clock(tx, OPERATION)?,
                    ":due_at": due_at, ":id": id, ":limit": limit_of(limit)
                };
                let due_at = |row: &Row<'_>| row.get(row::BEHIND + 4);
                let copies = copies(tx, (OPERATION, order_by), PUT_OFF, of, due_at)?;
                let put_off = |(due_at, copy): (i64, ParkedCopy)| PutOff {
                    at: DueAt(due_at, copy.id),
                    copy,
                };
                Ok(copies.into_iter().map(put_off).collect())
            })
            .await
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        const OPERATION: &str = "settle a parked event";
        let (destination_id, by) = self.guard().of();
        let settlement = settlement.clone();
        self.guard()
            .write(&self.writer, OPERATION, move |tx, _| {
                settle(tx, OPERATION, (destination_id, by), id, &settlement)?;
                Ok(((), Changed::Something))
            })
            .await
    }
}

/// Where a key's marker stands; none: it has none.
pub(super) fn marker(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    key: &str,
) -> Result<Option<i64>, StoreError> {
    let sql = include_str!("sql/marker.sql");
    let of = named_params! { ":destination_id": destination_id, ":key": key };
    at_most_one(tx, operation, sql, of, |row| row.get(0))
}

fn park(
    tx: &Transaction<'_>,
    operation: &'static str,
    (destination_id, by): (i64, Uuid),
    parking: &Parking,
) -> Result<(), StoreError> {
    let now = clock(tx, operation)?;
    let seq = cursor::seq(operation, &parking.at)?;
    let state = parking.next.state();
    let event = &parking.event;
    let of = named_params! {
        ":destination_id": destination_id,
        ":state": state.as_str(),
        ":attempts": parking.attempts,
        ":kind": parking.kind,
        ":reason": parking.reason,
        ":now": now,
        ":due_at": due_at(now, parking.next.retry_in()),
        ":closed_at": closed_at(now, state),
        ":seq": event.seq(),
        ":event_id": event.id().to_string(),
        ":topic": event.topic(),
        ":key": event.order_key(),
        ":type": event.text(Field::Type),
        ":content_type": event.text(Field::ContentType),
        ":payload": event.payload(),
        ":headers": headers::to_json(event),
        ":occurred_at": event.occurred_at(),
        ":correlation_id": event.text(Field::CorrelationId),
        ":causation_id": event.text(Field::CausationId),
        ":tenant_id": event.text(Field::TenantId),
        ":traceparent": event.text(Field::Traceparent),
        ":tracestate": event.text(Field::Tracestate),
        ":inserted_at": event.inserted_at(),
    };
    let id: i64 = one(tx, operation, include_str!("sql/park.sql"), of, |row| {
        row.get(0)
    })?;
    if event.fault().is_some() {
        execute(
            tx,
            operation,
            include_str!("sql/park_as_it_stands.sql"),
            named_params! { ":id": id },
        )?;
    }
    if parking.attempts > 0 {
        let number = i64::from(parking.attempts);
        attempt(tx, operation, id, number, parking.kind, &parking.reason)?;
    }
    match event.order_key() {
        // It leaves no marker, but takes along one that stands: a side read would bring it again.
        Some(key) if parking.next == AfterFailure::Skip => drop(execute(
            tx,
            operation,
            include_str!("sql/marker_move.sql"),
            named_params! { ":destination_id": destination_id, ":key": key, ":seq": seq },
        )?),
        Some(key) => drop(execute(
            tx,
            operation,
            include_str!("sql/marker_set.sql"),
            named_params! {
                ":destination_id": destination_id, ":key": key, ":seq": seq, ":now": now
            },
        )?),
        None => {}
    }
    let (id, name) = (
        event.id().to_string(),
        destination::name(tx, operation, destination_id)?,
    );
    let about = About {
        event_id: Some(&id),
        ..About::relay(by, &name)
    };
    let values: [&dyn Display; 3] = [&id, &event.seq(), &parking.kind];
    audit::write(tx, operation, words::parked_as(state), about, &values)
}

fn due_at(now: i64, retry_in: Option<Duration>) -> Option<i64> {
    retry_in.map(|wait| now.saturating_add(micros(wait)))
}

/// Since when nothing waits for a copy that comes to this state.
fn closed_at(now: i64, state: ParkedState) -> Option<i64> {
    (!state.waits()).then_some(now)
}

fn attempt(
    tx: &Transaction<'_>,
    operation: &'static str,
    parked_id: i64,
    number: i64,
    kind: &str,
    reason: &str,
) -> Result<(), StoreError> {
    execute(
        tx,
        operation,
        include_str!("sql/attempt.sql"),
        named_params! {
            ":parked_id": parked_id,
            ":attempt": number,
            ":now": clock(tx, operation)?,
            ":kind": kind,
            ":reason": reason,
        },
    )?;
    Ok(())
}

fn due_events(
    tx: &Transaction<'_>,
    operation: &'static str,
    (destination_id, order_by): (i64, OrderBy),
    now: i64,
    limit: usize,
) -> Result<Vec<ParkedCopy>, StoreError> {
    let of = named_params! {
        ":destination_id": destination_id, ":now": now, ":limit": limit_of(limit)
    };
    let copies = copies(tx, (operation, order_by), &DUE, of, |_| Ok(()))?;
    Ok(copies.into_iter().map(|((), copy)| copy).collect())
}

/// The copies that a statement answers, as many as fit, with what else of their rows is asked for.
fn copies<T>(
    tx: &Transaction<'_>,
    (operation, order_by): (&'static str, OrderBy),
    sql: &str,
    of: &[(&str, &dyn ToSql)],
    also: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<(T, ParkedCopy)>, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx.prepare_cached(sql).map_err(fail)?;
    let mut rows = statement.query(of).map_err(fail)?;
    let (mut copies, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(fail)? {
        let event = row::copy(operation, order_by, row)?;
        bytes += event.footprint();
        if !copies.is_empty() && bytes > DUE_BYTES_MAX {
            break;
        }
        let copy = ParkedCopy {
            id: row.get(row::BEHIND).map_err(fail)?,
            event,
            attempts: row.get(row::BEHIND + 1).map_err(fail)?,
            holds_key: row.get(row::BEHIND + 2).map_err(fail)?,
            never_tried: row.get(row::BEHIND + 3).map_err(fail)?,
        };
        copies.push((also(row).map_err(fail)?, copy));
    }
    Ok(copies)
}

fn released(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let of = named_params! { ":destination_id": destination_id, ":limit": limit_of(limit) };
    all(tx, operation, &RELEASED, of, |row| row.get(0))
}

fn settle(
    tx: &Transaction<'_>,
    operation: &'static str,
    (destination_id, by): (i64, Uuid),
    id: i64,
    settlement: &Settlement,
) -> Result<(), StoreError> {
    let now = clock(tx, operation)?;
    let sql = include_str!("sql/parked_attempts.sql");
    let of = named_params! { ":id": id, ":destination_id": destination_id };
    let found: Option<(i64, String, i64)> = at_most_one(tx, operation, sql, of, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let (attempts, event_id, seq) =
        found.ok_or_else(|| unexpected(operation, format!("there is no parked event {id}")))?;
    let Attempted {
        state,
        retry_in,
        kind,
        reason,
        counts,
    } = settlement.attempted();
    let changed = execute(
        tx,
        operation,
        include_str!("sql/settle.sql"),
        named_params! {
            ":id": id,
            ":state": state.as_str(),
            ":counts": i64::from(counts),
            ":kind": kind,
            ":reason": reason,
            ":due_at": due_at(now, retry_in),
            ":closed_at": closed_at(now, state),
        },
    )?;
    if counts {
        attempt(tx, operation, id, attempts + 1, kind, reason)?;
    }
    let Some(words) = words::settled_as(state).filter(|_| changed > 0) else {
        return Ok(());
    };
    let name = destination::name(tx, operation, destination_id)?;
    let about = About {
        event_id: Some(&event_id),
        ..About::relay(by, &name)
    };
    let values: [&dyn Display; 4] = [&event_id, &seq, &(attempts + 1), &kind];
    audit::write(tx, operation, words, about, &values)
}
