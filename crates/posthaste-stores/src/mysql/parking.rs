//! Parked events and the markers of the keys that wait behind them.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::params;
use posthaste_engine::{
    AfterFailure, Attempted, ClaimParking, Due, DueAt, EventRef, Field, OrderBy, ParkedCopy,
    ParkedState, Parking, PutOff, SetAside, Settlement, StoreError, audit as words,
};
use uuid::Uuid;

use super::{
    audit,
    claimed::MysqlClaimed,
    connection::{Fields, Work, clock, limit_of, micros, until},
    destination,
    error::unexpected,
    holds_key::with_holds_key,
    marker_rows, plan,
    row::{self, PARKED},
    slots::Slots,
};
use crate::{about::About, headers};

/// Bytes of due events that one answer holds at the most, beyond its first event.
const DUE_BYTES_MAX: usize = 8 << 20;

/// Whether there is any parked event or marker of the destination.
const SOMETHING_WAITS: &str = "\
    exists (select 1 from posthaste_parked \
        where destination_id = :destination_id and state = 'parked') \
    or exists (select 1 from posthaste_markers where destination_id = :destination_id)";

/// A statement whose text has its columns of a parked copy filled in.
fn with_copy(sql: &str) -> String {
    with_holds_key(sql).replace("{copy}", PARKED)
}

#[async_trait]
impl ClaimParking for MysqlClaimed {
    async fn set_aside(&self) -> Result<SetAside, StoreError> {
        const OPERATION: &str = "read what is set aside";
        let link = self.parking(OPERATION).await?;
        let mut work = self.guard().read(&link, OPERATION).await?;
        let floor = self.plan().stored_floor();
        let of = params! {
            "destination_id" => self.guard().destination_id(),
            "floor" => floor,
            "mask" => self.slots().mask(),
            "count" => self.slots().count(),
        };
        let rows = work.rows(include_str!("sql/set_aside.sql"), of).await;
        let mut set_aside = SetAside::default();
        for row in &work.end(rows).await? {
            if let Some(count) = row.get::<Option<usize>>(2)? {
                set_aside.put_off_alone = count;
                continue;
            }
            let id = row::event_id(row.get::<Option<Vec<u8>>>(1)?.as_deref());
            set_aside.again.push(EventRef {
                seq: row.get(0)?,
                id: id.unwrap_or_default(),
            });
        }
        Ok(set_aside)
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        let of = self.guard().of();
        let mut guarded = self.write("park events").await?;
        let result = async {
            for parking in events {
                park(&mut guarded.work, of, parking).await?;
            }
            Ok(())
        };
        let result = result.await;
        guarded.end(result).await
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        const OPERATION: &str = "look for due events";
        let link = self.parking(OPERATION).await?;
        // Most of the time nothing waits.
        let waits = self.guard().look(&link, OPERATION, SOMETHING_WAITS).await?;
        if !waits.flag(2)? {
            return Ok(Due::default());
        }
        let mut work = self.guard().read(&link, OPERATION).await?;
        let result = due(&mut work, self.guard().ordered(), self.slots(), limit).await;
        work.end(result).await
    }

    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError> {
        const OPERATION: &str = "read what was put off";
        let link = self.parking(OPERATION).await?;
        let mut work = self.guard().read(&link, OPERATION).await?;
        let of = self.guard().ordered();
        let result = put_off(&mut work, of, self.slots(), after, limit).await;
        work.end(result).await
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let of = self.guard().of();
        let mut guarded = self.write("settle a parked event").await?;
        let result = settle(&mut guarded.work, of, id, settlement).await;
        guarded.end(result).await
    }
}

