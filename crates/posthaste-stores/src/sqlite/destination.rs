//! Destinations: created by the first claim of their name, removed by an operator.

use std::{fmt::Display, sync::LazyLock};

use posthaste_engine::{DestinationState, Start, StoreError, Wanted, audit as words};
use rusqlite::{Transaction, named_params};
use uuid::Uuid;

use super::{
    audit,
    connection::{all, at_most_one, clock, execute, limit_of, one},
    live::with_live,
    settings,
};
use crate::{about::About, wanted::wanted};

static LIVE_MEMBER: LazyLock<String> =
    LazyLock::new(|| with_live(include_str!("sql/live_member.sql")));

/// Copies that one transaction closes: there may be millions, and an application waits for it.
pub(super) const COPIES_A_TRANSACTION: usize = 1_000;

/// A destination as it is stored.
pub(super) struct Found {
    pub(super) id: i64,
    pub(super) wanted: Wanted,
    pub(super) url: String,
    pub(super) breaker_open: bool,
}

/// The destination of this name that is not removed.
pub(super) fn find(
    tx: &Transaction<'_>,
    operation: &'static str,
    name: &str,
) -> Result<Option<Found>, StoreError> {
    let sql = include_str!("sql/destination_by_name.sql");
    let found = at_most_one(tx, operation, sql, named_params! { ":name": name }, |row| {
        let (state, places): (String, String) = (row.get(1)?, row.get(4)?);
        Ok((row.get(0)?, (state, places), row.get(2)?, row.get(3)?))
    })?;
    found
        .map(
            |(id, (state, places), url, breaker): (i64, _, String, String)| {
                Ok(Found {
                    id,
                    wanted: wanted(operation, &state, &places)?,
                    url,
                    breaker_open: breaker == "open",
                })
            },
        )
        .transpose()
}

/// Progress belongs to the name and goes on; where the events go from now on is on record.
pub(super) fn readdress(
    tx: &Transaction<'_>,
    operation: &'static str,
    name: &str,
    found: &Found,
    url: &str,
    by: Uuid,
) -> Result<(), StoreError> {
    execute(
        tx,
        operation,
        include_str!("sql/destination_url.sql"),
        named_params! { ":id": found.id, ":url": url },
    )?;
    let (about, values): (_, [&dyn Display; 2]) = (About::relay(by, name), [&found.url, &url]);
    audit::write(tx, operation, words::ADDRESS_CHANGED, about, &values)
}

/// The name of a destination.
pub(super) fn name(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
) -> Result<String, StoreError> {
    let sql = "select name from posthaste_destinations where id = :id";
    let of = named_params! { ":id": destination_id };
    one(tx, operation, sql, of, |row| row.get(0))
}

/// Stores to which cluster the events go; answers the former one where that was another.
pub(super) fn found_cluster(
    tx: &Transaction<'_>,
    operation: &'static str,
    id: i64,
    cluster: &str,
    by: Uuid,
) -> Result<Option<String>, StoreError> {
    let sql = "select name, cluster from posthaste_destinations where id = :id";
    let of = named_params! { ":id": id };
    let (name, former): (String, Option<String>) =
        one(tx, operation, sql, of, |row| Ok((row.get(0)?, row.get(1)?)))?;
    if former.as_deref() == Some(cluster) {
        return Ok(None);
    }
    execute(
        tx,
        operation,
        "update posthaste_destinations set cluster = :cluster where id = :id",
        named_params! { ":id": id, ":cluster": cluster },
    )?;
    if let Some(former) = &former {
        let (about, values): (_, [&dyn Display; 2]) = (About::relay(by, &name), [former, &cluster]);
        audit::write(tx, operation, words::CLUSTER_CHANGED, about, &values)?;
    }
    Ok(former)
}

/// Discards copies behind `after` of events that the destination reads itself; answers the last
/// one's id if there may be more. They are discarded after its creation, since from then on it
/// keeps the events in the outbox, and before the first of its claims is granted, since it passes
/// them then.
pub(super) fn discard_read_again(
    tx: &Transaction<'_>,
    operation: &'static str,
    (id, name): (i64, &str),
    after: i64,
    by: Uuid,
) -> Result<Option<i64>, StoreError> {
    let of = named_params! {
        ":id": id,
        ":after": after,
        ":now": clock(tx, operation)?,
        ":limit": limit_of(COPIES_A_TRANSACTION),
    };
    let sql = include_str!("sql/copies_read_again.sql");
    let discarded: Vec<i64> = all(tx, operation, sql, of, |row| row.get(0))?;
    if !discarded.is_empty() {
        let about = About::relay(by, name);
        audit::write(tx, operation, words::READ_AGAIN, about, &[&discarded.len()])?;
    }
    // Their order is not that of the update.
    let last = discarded.iter().max().copied();
    Ok(last.filter(|_| discarded.len() == COPIES_A_TRANSACTION))
}

