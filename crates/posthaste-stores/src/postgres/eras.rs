//! Eras: how the outbox of a copied database goes on where the copy was made.
//!
//! A dump that was restored, a template's copy and what `pg_upgrade` made carry rows and cursors
//! along, but not the counter of transactions that both speak of. So a cursor cannot go on as it
//! is: a snapshot of the original says nothing about transactions of this server, nor one of this
//! server about the original's.
//!
//! A new era begins behind the last `seq` that was given. Everything up to it is final: for a
//! moment the outbox is locked, so that no writer is under way, and later writers draw a
//! greater `seq`. Each place is moved by arithmetic of the ending era alone, to the last `seq`
//! below which nothing is unfinished: all rows behind that are sent, whatever transaction they
//! name, and then those of the new era. No row is rewritten. Rows behind the first unfinished one
//! that were delivered before are sent again; they are counted first.
//!
//! Nothing here is needed after a crash, a promotion or a recovery to an earlier point: these are
//! the same database, and its incarnation tells.

use std::{collections::BTreeMap, time::Duration};

use posthaste_engine::{StoreError, audit, with_audit_words};
use tokio_postgres::{Client as Driver, error::SqlState, types::Type};

use crate::init::{EraDestination, NewEra};

use super::{
    check, client::Client, config::PostgresConfig, connection::Connector, error::classify,
    foreign::refuse_foreign, locks::MIGRATIONS, micros::unsigned, ordering::with_order,
    session_settings::Work,
};

const OPERATION: &str = "begin a new era";
const NUMBERS: &str = include_str!("sql/era_numbers.sql");
const KNOWN: &str = include_str!("sql/era_known.sql");
const PASSED: &str = include_str!("sql/era_passed.sql");
const CURSORS: &str = include_str!("sql/era_cursors.sql");
const MARKERS: &str = include_str!("sql/era_markers.sql");
const BEGIN: &str = include_str!("sql/era_begin.sql");
const SYSTEM_IDENTIFIER: &str = "select system_identifier from pg_catalog.pg_control_system()";
const MAY_ASK_SYSTEM: &str =
    "select pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute')";
const FORWARD: &str = "select pg_catalog.setval('posthaste.outbox_seq_seq', $1::bigint)";
/// The survey reads much at once, once: the plans of a relay's small reads are not for it.
const PLANS: &str =
    "set local enable_seqscan = on; set local enable_bitmapscan = on; set local enable_sort = on";
/// Writers wait behind a session that waits for the lock.
const LOCK: &str = "savepoint before_the_lock; set local lock_timeout = '50ms';
                    lock table only posthaste.outbox in share mode";
/// Gives the lock back.
const UNLOCK: &str = "rollback to before_the_lock";
const LOCK_AGAIN_AFTER: Duration = Duration::from_millis(200);
const LOCK_TRIES: u32 = 240;

/// Counting stops here; beyond it an upper bound is told.
const ROWS_COUNTED: i64 = 1_000_000;

/// Places, and where they go on.
#[derive(Debug, Default)]
struct Places {
    cursors: (Vec<i64>, Vec<i64>),
    markers: (Vec<i64>, Vec<String>, Vec<i64>),
}

/// The effects that a new era would have here; none: the database is no copy. Changes nothing.
///
/// # Errors
/// [`StoreError::Schema`] when the schema is older than this build.
pub async fn plan_new_era(url: &str) -> Result<Option<NewEra>, StoreError> {
    let connector = Connector::new(PostgresConfig::parse(url)?)?;
    let mut client = connector.connect(Work::Migrate).await?;
    let looking = client.transaction().await.map_err(failed)?;
    refuse_foreign(looking.client()).await?;
    drop(looking);
    check::version(&client).await?;
    check::completeness(&client).await?;
    if !check::is_copy(&client).await? {
        return Ok(None);
    }
    let transaction = client.transaction().await.map_err(failed)?;
    let survey = survey(transaction.client()).await?;
    Ok(Some(survey.era))
}