async fn park(
    work: &mut Work,
    (destination_id, by): (i64, Uuid),
    parking: &Parking,
) -> Result<(), StoreError> {
    let now = clock(work).await?;
    let operation = work.operation();
    let (event, state) = (&parking.event, parking.next.state());
    let (places, seq) = plan::of_cursor(operation, &parking.at)?;
    let place = places
        .of_slot(event.slot(), seq)
        .ok_or_else(|| unexpected(operation, "an event of partitions that are not the claim's"))?;
    let of = params! {
        "destination_id" => destination_id,
        "state" => state.as_str(),
        "attempts" => parking.attempts,
        "kind" => parking.kind,
        "reason" => &parking.reason,
        "now" => now,
        "due_at" => due_at(now, parking.next.retry_in()),
        "closed_at" => closed_at(now, state),
        "seq" => event.seq(),
        "event_id" => event.id().as_bytes().as_slice(),
        "topic" => event.topic(),
        "key" => event.order_key().map(str::as_bytes),
        "slot" => event.slot(),
        "type" => event.text(Field::Type),
        "content_type" => event.text(Field::ContentType),
        "payload" => event.payload(),
        "headers" => headers::to_json(event),
        "occurred_at" => event.occurred_at(),
        "correlation_id" => event.text(Field::CorrelationId),
        "causation_id" => event.text(Field::CausationId),
        "tenant_id" => event.text(Field::TenantId),
        "traceparent" => event.text(Field::Traceparent),
        "tracestate" => event.text(Field::Tracestate),
        "inserted_at" => event.inserted_at(),
    };
    let id = work.insert(include_str!("sql/park.sql"), of).await?;
    if event.fault().is_some() {
        // Columns that could not be read are not lost, but for the key, by which the event was
        // found.
        let sql = include_str!("sql/park_as_it_stands.sql");
        work.execute(sql, params! { "id" => id }).await?;
    }
    if parking.attempts > 0 {
        let number = i64::from(parking.attempts);
        attempt(work, id, number, parking.kind, &parking.reason).await?;
    }
    match event.order_key() {
        // It leaves no marker, but takes along one that stands: a side read would bring it again.
        Some(key) if parking.next == AfterFailure::Skip => {
            marker_rows::move_up(work, destination_id, key, &place).await?;
        }
        Some(key) => {
            let key = (key, event.slot());
            marker_rows::set(work, destination_id, key, &place, now).await?;
        }
        None => {}
    }
    let (id, name) = (
        event.id().to_string(),
        destination::name(work, destination_id).await?,
    );
    let about = About {
        event_id: Some(&id),
        ..About::relay(by, &name)
    };
    let values: [&(dyn std::fmt::Display + Sync); 3] = [&id, &event.seq(), &parking.kind];
    audit::write(work, words::parked_as(state), about, &values).await
}

fn due_at(now: i64, retry_in: Option<Duration>) -> Option<i64> {
    retry_in.map(|wait| now.saturating_add(micros(wait)))
}

/// Since when nothing waits for a copy that comes to this state.
fn closed_at(now: i64, state: ParkedState) -> Option<i64> {
    (!state.waits()).then_some(now)
}

async fn attempt(
    work: &mut Work,
    parked_id: u64,
    number: i64,
    kind: &str,
    reason: &str,
) -> Result<(), StoreError> {
    let now = clock(work).await?;
    let of = params! {
        "parked_id" => parked_id,
        "attempt" => number,
        "now" => now,
        "kind" => kind,
        "reason" => reason,
    };
    let sql = "insert into posthaste_attempts (parked_id, attempt, at, kind, reason) \
               values (:parked_id, :attempt, :now, :kind, :reason)";
    work.execute(sql, of).await.map(drop)
}

async fn due(
    work: &mut Work,
    (destination_id, order_by): (i64, OrderBy),
    slots: &Slots,
    limit: usize,
) -> Result<Due, StoreError> {
    let now = clock(work).await?;
    let of = params! {
        "destination_id" => destination_id,
        "now" => now,
        "limit" => limit_of(limit),
        "mask" => slots.mask(),
        "count" => slots.count(),
    };
    let sql = with_copy(include_str!("sql/due.sql"));
    let events = copies(
        &work.rows(&sql, of.clone()).await?,
        (work.operation(), order_by),
        |_| Ok(()),
    )?;
    let sql = with_holds_key(include_str!("sql/released.sql"));
    let released = work.rows(&sql, of.clone()).await?;
    let next = work.one(include_str!("sql/due_next.sql"), of).await?;
    let next: Option<i64> = next.get(0)?;
    Ok(Due {
        events: events.into_iter().map(|((), copy)| copy).collect(),
        released: released
            .iter()
            .map(|row| row.text(0))
            .collect::<Result<_, _>>()?,
        next_in: next.map(|at| until(now, at)),
    })
}

