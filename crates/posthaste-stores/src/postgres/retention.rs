//! Housekeeping: which leaves of the ring may be emptied, and what else has served its time.
//!
//! A row may go when no cursor and no block marker needs it. That is one comparison: no row that a stored
//! place has not passed lies at or below its `floor_min`, rows of open transactions included (`sweep.rs`).
//! A leaf is emptied as a whole when its greatest `seq` lies there and is past the window. It is looked at
//! without any lock first; what then decides is read anew under the locks.

mod survey;
#[cfg(test)]
mod traces;

use std::sync::{LazyLock, atomic::Ordering::Relaxed};

use async_trait::async_trait;
use posthaste_engine::{Housekeeping, Pin, PinKind, Registered, Retained, Retention, StoreError};
use tokio_postgres::{Row, SimpleQueryMessage, types::Type};
use uuid::Uuid;

use self::survey::{Due, Leaf, Survey};
use super::{
    PostgresStore,
    admin::unsigned,
    client::Client,
    error::classify,
    evacuate::evacuate,
    migrate::leaves,
    ownership::{from_micros, micros},
};

const OPERATION: &str = "housekeeping";
const FLOOR: &str = include_str!("sql/retention_floor.sql");
pub(super) const PAST_WINDOW: &str = include_str!("sql/retention_past_window.sql");
const PARKED_DUE: &str = include_str!("sql/retention_parked_due.sql");
const TRUNCATE: &str = include_str!("sql/retention_truncate.sql");
const DELETE: &str = include_str!("sql/retention_delete.sql");
const WINDOW: &str = include_str!("sql/retention_window.sql");
const DEBT: &str = include_str!("sql/retention_debt.sql");
const PINS: &str = include_str!("sql/retention_pins.sql");

static PARKED: LazyLock<String> =
    LazyLock::new(|| include_str!("sql/retention_parked.sql").replace("{parked_due}", PARKED_DUE));

/// Emptying a leaf takes a tenth of a second at the most; a step is to take less than one.
const LEAVES_A_STEP: u32 = 4;
/// Rows of one delete: some 20 ms, and a few hundred KiB of write-ahead log.
const ROWS_A_DELETE: u64 = 2_000;
const DELETES_A_STEP: u32 = 4;
/// Events set aside that one step removes.
const PARKED_A_STEP: i64 = 500;
/// Counting stops here; beyond it an upper bound is told.
const DEBT_EXACT_MAX: i64 = 100_000;

/// How an attempt at a leaf ended.
pub(super) enum Went {
    /// What the block told.
    Told(String),
    InTheWay(String),
}

pub(super) fn bug(reason: &str) -> StoreError {
    StoreError::Bug {
        operation: OPERATION,
        reason: reason.to_owned(),
    }
}

#[async_trait]
impl Retention for PostgresStore {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let client = self.housekeeping.client().await?;
        let turn = self.turn.fetch_add(1, Relaxed);
        let done = step(&client, by, turn).await;
        if done.is_err() {
            // A script that failed, or whose caller went away, leaves the session in a failed transaction.
            // What is wrong with a connection that cannot even do this was told already.
            drop(client.batch_execute("rollback").await);
        }
        done
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        retained(&*self.housekeeping.client().await?).await
    }
}

/// Begins with another leaf each turn, so that one that somebody reads for long keeps no other from going.
async fn step(
    client: &Client,
    by: Option<Registered>,
    turn: usize,
) -> Result<Housekeeping, StoreError> {
    let mut done = Housekeeping::default();
    let mut survey = Survey::make(client).await?;
    if survey.keys_pin() {
        evacuate(client, by, &mut done).await?;
        survey = Survey::make(client).await?;
    }
    let leaves = survey.leaves.len().max(1);
    survey.leaves.rotate_left(turn % leaves);
    let (mut locks, mut deletes) = (0, 0);
    for leaf in &survey.leaves {
        match survey.due(leaf) {
            None => {}
            Some(Due::Truncate) if locks < LEAVES_A_STEP => {
                locks += 1;
                truncate(client, &survey, leaf, by, &mut done).await?;
            }
            Some(Due::Delete) if deletes < DELETES_A_STEP => {
                deletes += delete(client, leaf, DELETES_A_STEP - deletes, &mut done).await?;
            }
            Some(_) => done.more = true,
        }
    }
    // Waiting for a lock keeps polls and writers waiting: not again at once.
    done.more &= done.in_the_way.is_none();
    if survey.parked_due {
        remove_parked(client, by, &mut done).await?;
    }
    Ok(done)
}