/// Begins a new era; none: the database is no copy, and nothing was changed.
pub(super) async fn begin(client: &mut Client) -> Result<Option<NewEra>, StoreError> {
    check::completeness(client).await?;
    let transaction = client.transaction().await.map_err(failed)?;
    transaction
        .batch_execute(MIGRATIONS)
        .await
        .map_err(failed)?;
    let driver = transaction.client();
    if !check::is_copy_within(driver).await? {
        return Ok(None);
    }
    // A relay that was not stopped ends here, and moves no place meanwhile. In the order in which a
    // claim locks.
    driver
        .batch_execute(
            "lock table posthaste.destination_locks, posthaste.cursors, posthaste.markers \
             in exclusive mode",
        )
        .await
        .map_err(failed)?;
    let mut survey = survey(driver).await?;
    let last_seq = last_seq(driver, &survey).await?;
    survey.era.last_seq = unsigned(last_seq);
    store(driver, last_seq, &survey).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(Some(survey.era))
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    classify(OPERATION, error)
}

/// The last `seq` of the ending era, learnt while no transaction is open that has written an event.
/// The sequence stands there at least, when writers go on.
async fn last_seq(driver: &Driver, survey: &Survey) -> Result<i64, StoreError> {
    lock_writers_out(driver).await?;
    let (given, written) = numbers(driver).await?;
    let last_seq = given.max(written).max(survey.known);
    if given < last_seq {
        driver
            .query_typed(FORWARD, &[(&last_seq, Type::INT8)])
            .await
            .map_err(failed)?;
    }
    driver.batch_execute(UNLOCK).await.map_err(failed)?;
    // Of what was given since, the survey could not tell that it was given twice.
    if survey.given < survey.known && survey.given < given && !survey.era.seq_given_twice {
        return Err(unavailable(
            "events were written meanwhile with numbers that the original has given: run it again",
        ));
    }
    Ok(last_seq)
}