async fn put_off(
    work: &mut Work,
    (destination_id, order_by): (i64, OrderBy),
    slots: &Slots,
    after: Option<DueAt>,
    limit: usize,
) -> Result<Vec<PutOff>, StoreError> {
    let DueAt(due_at, id) = after.unwrap_or(DueAt(i64::MIN, i64::MIN));
    let of = params! {
        "destination_id" => destination_id,
        "now" => clock(work).await?,
        "due_at" => due_at,
        "id" => id,
        "limit" => limit_of(limit),
        "mask" => slots.mask(),
        "count" => slots.count(),
    };
    let sql = with_copy(include_str!("sql/put_off.sql"));
    let rows = work.rows(&sql, of).await?;
    let copies = copies(&rows, (work.operation(), order_by), |row| {
        row.get(row::BEHIND + 4)
    })?;
    let put_off = |(due_at, copy): (i64, ParkedCopy)| PutOff {
        at: DueAt(due_at, copy.id),
        copy,
    };
    Ok(copies.into_iter().map(put_off).collect())
}

/// The copies that a statement answers, as many as fit, with what else of their rows is asked for.
fn copies<T>(
    rows: &[Fields],
    (operation, order_by): (&'static str, OrderBy),
    also: impl Fn(&Fields) -> Result<T, StoreError>,
) -> Result<Vec<(T, ParkedCopy)>, StoreError> {
    let (mut copies, mut bytes) = (Vec::new(), 0);
    for row in rows {
        let event = row::copy(operation, order_by, row.row())?;
        bytes += event.footprint();
        if !copies.is_empty() && bytes > DUE_BYTES_MAX {
            break;
        }
        let copy = ParkedCopy {
            id: row.get(row::BEHIND)?,
            event,
            attempts: row.get(row::BEHIND + 1)?,
            holds_key: row.flag(row::BEHIND + 2)?,
            never_tried: row.flag(row::BEHIND + 3)?,
        };
        copies.push((also(row)?, copy));
    }
    Ok(copies)
}

async fn settle(
    work: &mut Work,
    (destination_id, by): (i64, Uuid),
    id: i64,
    settlement: &Settlement,
) -> Result<(), StoreError> {
    let now = clock(work).await?;
    let operation = work.operation();
    let of = params! { "id" => id, "destination_id" => destination_id };
    // Operators decide on it beside us.
    let sql = "select attempts, event_id, seq, state from posthaste_parked \
               where id = :id and destination_id = :destination_id for update";
    let found = work.at_most_one(sql, of).await?;
    let found =
        found.ok_or_else(|| unexpected(operation, format!("there is no parked event {id}")))?;
    let (attempts, seq): (i64, i64) = (found.get(0)?, found.get(2)?);
    let event_id = event_id_text(found.get::<Option<Vec<u8>>>(1)?.as_deref());
    let attempted = settlement.attempted();
    let Attempted {
        state,
        retry_in,
        kind,
        reason,
        counts,
    } = attempted;
    let stands = ParkedState::from_name(&found.text(3)?);
    let changes = stands.is_some_and(|stands| attempted.changes(stands));
    if changes {
        let of = params! {
            "id" => id,
            "state" => state.as_str(),
            "counts" => i64::from(counts),
            "kind" => kind,
            "reason" => reason,
            "due_at" => due_at(now, retry_in),
            "closed_at" => closed_at(now, state),
        };
        work.execute(include_str!("sql/settle.sql"), of).await?;
    }
    if counts {
        let parked_id = u64::try_from(id).map_err(|_| unexpected(operation, "a negative id"))?;
        attempt(work, parked_id, attempts + 1, kind, reason).await?;
    }
    let Some(words) = words::settled_as(state).filter(|_| changes) else {
        return Ok(());
    };
    let name = destination::name(work, destination_id).await?;
    let about = About {
        event_id: Some(&event_id),
        ..About::relay(by, &name)
    };
    let values: [&(dyn std::fmt::Display + Sync); 4] = [&event_id, &seq, &(attempts + 1), &kind];
    audit::write(work, words, about, &values).await
}

/// An event's id for people.
pub(super) fn event_id_text(bytes: Option<&[u8]>) -> String {
    match row::event_id(bytes) {
        Some(id) => id.to_string(),
        None => words::WITHOUT_ID.to_owned(),
    }
}
