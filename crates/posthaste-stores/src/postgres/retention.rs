//! Housekeeping: which leaves of the ring may be emptied, and what else has served its time.
//!
//! A row may go when no cursor and no block marker needs it. That is one comparison: no row that a
//! stored place has not passed lies at or below its `floor_min`, rows of open transactions included
//! (`sweep.rs`). A leaf is emptied as a whole when its greatest `seq` lies there and is past the
//! window. It is looked at without any lock first; what then decides is read anew under the locks.

pub(super) mod emptied;
pub(super) mod script;
pub(super) mod survey;
#[cfg(test)]
mod traces;

use std::sync::{LazyLock, atomic::Ordering::Relaxed};

use async_trait::async_trait;
use posthaste_engine::{
    Housekeeping, Pin, PinKind, Registered, Retained, Retention, RetentionMode, StoreError,
    with_audit_words,
};
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use self::{
    emptied::Emptied,
    script::{PAST_WINDOW, StepOutcome, bug, count, run, uuid_literal},
    survey::{Due, Leaf, Survey},
};
use super::{
    PostgresStore, check,
    client::Client,
    error::classify,
    evacuate::chunk as evacuate_chunk,
    locks::with_retention_lock,
    micros::{from_micros, micros, unsigned},
    ordering::with_order,
    schema::leaves,
};

pub(super) const OPERATION: &str = "housekeeping";
const FLOOR: &str = include_str!("sql/retention_floor.sql");
const PARKED_DUE: &str = include_str!("sql/retention_parked_due.sql");
const TRUNCATE: &str = include_str!("sql/retention_truncate.sql");
const DELETE: &str = include_str!("sql/retention_delete.sql");
const WINDOW: &str = include_str!("sql/retention_window.sql");
const DEBT: &str = include_str!("sql/retention_debt.sql");
const AUDIT: &str = include_str!("sql/retention_audit.sql");
const PINS: &str = include_str!("sql/retention_pins.sql");

static PARKED: LazyLock<String> = LazyLock::new(|| {
    let sql = include_str!("sql/retention_parked.sql");
    with_audit_words(sql).replace("{parked_due}", PARKED_DUE)
});

/// Emptying a leaf takes a tenth of a second at the most; a step is to take less than one.
const LEAVES_A_STEP: u32 = 4;
/// Chunks of an evacuation.
const CHUNKS_A_STEP: u32 = 16;
/// Rows of one delete: some 20 ms, and a few hundred KiB of write-ahead log.
pub(super) const ROWS_A_DELETE: u64 = 2_000;
/// Where leaves go as a whole, deletes are for what is left over.
const DELETES_A_STEP: u32 = 4;
/// Where all goes in deletes they have to keep up with writers.
const DELETES_ALONE_A_STEP: u32 = 20;
/// Events set aside that one step removes.
pub(super) const PARKED_A_STEP: u64 = 500;
/// Lines of the audit that one step looks at, and removes at the most.
pub(super) const AUDIT_A_STEP: u64 = 1_000;
/// Counting stops here; beyond it an upper bound is told.
const DEBT_EXACT_MAX: i64 = 100_000;

/// A leaf that was emptied.
pub(super) struct Truncated {
    pub(super) least: i64,
    pub(super) greatest: i64,
    pub(super) bytes: u64,
}

/// The statements of a step of housekeeping. Each change decides anew, under its locks.
#[async_trait]
pub(super) trait HousekeepingStatements: Sync {
    /// Looks what is due, without any lock.
    async fn survey(&self) -> Result<Survey, StoreError>;

    /// Sets followers of blocked keys aside, one chunk of them; answers how many.
    async fn evacuate(&self) -> Result<StepOutcome<u64>, StoreError>;

    async fn truncate(&self, leaf: &Leaf) -> Result<StepOutcome<Truncated>, StoreError>;

