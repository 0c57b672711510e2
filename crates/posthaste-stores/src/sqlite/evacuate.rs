//! Evacuation: followers of a key that has been blocked for long get out of retention's way.
//!
//! A block marker keeps all rows behind it. Where nothing but markers keeps them, the rows of their
//! keys are copied to where events wait that were set aside, and the markers move up behind them.
//! The copies wait for their turn behind what blocks the key (`sql/due.sql`). No side read, which
//! alone remembers a marker's place, runs while something that waits holds the key, and the write
//! lock keeps it held until the markers have moved.

use std::{collections::BTreeMap, sync::LazyLock};

use posthaste_engine::{Registered, StoreError, audit as words};
use rusqlite::{ToSql, Transaction, named_params};

use super::{
    audit,
    connection::{at_most_one, clock, execute, micros},
    destination,
    error::classify,
    holds_key::with_holds_key,
    ordering::with_order,
    settings,
};
use crate::about::About;

/// Rows that one transaction looks through: about a millisecond under the write lock.
const NUMBERS: i64 = 2_000;
/// Rows that it copies at the most, ...
const ROWS: u32 = 200;
/// ... and bytes of them; one comes whatever its size.
const BYTES: i64 = 4 << 20;

static COPY: LazyLock<String> =
    LazyLock::new(|| with_order(&with_holds_key(include_str!("sql/evacuate_copy.sql"))));
static MOVE: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/evacuate_move.sql")));
static START: LazyLock<String> =
    LazyLock::new(|| with_holds_key(include_str!("sql/evacuate_start.sql")));
static FOUND: LazyLock<String> =
    LazyLock::new(|| with_order(&with_holds_key(include_str!("sql/evacuate_found.sql"))));

/// Copies some of what blocked keys alone keep beyond its time; answers how many, or none when
/// nothing does.
pub(super) fn evacuate(
    tx: &Transaction<'_>,
    operation: &'static str,
    by: Option<Registered>,
) -> Result<Option<u64>, StoreError> {
    let Some((start, stop)) = stretch(tx, operation)? else {
        return Ok(None);
    };
    let bounds = named_params! { ":start": start, ":stop": stop, ":now": clock(tx, operation)? };
    let copies = copies(tx, operation, bounds)?;
    let to = named_params! { ":stop": stop };
    execute(tx, operation, &MOVE, to)?;
    for (destination_id, copies) in &copies {
        let name = destination::name(tx, operation, *destination_id)?;
        let about = About {
            relay: by.map(|by| by.registration),
            destination: Some(&name),
            event_id: None,
        };
        audit::write(tx, operation, words::EVACUATE, about, &[copies, &stop])?;
    }
    Ok(Some(copies.into_values().sum()))
}

/// Copies; answers how many rows of each destination.
fn copies(
    tx: &Transaction<'_>,
    operation: &'static str,
    bounds: &[(&str, &dyn ToSql)],
) -> Result<BTreeMap<i64, u64>, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx.prepare_cached(&COPY).map_err(fail)?;
    let mut rows = statement.query(bounds).map_err(fail)?;
    let mut copies = BTreeMap::new();
    while let Some(row) = rows.next().map_err(fail)? {
        *copies.entry(row.get(0).map_err(fail)?).or_default() += 1;
    }
    Ok(copies)
}

/// Behind which row, and up to which, this transaction copies.
fn stretch(
    tx: &Transaction<'_>,
    operation: &'static str,
) -> Result<Option<(i64, i64)>, StoreError> {
    let fail = |error| classify(operation, error);
    let found: Option<(i64, i64)> = at_most_one(tx, operation, &START, &[], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let Some((start, passed)) = found else {
        return Ok(None);
    };
    let window = settings::retention(tx, operation)?;
    let before = clock(tx, operation)?.saturating_sub(micros(window));
    let mut stop = passed.min(start.saturating_add(NUMBERS));
    let sql = include_str!("sql/evacuate_young.sql");
    let within = named_params! { ":start": start, ":stop": stop, ":before": before };
    let young: Option<i64> = at_most_one(tx, operation, sql, within, |row| row.get(0))?;
    stop = young.map_or(stop, |seq| seq - 1);
    if stop <= start {
        return Ok(None);
    }
    let mut statement = tx.prepare_cached(&FOUND).map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":start": start, ":stop": stop })
        .map_err(fail)?;
    let (mut first, mut copies, mut bytes) = (None, 0, 0);
    while let Some(row) = rows.next().map_err(fail)? {
        let seq: i64 = row.get(0).map_err(fail)?;
        copies += 1;
        bytes += row.get::<_, i64>(1).map_err(fail)?;
        if (copies > ROWS || bytes > BYTES) && *first.get_or_insert(seq) < seq {
            return Ok(Some((start, seq - 1)));
        }
        first.get_or_insert(seq);
    }
    Ok(Some((start, stop)))
}