/// A destination that nobody has claimed yet.
pub(super) fn create(
    tx: &Transaction<'_>,
    operation: &'static str,
    name: &str,
    url: &str,
    start: Start,
    by: Uuid,
) -> Result<Found, StoreError> {
    let now = clock(tx, operation)?;
    let partitions = settings::partitions(tx, operation)?;
    let seq = match start {
        Start::Oldest => 0,
        // Under the write lock there is no number in use that is not committed.
        Start::Now => last_seq(tx, operation)?,
    };
    execute(
        tx,
        operation,
        include_str!("sql/destination_insert.sql"),
        named_params! { ":name": name, ":url": url, ":now": now },
    )?;
    let destination_id = tx.last_insert_rowid();
    execute(
        tx,
        operation,
        include_str!("sql/cursor_insert.sql"),
        named_params! { ":destination_id": destination_id, ":seq": seq },
    )?;
    let cursor_id = tx.last_insert_rowid();
    execute(
        tx,
        operation,
        include_str!("sql/ownership_insert.sql"),
        named_params! {
            ":destination_id": destination_id,
            ":partitions": partitions,
            ":cursor_id": cursor_id,
            ":name": name,
        },
    )?;
    let about = About::relay(by, name);
    let start = words::start(start);
    audit::write(tx, operation, words::DESTINATION_CREATED, about, &[&start])?;
    Ok(Found {
        id: destination_id,
        wanted: Wanted::whole(DestinationState::Active),
        url: url.to_owned(),
        breaker_open: false,
    })
}

/// Closes parked events of a destination that is to be removed, which no live relay may serve;
/// `before` of them are closed already. Answers how many: fewer than [`COPIES_A_TRANSACTION`] are
/// the last ones.
pub(super) fn close_parked(
    tx: &Transaction<'_>,
    operation: &'static str,
    (id, name): (i64, &str),
    before: usize,
) -> Result<usize, StoreError> {
    let now = clock(tx, operation)?;
    let of = named_params! { ":destination_id": id, ":now": now };
    let holder = at_most_one(tx, operation, &LIVE_MEMBER, of, |row| {
        row.get::<_, String>(0)
    })?;
    if let Some(holder) = holder {
        return Err(StoreError::is_held(operation, name, &holder, before as u64));
    }
    execute(
        tx,
        operation,
        include_str!("sql/destination_close_parked.sql"),
        named_params! { ":id": id, ":now": now, ":limit": limit_of(COPIES_A_TRANSACTION) },
    )
}

/// Ends a destination's progress.
pub(super) fn end_progress(
    tx: &Transaction<'_>,
    operation: &'static str,
    id: i64,
) -> Result<(), StoreError> {
    for sql in [
        // The epoch goes up with it: a relay that still believes to own it is fenced.
        include_str!("sql/destination_disown.sql"),
        "delete from posthaste_cursors where destination_id = :id",
        "delete from posthaste_markers where destination_id = :id",
        "delete from posthaste_members where destination_id = :id",
        "delete from posthaste_former where destination_id = :id",
    ] {
        execute(tx, operation, sql, named_params! { ":id": id })?;
    }
    Ok(())
}

/// The last number that the outbox has drawn.
pub(super) fn last_seq(tx: &Transaction<'_>, operation: &'static str) -> Result<i64, StoreError> {
    let sql = include_str!("sql/last_seq.sql");
    one(tx, operation, sql, &[], |row| row.get(0))
}

/// A number that a cursor has passed and that another event has now.
pub(super) fn drawn_again(
    tx: &Transaction<'_>,
    operation: &'static str,
) -> Result<Option<i64>, StoreError> {
    let sql = include_str!("sql/drawn_again.sql");
    one(tx, operation, sql, &[], |row| row.get(0))
}

/// Refuses a counter that was set back behind any cursor, whether or not it has come so far again.
pub(super) fn refuse_set_back(
    tx: &Transaction<'_>,
    operation: &'static str,
) -> Result<(), StoreError> {
    let sql = "select coalesce(max(seq), 0) from posthaste_cursors";
    let furthest = one(tx, operation, sql, &[], |row| row.get(0))?;
    refuse_counter_set_back(tx, operation, furthest)?;
    refuse_drawn_again(operation, drawn_again(tx, operation)?)
}

/// Refuses a counter below a number that was read: it hides new events.
pub(super) fn refuse_counter_set_back(
    tx: &Transaction<'_>,
    operation: &'static str,
    furthest: i64,
) -> Result<(), StoreError> {
    let last = last_seq(tx, operation)?;
    if furthest <= last {
        return Ok(());
    }
    let found = format!("has drawn numbers up to {last}, below {furthest} that was read of it");
    Err(set_back(operation, &found))
}

/// Refuses a number that another event has drawn again: those drawn before it hide new events.
pub(super) fn refuse_drawn_again(
    operation: &'static str,
    drawn_again: Option<i64>,
) -> Result<(), StoreError> {
    drawn_again.map_or(Ok(()), |seq| {
        let found = format!("has another event under the number {seq} than the one that was read");
        Err(set_back(operation, &found))
    })
}

fn set_back(operation: &'static str, found: &str) -> StoreError {
    StoreError::Misconfigured {
        operation,
        reason: format!(
            "the outbox {found}: the table was emptied or made anew and its counter set back, \
             which hides new events. Run `posthaste init`, which sets it forward and has all \
             events that the table holds delivered, some of them again; nothing is lost"
        ),
    }
}