/// Runs a script that ends by telling what went.
pub(super) async fn run(client: &Client, leaf: &str, script: &str) -> Result<Went, StoreError> {
    let messages = client
        .simple_query(script)
        .await
        .map_err(|error| classify(OPERATION, error))?;
    let told = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get("went"),
        _ => None,
    });
    match told {
        None => Err(bug("the block tells nothing")),
        Some("another") => Ok(Went::InTheWay(
            "another relay keeps house, or a destination is being created".to_owned(),
        )),
        Some("in use") => Ok(Went::InTheWay(format!("posthaste.{leaf} is in use"))),
        Some(told) => Ok(Went::Told(told.to_owned())),
    }
}

/// Whoever does it, for the record.
pub(super) fn uuid_literal(by: Option<Registered>) -> String {
    by.map_or_else(
        || "null".to_owned(),
        |by| format!("'{}'::uuid", by.registration),
    )
}

fn name_of(leaf: &Leaf) -> Result<String, StoreError> {
    leaves()
        .nth(leaf.number)
        .ok_or_else(|| bug("a leaf beyond the ring"))
}

async fn truncate(
    client: &Client,
    survey: &Survey,
    leaf: &Leaf,
    by: Option<Registered>,
    done: &mut Housekeeping,
) -> Result<(), StoreError> {
    let name = name_of(leaf)?;
    let script = TRUNCATE
        .replace("{past_window}", PAST_WINDOW)
        .replace("{floor}", FLOOR)
        .replace("{relay}", &uuid_literal(by))
        .replace("{leaf}", &name);
    match run(client, &name, &script).await? {
        Went::InTheWay(what) => done.in_the_way = Some(what),
        Went::Told(told) if told == "kept" => {}
        Went::Told(told) => {
            let numbers: Vec<i64> = told.split(' ').filter_map(|n| n.parse().ok()).collect();
            let [least, greatest, bytes] = numbers[..] else {
                return Err(bug("the block tells something else"));
            };
            done.leaves += 1;
            done.events += survey.rows_at_most(least, greatest);
            done.bytes += unsigned(bytes);
        }
    }
    Ok(())
}

/// Deletes from one leaf in small chunks; answers how many statements that took.
async fn delete(
    client: &Client,
    leaf: &Leaf,
    statements_max: u32,
    done: &mut Housekeeping,
) -> Result<u32, StoreError> {
    let name = name_of(leaf)?;
    let script = DELETE
        .replace("{past_window}", PAST_WINDOW)
        .replace("{floor}", FLOOR)
        .replace("{rows}", &ROWS_A_DELETE.to_string())
        .replace("{leaf}", &name);
    for statement in 1..=statements_max {
        let told = match run(client, &name, &script).await? {
            Went::InTheWay(what) => {
                done.in_the_way = Some(what);
                return Ok(statement);
            }
            Went::Told(told) => told,
        };
        let gone: u64 = told.parse().map_err(|_| bug("the block counts nothing"))?;
        done.events += gone;
        if gone < ROWS_A_DELETE {
            return Ok(statement);
        }
    }
    done.more = true;
    Ok(statements_max)
}

async fn remove_parked(
    client: &Client,
    by: Option<Registered>,
    done: &mut Housekeeping,
) -> Result<(), StoreError> {
    let relay: Option<Uuid> = by.map(|by| by.registration);
    let row = client
        .query_typed_one(
            PARKED.as_str(),
            &[(&relay, Type::UUID), (&PARKED_A_STEP, Type::INT8)],
        )
        .await
        .map_err(|error| classify(OPERATION, error))?;
    let parked: i64 = row.get("parked");
    done.parked = unsigned(parked);
    done.attempts = unsigned(row.get("attempts"));
    done.more |= parked >= PARKED_A_STEP;
    Ok(())
}

/// What is kept beyond its time, and why.
pub(super) async fn retained(client: &Client) -> Result<Retained, StoreError> {
    let failed = |error| classify(OPERATION, error);
    let survey = Survey::make(client).await?;
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
            .query_typed(PINS, &[(&micros(window), Type::INT8)])
            .await
            .map_err(failed)?;
        pins.extend(rows.iter().map(pin));
    }
    Ok(Retained {
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

/// Who holds the transaction open, as far as this role may see.
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