    /// Deletes at most [`ROWS_A_DELETE`] rows of a leaf; answers how many.
    async fn delete(&self, leaf: &Leaf) -> Result<StepOutcome<u64>, StoreError>;

    /// Removes at most [`PARKED_A_STEP`] events that had been set aside; answers how many, and how
    /// many records of attempts.
    async fn remove_parked(&self) -> Result<(u64, u64), StoreError>;

    /// Removes what is past its time of the oldest [`AUDIT_A_STEP`] lines of the audit; answers how
    /// many.
    async fn remove_audit(&self) -> Result<u64, StoreError>;
}

/// Keeps house on a connection, for this relay.
struct Housekeeper<'a> {
    client: &'a Client,
    emptied: &'a Emptied,
    by: Option<Registered>,
}

#[async_trait]
impl Retention for PostgresStore {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let client = self.housekeeping.client().await?;
        let turn = self.turn.fetch_add(1, Relaxed);
        let keeper = Housekeeper {
            client: &client,
            emptied: &self.emptied,
            by,
        };
        let done = step(&keeper, turn).await;
        if done.is_err() {
            // A script that failed leaves the session in a failed transaction.
            // A connection that cannot even roll back has told its error already.
            drop(client.rollback().await);
        }
        done
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        retained(&*self.housekeeping.client().await?, &self.emptied).await
    }
}

/// Begins with another leaf each turn, so that one that somebody reads for long keeps no other from
/// going.
pub(super) async fn step(
    statements: &dyn HousekeepingStatements,
    turn: usize,
) -> Result<Housekeeping, StoreError> {
    let mut done = Housekeeping::default();
    let mut survey = statements.survey().await?;
    if survey.keys_pin() {
        evacuate(statements, &mut done).await?;
        survey = statements.survey().await?;
    }
    let leaves = survey.leaves.len().max(1);
    survey.leaves.rotate_left(turn % leaves);
    let deletes_max = match survey.mode {
        RetentionMode::Truncate => DELETES_A_STEP,
        RetentionMode::Delete => DELETES_ALONE_A_STEP,
    };
    let (mut locks, mut deletes) = (0, 0);
    for leaf in &survey.leaves {
        match survey.due(leaf) {
            None => {}
            Some(Due::Truncate) if locks < LEAVES_A_STEP => {
                locks += 1;
                truncate(statements, &survey, leaf, &mut done).await?;
            }
            Some(Due::Delete) if deletes < deletes_max => {
                deletes += delete(statements, leaf, deletes_max - deletes, &mut done).await?;
            }
            Some(_) => done.more = true,
        }
    }
    // Waiting for a lock keeps polls and writers waiting: not again at once.
    done.more &= done.in_the_way.is_none();
    if survey.parked_due {
        (done.parked, done.attempts) = statements.remove_parked().await?;
        done.more |= done.parked >= PARKED_A_STEP;
    }
    if survey.audit_due {
        done.audit = statements.remove_audit().await?;
        done.more |= done.audit >= AUDIT_A_STEP;
    }
    Ok(done)
}

/// Copies what is past its time and kept by block markers alone, as far as one step goes.
async fn evacuate(
    statements: &dyn HousekeepingStatements,
    done: &mut Housekeeping,
) -> Result<(), StoreError> {
    for _ in 0..CHUNKS_A_STEP {
        match statements.evacuate().await? {
            StepOutcome::Done(copied) => done.evacuated += copied,
            StepOutcome::NothingDue => return Ok(()),
            StepOutcome::InTheWay(what) => {
                done.in_the_way = Some(what);
                return Ok(());
            }
        }
    }
    done.more = true;
    Ok(())
}

async fn truncate(
    statements: &dyn HousekeepingStatements,
    survey: &Survey,
    leaf: &Leaf,
    done: &mut Housekeeping,
) -> Result<(), StoreError> {
    match statements.truncate(leaf).await? {
        StepOutcome::InTheWay(what) => done.in_the_way = Some(what),
        StepOutcome::NothingDue => {}
        StepOutcome::Done(truncated) => {
            done.leaves += 1;
            done.events += survey.rows_at_most(truncated.least, truncated.greatest);
            done.bytes += truncated.bytes;
        }
    }
    Ok(())
}

