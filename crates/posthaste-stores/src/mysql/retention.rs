//! Housekeeping: rows that have served their time go in small transactions.
//!
//! Events go from below every hole that is open anywhere. Up to there each number is decided, so
//! that no open transaction has such a row, or will have one: neither waits for the other.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::params;
use posthaste_engine::{
    AUDIT_RETENTION, Housekeeping, PARKED_RETENTION, Pin, PinKind, Registered, Retained, Retention,
    RetentionMode, StoreError, audit as words,
};
use tokio::time::Instant;

use super::{
    MysqlStore, audit,
    check::refuse_all_set_back,
    connection::{Fields, Work, clock, limit_of, micros, until},
    evacuate::evacuate,
    ordering::with_order,
    parking::event_id_text,
    settings,
};
use crate::about::About;

const OPERATION: &str = "housekeeping";

/// Rows that one transaction deletes: a few milliseconds.
const ROWS_A_TRANSACTION: usize = 500;
/// And bytes of payload.
const BYTES_A_TRANSACTION: u64 = 4 << 20;
/// A step begins no further transaction after this.
const STEP: Duration = Duration::from_millis(250);
/// Counting stops here; beyond it an upper bound is told.
const DEBT_EXACT_MAX: u64 = 100_000;

#[async_trait]
impl Retention for MysqlStore {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let mut done = Housekeeping::default();
        let mut work = self.housekeeper.work(OPERATION).await?;
        let due = Due::look(&mut work).await;
        let due = work.end(due).await?;
        if due.parked {
            let mut work = self.housekeeper.begin(OPERATION).await?;
            let removed = remove_parked(&mut work, by).await;
            done.add(work.end(removed).await?);
        }
        if due.audit {
            let mut work = self.housekeeper.begin(OPERATION).await?;
            let removed = remove_audit(&mut work).await;
            let removed = work.end(removed).await?;
            done.audit += removed;
            done.more |= removed >= limit_of(ROWS_A_TRANSACTION);
        }
        let begun = Instant::now();
        let mut kept_by_keys = due.kept_by_keys;
        while kept_by_keys {
            let mut work = self.housekeeper.begin(OPERATION).await?;
            let copies = set_out(&mut work, by).await;
            match work.end(copies).await? {
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
            let mut work = self.housekeeper.begin(OPERATION).await?;
            let gone = remove_events(&mut work).await;
            let gone = work.end(gone).await?;
            done.events += gone;
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
        let mut work = self.housekeeper.snapshot(OPERATION).await?;
        let retained = retained(&mut work).await;
        work.end(retained).await
    }
}

async fn set_out(work: &mut Work, by: Option<Registered>) -> Result<Option<u64>, StoreError> {
    refuse_all_set_back(work).await?;
    evacuate(work, by).await
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
    /// One statement, as long as nothing of a blocked key lies before all cursors.
    async fn look(work: &mut Work) -> Result<Self, StoreError> {
        let sql = include_str!("sql/retention_look.sql")
            .replace("{floor}", include_str!("sql/retention_floor.sql"))
            .replace("{parked_due}", include_str!("sql/retention_parked_due.sql"));
        let of = params! { "kept" => micros(PARKED_RETENTION), "limit" => 1 };
        let row = work.one(&sql, of).await?;
        let now: i64 = row.get(0)?;
        let window = row.text_opt(1)?;
        let window = settings::window(work.operation(), window.as_deref())?;
        let before = now.saturating_sub(micros(window));
        let (floor, passed): (Option<u64>, Option<u64>) = (row.get(2)?, row.get(3)?);
        let oldest: Option<u64> = row.get(4)?;
        let is_past = |at: Option<i64>, before: i64| at.is_some_and(|at| at <= before);
        let events = oldest
            .zip(floor)
            .is_some_and(|(oldest, floor)| oldest <= floor)
            && is_past(row.get(5)?, before);
        Ok(Self {
            events,
            kept_by_keys: floor < passed && goes(work, floor.unwrap_or(0), passed, before).await?,
            parked: row.flag(7)?,
            audit: is_past(row.get(6)?, now.saturating_sub(micros(AUDIT_RETENTION))),
        })
    }
}

/// Whether the first row behind `behind` is past its time and needed by nobody.
async fn goes(
    work: &mut Work,
    behind: u64,
    up_to: Option<u64>,
    before: i64,
) -> Result<bool, StoreError> {
    let of = params! { "behind" => behind };
    let row = work.at_most_one(include_str!("sql/retention_oldest.sql"), of);
    let Some(row) = row.await? else {
        return Ok(false);
    };
    let (seq, at): (u64, i64) = (row.get(0)?, row.get(1)?);
    Ok(up_to.is_some_and(|up_to| seq <= up_to) && at <= before)
}

/// At or below this nothing is needed any more; none without any cursor.
async fn floor(work: &mut Work) -> Result<Option<u64>, StoreError> {
    work.one(include_str!("sql/retention_floor.sql"), ())
        .await?
        .get(0)
}

/// Deletes the oldest rows; answers how many. If the counter was set back, rows below the cursors
/// are events that no relay has read: they stay.
async fn remove_events(work: &mut Work) -> Result<u64, StoreError> {
    // A destination that is created meanwhile waits, and then reads what is left.
    let sql = "select value from posthaste_settings where name = 'retention_seconds' for update";
    work.rows(sql, ()).await?;
    refuse_all_set_back(work).await?;
    let before = clock(work)
        .await?
        .saturating_sub(micros(settings::retention(work).await?));
    let Some(floor) = floor(work).await? else {
        return Ok(0);
    };
    let of = params! { "floor" => floor, "rows" => limit_of(ROWS_A_TRANSACTION) };
    let rows = work
        .rows(include_str!("sql/retention_rows.sql"), of)
        .await?;
    let (mut gone, mut bytes) = (Vec::new(), 0);
    for row in &rows {
        let (seq, at): (u64, i64) = (row.get(0)?, row.get(1)?);
        if at > before || bytes >= BYTES_A_TRANSACTION {
            break;
        }
        bytes += row.get::<u64>(2)?;
        gone.push(seq.to_string());
    }
    if gone.is_empty() {
        return Ok(0);
    }
    // One by one: a range would look at the row behind its end, and wait for the transaction that
    // has it open.
    let sql = format!(
        "delete from posthaste_outbox where seq in ({})",
        gone.join(",")
    );
    work.run(&sql).await?;
    Ok(limit_of(gone.len()))
}

async fn remove_parked(
    work: &mut Work,
    by: Option<Registered>,
) -> Result<Housekeeping, StoreError> {
    let mut done = Housekeeping::default();
    let of = params! {
        "kept" => micros(PARKED_RETENTION), "limit" => limit_of(ROWS_A_TRANSACTION)
    };
    let sql = include_str!("sql/retention_parked_due.sql");
    let due = work.rows(sql, of).await?;
    for row in &due {
        let id: i64 = row.get(0)?;
        let state = row.text(1)?;
        // An operator may have decided on it meanwhile.
        let sql = "delete from posthaste_parked where id = :id and state = :state";
        let of = params! { "id" => id, "state" => &state };
        if work.execute(sql, of).await? == 0 {
            continue;
        }
        done.parked += 1;
        let sql = "delete from posthaste_attempts where parked_id = :id";
        done.attempts += work.execute(sql, params! { "id" => id }).await?;
        if state == "dead" {
            let event_id = event_id_text(row.get::<Option<Vec<u8>>>(2)?.as_deref());
            let (seq, name): (i64, _) = (row.get(3)?, row.text(4)?);
            let about = About {
                relay: by.map(|by| by.registration),
                destination: Some(&name),
                event_id: Some(&event_id),
            };
            audit::write(work, words::FORGET, about, &[&event_id, &seq]).await?;
        }
    }
    done.more = due.len() == ROWS_A_TRANSACTION;
    Ok(done)
}

/// Looks at the oldest lines of the audit; answers how many went.
async fn remove_audit(work: &mut Work) -> Result<u64, StoreError> {
    let before = clock(work).await?.saturating_sub(micros(AUDIT_RETENTION));
    let of = params! { "before" => before, "rows" => limit_of(ROWS_A_TRANSACTION) };
    work.execute(include_str!("sql/retention_audit.sql"), of)
        .await
}

/// Events that are kept beyond their time, and the reasons.
pub(super) async fn retained(work: &mut Work) -> Result<Retained, StoreError> {
    let now = clock(work).await?;
    let window = settings::retention(work).await?;
    let before = now.saturating_sub(micros(window));
    let floor = floor(work).await?;
    let of = params! {
        "floor" => floor.unwrap_or(0), "before" => before, "limit" => DEBT_EXACT_MAX + 1
    };
    let row = work.one(include_str!("sql/retention_debt.sql"), of).await?;
    let (counted, debt): (u64, u64) = (row.get(0)?, row.get::<Option<u64>>(1)?.unwrap_or(0));
    let debt_exact = counted <= DEBT_EXACT_MAX || debt < counted;
    let debt = match debt_exact {
        true => debt,
        false => {
            let sql = "select coalesce(max(seq), 0) from posthaste_outbox";
            let last: u64 = work.one(sql, ()).await?.get(0)?;
            last.saturating_sub(floor.unwrap_or(0))
        }
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
            let of = params! { "now" => now, "before" => before };
            let sql = with_order(include_str!("sql/retention_pins.sql"));
            let rows = work.rows(&sql, of);
            let rows = rows.await?;
            rows.iter()
                .map(|row| pin(row, now))
                .collect::<Result<_, _>>()?
        }
    };
    Ok(Retained {
        mode: RetentionMode::Delete,
        advice: None,
        configured_window: window,
        window,
        debt_events: debt,
        debt_exact,
        pins,
    })
}

fn pin(row: &Fields, now: i64) -> Result<Pin, StoreError> {
    let (state, key, live) = (row.text(1)?, row.text_opt(2)?, row.flag(4)?);
    let waits = until(row.get(3)?, now);
    let has_holes = row.flag(5)?;
    let (kind, detail) = match (&key, state.as_str(), live) {
        (Some(_), _, _) => (
            PinKind::Key,
            format!("it waits behind a parked event, {} s", waits.as_secs()),
        ),
        (None, "paused", _) => (PinKind::Destination, "it is paused".to_owned()),
        (None, _, false) => (
            PinKind::Destination,
            "no relay delivers to it".to_owned(),
        ),
        (None, _, true) if has_holes => (
            PinKind::Transaction,
            "a transaction is open that may still commit events among them, or it cannot be proven \
             that there is none"
                .to_owned(),
        ),
        (None, _, true) => (
            PinKind::Destination,
            "it has not passed them yet".to_owned(),
        ),
    };
    Ok(Pin {
        kind,
        destination: Some(row.text(0)?),
        key,
        detail,
    })
}
