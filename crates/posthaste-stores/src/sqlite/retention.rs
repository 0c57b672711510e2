//! Housekeeping: rows that have served their time go in small transactions.
//!
//! The write lock makes one housekeeper of many, and what a transaction reads under it stays true
//! until it commits. `AUTOINCREMENT` keeps the numbers from coming again.

use std::{fmt::Display, sync::LazyLock, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    AUDIT_RETENTION, Housekeeping, PARKED_RETENTION, Pin, PinKind, Registered, Retained, Retention,
    RetentionMode, StoreError, audit as words,
};
use rusqlite::{Row, Transaction, named_params};
use tokio::time::Instant;

use super::{
    SqliteStore, audit,
    connection::{all, at_most_one, clock, execute, micros, one, until},
    destination::{last_seq, refuse_set_back},
    error::unexpected,
    evacuate::evacuate,
    live::with_live,
    ordering::with_order,
    settings,
};
use crate::about::About;

const OPERATION: &str = "housekeeping";
const OLDEST_LINE: &str = "select at from posthaste_audit order by id limit 1";

static PINS: LazyLock<String> =
    LazyLock::new(|| with_order(&with_live(include_str!("sql/retention_pins.sql"))));

/// Rows that one transaction deletes: a few milliseconds under the write lock.
const ROWS_A_TRANSACTION: usize = 200;
/// And bytes of payload.
const BYTES_A_TRANSACTION: i64 = 4 << 20;
/// A step begins no further transaction after this.
const STEP: Duration = Duration::from_millis(250);
/// Counting stops here; beyond it an upper bound is told.
const DEBT_EXACT_MAX: i64 = 100_000;

#[async_trait]
impl Retention for SqliteStore {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let worker = self.housekeeper(OPERATION).await?;
        let mut done = Housekeeping::default();
        let due = worker.read(OPERATION, Due::look).await?;
        if due.parked {
            let removed = worker.write(OPERATION, move |tx| remove_parked(tx, by));
            done.add(removed.await?);
        }
        if due.audit {
            let removed = worker.write(OPERATION, remove_audit).await? as u64;
            done.audit += removed;
            done.more |= removed >= ROWS_A_TRANSACTION as u64;
        }
        let begun = Instant::now();
        let mut kept_by_keys = due.kept_by_keys;
        while kept_by_keys {
            let copies = worker.write(OPERATION, move |tx| {
                refuse_set_back(tx, OPERATION)?;
                evacuate(tx, OPERATION, by)
            });
            match copies.await? {
                None => kept_by_keys = false,
                Some(copied) => done.evacuated += copied,
            }
            if begun.elapsed() >= STEP {
                done.more = true;
                return Ok(done);
            }
        }
        if !(due.events || due.kept_by_keys) {
            return Ok(done);
        }
        loop {
            let gone = worker.write(OPERATION, remove_events).await?;
            done.events += gone as u64;
            // The next step finds rows that were not looked at, or are not past their time yet.
            if gone == 0 {
                return Ok(done);
            }
            if begun.elapsed() >= STEP {
                done.more = true;
                return Ok(done);
            }
        }
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        self.housekeeper(OPERATION)
            .await?
            .read(OPERATION, |tx| {
                retained(tx, OPERATION, clock(tx, OPERATION)?)
            })
            .await
    }
}

/// Whether there is something to do, by a look that takes no lock.
struct Due {
    events: bool,
    /// Something that is past its time lies behind a block marker and before all cursors.
    kept_by_keys: bool,
    parked: bool,
    audit: bool,
}

impl Due {
    fn look(tx: &Transaction<'_>) -> Result<Self, StoreError> {
        let now = clock(tx, OPERATION)?;
        let before = now.saturating_sub(micros(settings::retention(tx, OPERATION)?));
        let floor = floor(tx, OPERATION)?;
        let oldest = |behind: i64| {
            let (sql, of) = (
                include_str!("sql/retention_oldest.sql"),
                named_params! { ":behind": behind },
            );
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            at_most_one(tx, OPERATION, sql, of, read)
        };
        let goes = |row: Option<(i64, i64)>, up_to: Option<i64>| {
            row.is_some_and(|(seq, at)| up_to.is_some_and(|up_to| seq <= up_to) && at <= before)
        };
        Ok(Self {
            events: goes(oldest(0)?, floor),
            kept_by_keys: goes(oldest(floor.unwrap_or(0))?, passed(tx)?),
            parked: !parked_due(tx, now, 1)?.is_empty(),
            audit: at_most_one(tx, OPERATION, OLDEST_LINE, &[], |row| row.get::<_, i64>(0))?
                .is_some_and(|at| at <= now.saturating_sub(micros(AUDIT_RETENTION))),
        })
    }
}

fn floor(tx: &Transaction<'_>, operation: &'static str) -> Result<Option<i64>, StoreError> {
    let sql = include_str!("sql/retention_floor.sql");
    one(tx, operation, sql, &[], |row| row.get(0))
}

/// How far all destinations have come.
fn passed(tx: &Transaction<'_>) -> Result<Option<i64>, StoreError> {
    let sql = "select min(seq) from posthaste_cursors";
    one(tx, OPERATION, sql, &[], |row| row.get(0))
}