/// Deletes from one leaf in small chunks; answers how many statements that took.
async fn delete(
    statements: &dyn HousekeepingStatements,
    leaf: &Leaf,
    statements_max: u32,
    done: &mut Housekeeping,
) -> Result<u32, StoreError> {
    for statement in 1..=statements_max {
        let gone = match statements.delete(leaf).await? {
            StepOutcome::Done(gone) => gone,
            StepOutcome::NothingDue => 0,
            StepOutcome::InTheWay(what) => {
                done.in_the_way = Some(what);
                return Ok(statement);
            }
        };
        done.events += gone;
        if gone < ROWS_A_DELETE {
            return Ok(statement);
        }
    }
    done.more = true;
    Ok(statements_max)
}

fn name_of(leaf: &Leaf) -> Result<String, StoreError> {
    leaves()
        .nth(leaf.number)
        .ok_or_else(|| bug("a leaf beyond the ring"))
}

fn truncate_script(leaf: &str, by: Option<Registered>) -> String {
    with_audit_words(&with_retention_lock(TRUNCATE))
        .replace("{past_window}", PAST_WINDOW)
        .replace("{floor}", FLOOR)
        .replace("{relay}", &uuid_literal(by))
        .replace("{leaf}", leaf)
}

#[async_trait]
impl HousekeepingStatements for Housekeeper<'_> {
    async fn survey(&self) -> Result<Survey, StoreError> {
        Survey::make(self.client, self.emptied).await
    }

    async fn evacuate(&self) -> Result<StepOutcome<u64>, StoreError> {
        evacuate_chunk(self.client, self.by).await
    }

    async fn truncate(&self, leaf: &Leaf) -> Result<StepOutcome<Truncated>, StoreError> {
        let name = name_of(leaf)?;
        let script = truncate_script(&name, self.by);
        let went = run(self.client, &name, &script).await?;
        went.read(|told| {
            let numbers: Vec<i64> = told.split(' ').filter_map(|n| n.parse().ok()).collect();
            let [least, greatest, bytes] = numbers[..] else {
                return Err(bug("the block tells something else"));
            };
            Ok(Truncated {
                least,
                greatest,
                bytes: unsigned(bytes),
            })
        })
    }

    async fn delete(&self, leaf: &Leaf) -> Result<StepOutcome<u64>, StoreError> {
        let name = name_of(leaf)?;
        let script = with_retention_lock(DELETE)
            .replace("{past_window}", PAST_WINDOW)
            .replace("{floor}", FLOOR)
            .replace("{rows}", &ROWS_A_DELETE.to_string())
            .replace("{behind}", &self.emptied.of(leaf.number).to_string())
            .replace("{leaf}", &name);
        let went = run(self.client, &name, &script).await?;
        went.read(|told| {
            let (gone, reached) = told
                .split_once(' ')
                .ok_or_else(|| bug("the block tells less"))?;
            let reached = reached
                .parse()
                .map_err(|_| bug("the block reached nothing"))?;
            self.emptied.up_to(leaf.number, reached);
            count(gone)
        })
    }

    async fn remove_parked(&self) -> Result<(u64, u64), StoreError> {
        let relay: Option<Uuid> = self.by.map(|by| by.registration);
        let limit = i64::try_from(PARKED_A_STEP).unwrap_or(i64::MAX);
        let row = self
            .client
            .query_typed_one(
                PARKED.as_str(),
                &[(&relay, Type::UUID), (&limit, Type::INT8)],
            )
            .await
            .map_err(|error| classify(OPERATION, error))?;
        Ok((unsigned(row.get("parked")), unsigned(row.get("attempts"))))
    }

    async fn remove_audit(&self) -> Result<u64, StoreError> {
        let limit = i64::try_from(AUDIT_A_STEP).unwrap_or(i64::MAX);
        self.client
            .execute_typed(AUDIT, &[(&limit, Type::INT8)])
            .await
            .map_err(|error| classify(OPERATION, error))
    }
}

