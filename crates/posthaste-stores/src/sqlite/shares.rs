//! The owner of a destination, and the relays that stand by.

use std::time::Duration;

use posthaste_engine::{HostIdentity, Member, Shares, StoreError, Wanted};
use rusqlite::{Row, Transaction, named_params};
use uuid::Uuid;

use super::{
    connection::{all, micros, one, until},
    error::{classify, unexpected},
    settings,
    watch::Watch,
};
use crate::wanted::wanted;

/// A destination's row of ownership: one relay owns all of its partitions.
pub(super) struct Owned {
    pub(super) partitions: u16,
    pub(super) not_before: i64,
    pub(super) epoch: i64,
    pub(super) by: Option<Owner>,
    pub(super) left: Option<Left>,
}

/// The present owner.
pub(super) struct Owner {
    pub(super) registration: String,
    pub(super) live: bool,
}

/// The last owner.
pub(super) struct Left {
    pub(super) registration: String,
    /// None: it is long forgotten.
    pub(super) name: Option<String>,
    /// It was fenced.
    pub(super) dead: bool,
}

fn length(row: &Row<'_>, column: usize) -> rusqlite::Result<Duration> {
    let micros: i64 = row.get(column)?;
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// A settle time is a part of a lease; this many leases are none.
const SETTLE_MAX: u32 = 10;

pub(super) fn owned(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    now: i64,
    watch: &Watch,
) -> Result<Owned, StoreError> {
    let owned = |row: &Row<'_>| {
        let valid: bool = row.get(3)?;
        let by = row.get::<_, Option<String>>(2)?;
        let live = match &by {
            Some(relay) if valid => !watch.is_past(relay, row.get(7)?, now, length(row, 8)?),
            _ => false,
        };
        let settle = format!("settle of {destination_id}");
        let settled_at = row.get(1)?;
        let settle_max = length(row, 9)? * SETTLE_MAX;
        let not_before = match watch.is_past(&settle, settled_at, now, settle_max) {
            true => 0,
            // The next owner waits by a clock that is never set.
            false => settled_at.min(now.saturating_add(micros(settle_max))),
        };
        let (dead, name) = (row.get(5)?, row.get(6)?);
        let left = row.get::<_, Option<String>>(4)?;
        Ok(Owned {
            partitions: row.get(0)?,
            not_before,
            epoch: row.get(10)?,
            by: by.map(|registration| Owner { registration, live }),
            left: left.map(|registration| Left {
                registration,
                name,
                dead,
            }),
        })
    };
    let sql = include_str!("sql/ownership.sql");
    let of = named_params! { ":destination_id": destination_id };
    one(tx, operation, sql, of, owned)
}

pub(super) fn shares(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    now: i64,
    watch: &Watch,
) -> Result<Shares, StoreError> {
    let owned = owned(tx, operation, destination_id, now, watch)?;
    let mut shares = Shares {
        // Nothing is shared out: a relay that stands by looks for itself.
        version: 0,
        partitions: owned.partitions,
        members: members(tx, operation, destination_id, now, watch)?,
        recut: settings::partitions(tx, operation)? != owned.partitions,
        ..Shares::default()
    };
    let wait = until(now, owned.not_before);
    match owned.by {
        Some(owner) if owner.live => {}
        Some(_) => shares.dead = owned.partitions,
        None if wait.is_zero() => shares.free = owned.partitions,
        None => {
            shares.settling = owned.partitions;
            shares.settled_in = Some(wait);
        }
    }
    Ok(shares)
}

pub(super) fn members(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    now: i64,
    watch: &Watch,
) -> Result<Vec<Member>, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/members.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":destination_id": destination_id, ":now": now })
        .map_err(fail)?;
    let mut members = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        let relay: String = row.get(0).map_err(fail)?;
        let (lease_ends, lease) = (row.get(11).map_err(fail)?, length(row, 12).map_err(fail)?);
        if watch.is_past(&relay, lease_ends, now, lease) {
            continue;
        }
        members.push(Member {
            registration: registration(operation, row, 0)?,
            name: row.get(1).map_err(fail)?,
            host: host(operation, row, 2)?,
            lease_left: length(row, 6).map_err(fail)?,
            leaving: row.get(7).map_err(fail)?,
            partitions_max: row.get(8).map_err(fail)?,
            reaches: row.get(9).map_err(fail)?,
            owned: row.get(10).map_err(fail)?,
        });
    }
    Ok(members)
}

/// The destinations that a relay serves: id, name and state.
pub(super) fn served(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: &str,
) -> Result<Vec<(i64, String, Wanted)>, StoreError> {
    let sql = include_str!("sql/served.sql");
    let of = named_params! { ":registration": relay };
    let served = all(tx, operation, sql, of, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    let named = |(id, name, state, places): (i64, String, String, String)| {
        wanted(operation, &state, &places).map(|wanted| (id, name, wanted))
    };
    served.into_iter().map(named).collect()
}

/// The registration in this column.
pub(super) fn registration(
    operation: &'static str,
    row: &Row<'_>,
    column: usize,
) -> Result<Uuid, StoreError> {
    let text: String = row
        .get(column)
        .map_err(|error| classify(operation, error))?;
    parse(operation, &text)
}

/// A registration as the tables have it.
pub(super) fn parse(operation: &'static str, text: &str) -> Result<Uuid, StoreError> {
    Uuid::try_parse(text).map_err(|_| unexpected(operation, "a registration that is no UUID"))
}

/// Where a relay runs, from this column on.
pub(super) fn host(
    operation: &'static str,
    row: &Row<'_>,
    column: usize,
) -> Result<HostIdentity, StoreError> {
    let fail = |error| classify(operation, error);
    let started: i64 = row.get(column + 3).map_err(fail)?;
    Ok(HostIdentity {
        boot_id: row.get(column).map_err(fail)?,
        pid_namespace: row.get(column + 1).map_err(fail)?,
        pid: row.get(column + 2).map_err(fail)?,
        process_started: u64::try_from(started)
            .map_err(|_| unexpected(operation, "a negative start time"))?,
    })
}