/// Deletes the oldest rows; answers how many. If the counter was set back, rows below the cursors
/// are events that no relay has read: they stay.
fn remove_events(tx: &Transaction<'_>) -> Result<usize, StoreError> {
    refuse_set_back(tx, OPERATION)?;
    let now = clock(tx, OPERATION)?;
    let window = settings::retention(tx, OPERATION)?;
    let Some(floor) = floor(tx, OPERATION)? else {
        return Ok(0);
    };
    execute(
        tx,
        OPERATION,
        include_str!("sql/retention_delete.sql"),
        named_params! {
            ":floor": floor,
            ":before_time": now.saturating_sub(micros(window)),
            ":rows": rows_max(),
            ":bytes": BYTES_A_TRANSACTION,
        },
    )
}

fn rows_max() -> i64 {
    i64::try_from(ROWS_A_TRANSACTION).unwrap_or(i64::MAX)
}

struct Parked {
    id: i64,
    state: String,
    event_id: String,
    seq: i64,
    destination: String,
}

fn parked_due(tx: &Transaction<'_>, now: i64, limit: i64) -> Result<Vec<Parked>, StoreError> {
    let read = |row: &Row<'_>| {
        Ok(Parked {
            id: row.get(0)?,
            state: row.get(1)?,
            event_id: row.get(2)?,
            seq: row.get(3)?,
            destination: row.get(4)?,
        })
    };
    let before = now.saturating_sub(micros(PARKED_RETENTION));
    let (sql, of) = (
        include_str!("sql/retention_parked_due.sql"),
        named_params! { ":before": before, ":limit": limit },
    );
    all(tx, OPERATION, sql, of, read)
}

fn remove_parked(tx: &Transaction<'_>, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
    let mut done = Housekeeping::default();
    let due = parked_due(tx, clock(tx, OPERATION)?, rows_max())?;
    for parked in &due {
        let id = named_params! { ":id": parked.id };
        let attempts = execute(
            tx,
            OPERATION,
            "delete from posthaste_attempts where parked_id = :id",
            id,
        )?;
        done.attempts += attempts as u64;
        let sql = "delete from posthaste_parked where id = :id";
        done.parked += execute(tx, OPERATION, sql, id)? as u64;
        if parked.state == "dead" {
            let about = About {
                relay: by.map(|by| by.registration),
                destination: Some(&parked.destination),
                event_id: Some(&parked.event_id),
            };
            let values: [&dyn Display; 2] = [&parked.event_id, &parked.seq];
            audit::write(tx, OPERATION, words::FORGET, about, &values)?;
        }
    }
    done.more = due.len() == ROWS_A_TRANSACTION;
    Ok(done)
}

/// Looks at the oldest lines of the audit; answers how many went.
fn remove_audit(tx: &Transaction<'_>) -> Result<usize, StoreError> {
    let before = clock(tx, OPERATION)?.saturating_sub(micros(AUDIT_RETENTION));
    execute(
        tx,
        OPERATION,
        "delete from posthaste_audit
         where id in (select id from posthaste_audit order by id limit :rows) and at <= :before",
        named_params! { ":before": before, ":rows": rows_max() },
    )
}

/// Events that are kept beyond their time, and the reasons.
pub(super) fn retained(
    tx: &Transaction<'_>,
    operation: &'static str,
    now: i64,
) -> Result<Retained, StoreError> {
    let window = settings::retention(tx, operation)?;
    let before = now.saturating_sub(micros(window));
    let floor = floor(tx, operation)?;
    let (sql, limit) = (include_str!("sql/retention_debt.sql"), DEBT_EXACT_MAX + 1);
    let of = named_params! { ":floor": floor.unwrap_or(0), ":before": before, ":limit": limit };
    let (counted, debt): (i64, i64) =
        one(tx, operation, sql, of, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let debt_exact = counted <= DEBT_EXACT_MAX || debt < counted;
    let debt = if debt_exact {
        debt
    } else {
        last_seq(tx, operation)? - floor.unwrap_or(0)
    };
    let pins = match (debt, floor) {
        (0, _) => Vec::new(),
        (_, None) => vec![Pin {
            kind: PinKind::NoDestination,
            destination: None,
            key: None,
            detail: "there is no destination: nothing has been delivered".to_owned(),
        }],
        (_, Some(_)) => {
            let of = named_params! { ":now": now, ":before": before };
            all(tx, operation, &PINS, of, |row| pin(row, now))?
        }
    };
    Ok(Retained {
        mode: RetentionMode::Delete,
        advice: None,
        configured_window: window,
        window,
        debt_events: u64::try_from(debt).map_err(|_| unexpected(operation, "a negative count"))?,
        debt_exact,
        pins,
    })
}

fn pin(row: &Row<'_>, now: i64) -> rusqlite::Result<Pin> {
    let (state, live): (String, bool) = (row.get(1)?, row.get(4)?);
    let key: Option<String> = row.get(2)?;
    let waits = until(row.get(3)?, now);
    let (kind, detail) = match (&key, state.as_str(), live) {
        (Some(_), _, _) => (
            PinKind::Key,
            format!("it waits behind a parked event, {} s", waits.as_secs()),
        ),
        (None, "paused", _) => (PinKind::Destination, "it is paused".to_owned()),
        (None, _, false) => (PinKind::Destination, "no relay delivers to it".to_owned()),
        (None, _, true) => (
            PinKind::Destination,
            "it has not passed them yet".to_owned(),
        ),
    };
    Ok(Pin {
        kind,
        destination: row.get(0)?,
        key,
        detail,
    })
}