/// Waits until no transaction is open that has written an event, in tries that hold writers up for
/// a moment each.
async fn lock_writers_out(driver: &Driver) -> Result<(), StoreError> {
    for _ in 0..LOCK_TRIES {
        match driver.batch_execute(LOCK).await {
            Ok(()) => return Ok(()),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                driver.batch_execute(UNLOCK).await.map_err(failed)?;
                tokio::time::sleep(LOCK_AGAIN_AFTER).await;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Err(unavailable(
        "transactions that have written events are open all the time: end them (pg_locks, relation \
         posthaste.outbox, tells whose they are; pg_prepared_xacts holds prepared ones), then run \
         it again",
    ))
}

fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable {
        operation: OPERATION,
        reason: reason.to_owned(),
        source: None,
    }
}

/// The last number that the sequence has given, and the greatest `seq` of a row.
async fn numbers(driver: &Driver) -> Result<(i64, i64), StoreError> {
    let row = driver.query_typed_one(NUMBERS, &[]).await.map_err(failed)?;
    Ok((row.get("given"), row.get("written")))
}

/// Everything that is found out before anybody is held up.
struct Survey {
    era: NewEra,
    places: Places,
    /// The last number that the sequence had given.
    given: i64,
    /// The greatest `seq` that anything knows of.
    known: i64,
}

/// Where each place goes on, and what that means.
async fn survey(driver: &Driver) -> Result<Survey, StoreError> {
    driver.batch_execute(PLANS).await.map_err(failed)?;
    let (given, written) = numbers(driver).await?;
    let row = driver.query_typed_one(KNOWN, &[]).await.map_err(failed)?;
    let known = written.max(row.get("known"));
    // A sequence that did not come along and was not used yet is only set forward.
    let seq_given_twice = row.get("twice") || (0 < given && given < known);
    let twice = (&seq_given_twice as _, Type::BOOL);
    let last_seq = given.max(known);
    let with_passed = |sql: &str| sql.replace("{passed}", PASSED);
    let cursors = driver
        .query_typed(
            &with_passed(CURSORS),
            &[twice.clone(), (&ROWS_COUNTED, Type::INT8)],
        )
        .await
        .map_err(failed)?;
    let markers = driver
        .query_typed(&with_order(&with_passed(MARKERS)), &[twice])
        .await
        .map_err(failed)?;
    let mut places = Places::default();
    let mut destinations: BTreeMap<i64, EraDestination> = BTreeMap::new();
    for row in &cursors {
        let start: i64 = row.get("start");
        places.cursors.0.push(row.get("id"));
        places.cursors.1.push(start);
        let entry = destinations.entry(row.get("destination_id"));
        let destination = entry.or_insert_with(|| EraDestination {
            name: row.get("name"),
            pending: 0,
            again_max: 0,
            counted: true,
            blocked_keys: 0,
        });
        if row.get::<_, i64>("looked") < ROWS_COUNTED {
            destination.pending += unsigned(row.get("unfinished"));
            destination.again_max += unsigned(row.get("passed"));
        } else {
            destination.pending += unsigned(last_seq - start);
            destination.again_max += unsigned(last_seq - start);
            destination.counted = false;
        }
    }
    for row in &markers {
        let destination_id = row.get("destination_id");
        places.markers.0.push(destination_id);
        places.markers.1.push(row.get("key"));
        places.markers.2.push(row.get("start"));
        if let Some(destination) = destinations.get_mut(&destination_id) {
            destination.blocked_keys += 1;
            destination.pending += unsigned(row.get("waiting"));
            destination.again_max += unsigned(row.get("passed"));
        }
    }
    let mut destinations: Vec<_> = destinations.into_values().collect();
    destinations.sort_by(|a, b| a.name.cmp(&b.name));
    let era = NewEra {
        last_seq: unsigned(last_seq),
        seq_given_twice,
        destinations,
    };
    Ok(Survey {
        era,
        places,
        given,
        known,
    })
}

async fn store(driver: &Driver, last_seq: i64, survey: &Survey) -> Result<(), StoreError> {
    let Survey { era, places, .. } = survey;
    let may_ask = driver.query_typed_one(MAY_ASK_SYSTEM, &[]).await;
    let system: Option<i64> = match may_ask.map_err(failed)?.get(0) {
        true => {
            let row = driver.query_typed_one(SYSTEM_IDENTIFIER, &[]).await;
            Some(row.map_err(failed)?.get(0))
        }
        false => None,
    };
    let names: Vec<&str> = era.destinations.iter().map(|d| d.name.as_str()).collect();
    let details: Vec<String> = era
        .destinations
        .iter()
        .map(EraDestination::detail)
        .collect();
    let (cursors, markers) = (&places.cursors, &places.markers);
    driver
        .execute_typed(
            &with_audit_words(BEGIN),
            &[
                (&last_seq, Type::INT8),
                (&system, Type::INT8),
                (&cursors.0, Type::INT8_ARRAY),
                (&cursors.1, Type::INT8_ARRAY),
                (&markers.0, Type::INT8_ARRAY),
                (&markers.1, Type::TEXT_ARRAY),
                (&markers.2, Type::INT8_ARRAY),
                (&names, Type::TEXT_ARRAY),
                (&details, Type::TEXT_ARRAY),
            ],
        )
        .await
        .map(drop)
        .map_err(failed)
}

impl EraDestination {
    fn detail(&self) -> String {
        let bound = if self.counted { "" } else { "at most " };
        let counts = [self.pending, self.again_max, self.blocked_keys];
        let [pending, again_max, blocked_keys] = counts;
        audit::NEW_ERA_DESTINATION.detail(&[&bound, &pending, &again_max, &blocked_keys])
    }
}