/// Events that are kept beyond their time, and the reasons.
pub(super) async fn retained(client: &Client, emptied: &Emptied) -> Result<Retained, StoreError> {
    let failed = |error| classify(OPERATION, error);
    let survey = Survey::make(client, emptied).await?;
    let mut window = survey.window;
    if survey.ring_edge() > 0 {
        let oldest = client
            .query_typed_opt(WINDOW, &[(&survey.ring_edge(), Type::INT8)])
            .await
            .map_err(failed)?;
        let reaches_back = oldest.map(|row| from_micros(row.get("age")));
        window = window.min(reaches_back.unwrap_or(window));
    }
    let floor = survey.floor.unwrap_or(0);
    let row = client
        .query_typed_one(
            DEBT,
            &[
                (&floor, Type::INT8),
                (&micros(window), Type::INT8),
                (&(DEBT_EXACT_MAX + 1), Type::INT8),
            ],
        )
        .await
        .map_err(failed)?;
    let (counted, debt): (i64, i64) = (row.get("counted"), row.get("debt"));
    let debt_exact = counted <= DEBT_EXACT_MAX || debt < counted;
    let mut pins = Vec::new();
    if survey.floor.is_none() && debt > 0 {
        pins.push(Pin {
            kind: PinKind::NoDestination,
            destination: None,
            key: None,
            detail: "there is no destination: nothing has been delivered".to_owned(),
        });
    } else if debt > 0 {
        let rows = client
            .query_typed(&with_order(PINS), &[(&micros(window), Type::INT8)])
            .await
            .map_err(failed)?;
        pins.extend(rows.iter().map(pin));
    }
    Ok(Retained {
        mode: survey.mode,
        advice: check::advice(client).await?,
        configured_window: survey.window,
        window,
        debt_events: if debt_exact {
            unsigned(debt)
        } else {
            survey.debt_at_most(floor, window)
        },
        debt_exact,
        pins,
    })
}

fn pin(row: &Row) -> Pin {
    let key: Option<String> = row.get("key");
    let open: Option<String> = row.get("open");
    let since = from_micros(row.get("since"));
    let (kind, detail) = match (&key, &open) {
        (Some(_), _) => (
            PinKind::Key,
            format!("it waits behind a parked event, {} s", since.as_secs()),
        ),
        (None, Some(xid)) => (PinKind::Transaction, transaction(xid, row)),
        (None, None) => {
            let state: &str = row.get("state");
            let detail = match (state, row.get("live")) {
                ("paused", _) => "it is paused",
                (_, false) => "no relay delivers to it",
                _ => "it has not passed them yet",
            };
            (PinKind::Destination, detail.to_owned())
        }
    };
    Pin {
        kind,
        destination: row.get("name"),
        key,
        detail,
    }
}

/// Describes an open transaction, as far as this role may see.
fn transaction(xid: &str, row: &Row) -> String {
    if let Some(gid) = row.get::<_, Option<&str>>("prepared") {
        return format!(
            "transaction {xid} is prepared (`{gid}`) and neither committed nor rolled back"
        );
    }
    let pid: Option<i32> = row.get("pid");
    let open_for: Option<i64> = row.get("open_for");
    match (pid, open_for) {
        (Some(pid), Some(open_for)) => format!(
            "transaction {xid} is open for {} s (process {pid}, application `{}`)",
            from_micros(open_for).as_secs(),
            row.get::<_, Option<&str>>("application_name")
                .unwrap_or_default()
        ),
        _ => format!("transaction {xid} is open"),
    }
}
