//! How a destination passes from one relay to the next.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{AuditWords, Claim, Partitions, Registered, StoreError, audit as words};
use rusqlite::{OptionalExtension, Transaction, named_params};
use uuid::Uuid;

use super::{
    audit::{self, About},
    connection::{clock, execute, micros, until},
    destination::Found,
    error::{classify, unexpected},
    guard::Grant,
    settings,
    shares::{Left, owned, registration, shares},
    watch::Watch,
};

/// That the relay is neither fenced nor gone.
pub(super) fn must_be_valid(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: Registered,
) -> Result<(), StoreError> {
    let valid: bool = tx
        .prepare_cached(include_str!("sql/relay_is_valid.sql"))
        .and_then(|mut statement| {
            statement.query_row(
                named_params! { ":registration": relay.registration.to_string() },
                |row| row.get(0),
            )
        })
        .map_err(|error| classify(operation, error))?;
    if valid {
        Ok(())
    } else {
        Err(StoreError::Fenced { operation })
    }
}

pub(super) fn fence(
    tx: &Transaction<'_>,
    operation: &'static str,
    by: Registered,
    dead: &str,
    why: &str,
) -> Result<(), StoreError> {
    let now = clock(tx, operation)?;
    let fenced = execute(
        tx,
        operation,
        include_str!("sql/relay_fence.sql"),
        named_params! { ":registration": dead, ":now": now },
    )?;
    if fenced == 0 {
        return Ok(());
    }
    let name: String = tx
        .prepare_cached(include_str!("sql/relay_name.sql"))
        .and_then(|mut statement| {
            statement.query_row(named_params! { ":registration": dead }, |row| row.get(0))
        })
        .map_err(|error| classify(operation, error))?;
    let about = About {
        relay: Some(by.registration),
        ..About::default()
    };
    audit::write(tx, operation, words::FENCE, about, &[&name, &dead, &why])
}

/// Makes the destination free once `settle` is over, if whoever owns it is dead.
pub(super) fn revoke(
    tx: &Transaction<'_>,
    operation: &'static str,
    by: Registered,
    destination_id: i64,
    settle: Duration,
    watch: &Watch,
) -> Result<(), StoreError> {
    let now = clock(tx, operation)?;
    let us = by.registration.to_string();
    let owner = owned(tx, operation, destination_id, now, watch)?.by;
    let Some(owner) = owner.filter(|owner| !owner.live && owner.registration != us) else {
        return Ok(());
    };
    let dead = owner.registration;
    // Fenced before the epoch is raised: a renewal that slips in between would leave two owners.
    fence(tx, operation, by, &dead, words::LEASE_OVER)?;
    free(tx, operation, destination_id, &dead, settle, true)?;
    delist(tx, operation, destination_id, &dead)
}

/// Gives up the destination, if it is the relay's. Answers how many partitions that were.
pub(super) fn give_up(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: Registered,
    (destination_id, name): (i64, &str),
    unsettled: Duration,
    words: AuditWords,
) -> Result<(), StoreError> {
    let us = relay.registration.to_string();
    let freed = free(tx, operation, destination_id, &us, unsettled, false)?;
    let Some(partitions) = freed else {
        return Ok(());
    };
    let about = About::relay(relay.registration, name);
    audit::write(tx, operation, words, about, &[&partitions])
}

/// The settle time that stands there is never lowered.
fn free(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    owner: &str,
    wait: Duration,
    dead: bool,
) -> Result<Option<u16>, StoreError> {
    let now = clock(tx, operation)?;
    let partitions = tx
        .prepare_cached(include_str!("sql/release.sql"))
        .and_then(|mut statement| {
            let not_before = match wait.is_zero() {
                true => 0,
                false => now.saturating_add(micros(wait)),
            };
            let of = named_params! {
                ":destination_id": destination_id,
                ":registration": owner,
                ":not_before": not_before,
                ":dead": dead,
            };
            statement.query_row(of, |row| row.get(0)).optional()
        })
        .map_err(|error| classify(operation, error))?;
    if partitions.is_some() && (dead || !wait.is_zero()) {
        execute(
            tx,
            operation,
            include_str!("sql/former_add.sql"),
            named_params! { ":destination_id": destination_id, ":registration": owner },
        )?;
    }
    Ok(partitions)
}

/// The relay serves the destination no longer.
pub(super) fn delist(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    relay: &str,
) -> Result<(), StoreError> {
    execute(
        tx,
        operation,
        include_str!("sql/member_delete.sql"),
        named_params! { ":destination_id": destination_id, ":registration": relay },
    )?;
    Ok(())
}

/// Takes the destination, or takes it anew; none while a live relay owns it.
pub(super) fn take(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: Registered,
    name: &str,
    found: &Found,
    watch: &Watch,
) -> Result<Option<Claim>, StoreError> {
    let fail = |error| classify(operation, error);
    let now = clock(tx, operation)?;
    let us = relay.registration.to_string();
    let before = owned(tx, operation, found.id, now, watch)?;
    if before.by.is_some_and(|owner| owner.registration != us) {
        return Ok(None);
    }
    let partitions = settings::partitions(tx, operation)?;
    let (epoch, version): (i64, i64) = tx
        .prepare_cached(include_str!("sql/claim.sql"))
        .and_then(|mut statement| {
            statement.query_row(
                named_params! {
                    ":registration": us,
                    ":partitions": partitions,
                    ":destination_id": found.id,
                },
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
        })
        .map_err(fail)?;
    if let Some(left) = before.left.filter(|left| left.registration != us) {
        let about = About::relay(relay.registration, name);
        write_taken(tx, operation, about, partitions, &left)?;
    }
    let store_id = settings::store_id(tx, operation)?;
    Ok(Some(Claim {
        destination: name.to_owned(),
        destination_id: found.id,
        epoch: u64::try_from(epoch).map_err(|_| unexpected(operation, "a negative epoch"))?,
        partitions: Partitions::all_of(partitions)
            .map_err(|reason| unexpected(operation, reason))?,
        settle: until(now, before.not_before),
        state: found.state,
        breaker_open: found.breaker_open,
        store_id: Uuid::try_parse(&store_id)
            .map_err(|_| unexpected(operation, "a store's identity that is no UUID"))?,
        former: former(tx, operation, found.id, relay)?,
        shares: shares(tx, operation, found.id, now, watch)?,
        inner: Arc::new(Grant {
            destination_id: found.id,
            registration: relay.registration,
            store_id,
            version,
        }),
    }))
}

fn write_taken(
    tx: &Transaction<'_>,
    operation: &'static str,
    about: About<'_>,
    partitions: u16,
    left: &Left,
) -> Result<(), StoreError> {
    let words = match left.dead {
        true => words::TAKE_OVER,
        false => words::HAND_OVER,
    };
    let whose = left.name.as_ref().unwrap_or(&left.registration);
    audit::write(tx, operation, words, about, &[&partitions, whose])
}

fn former(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    relay: Registered,
) -> Result<Vec<Uuid>, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/former.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":destination_id": destination_id })
        .map_err(fail)?;
    let mut former = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        former.push(registration(operation, row, 0)?);
    }
    // Its own fence is taken by opening a lane.
    former.retain(|registration| *registration != relay.registration);
    Ok(former)
}
