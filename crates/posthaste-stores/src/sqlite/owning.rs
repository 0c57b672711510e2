//! How a destination passes from one relay to the next.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    AuditWords, ClaimDecision, ClaimOutcome, ClaimRequest, DestinationFound, GroupFound, OrderBy,
    Registered, StoreError, Want, audit as words,
};
use rusqlite::{Transaction, named_params};
use uuid::Uuid;

use super::{
    audit,
    connection::{all, at_most_one, clock, execute, micros, one, until},
    destination::Found,
    error::unexpected,
    guard::Grant,
    settings,
    shares::{owned, parse, shares},
    watch::Watch,
};
use crate::about::About;

/// That the relay is neither fenced nor gone.
pub(super) fn must_be_valid(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: Registered,
) -> Result<(), StoreError> {
    let sql = include_str!("sql/relay_is_valid.sql");
    let of = named_params! { ":registration": relay.registration.to_string() };
    if one(tx, operation, sql, of, |row| row.get(0))? {
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
    let sql = include_str!("sql/relay_name.sql");
    let of = named_params! { ":registration": dead };
    let name: String = one(tx, operation, sql, of, |row| row.get(0))?;
    let about = About {
        relay: Some(by.registration),
        ..About::default()
    };
    audit::write(tx, operation, words::FENCE, about, &[&name, &dead, &why])
}

/// Makes the destination free once `settle` is over, if its owner is dead.
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
    let not_before = match wait.is_zero() {
        true => 0,
        false => now.saturating_add(micros(wait)),
    };
    let sql = include_str!("sql/release.sql");
    let of = named_params! {
        ":destination_id": destination_id,
        ":registration": owner,
        ":not_before": not_before,
        ":dead": dead,
    };
    let partitions = at_most_one(tx, operation, sql, of, |row| row.get(0))?;
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

/// Brings what the relay owns of the destination to what it wants: all, or nothing.
pub(super) fn reach(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: Registered,
    request: &ClaimRequest<'_>,
    found: &Found,
    watch: &Watch,
) -> Result<ClaimOutcome, StoreError> {
    let (us, now) = (relay.registration, clock(tx, operation)?);
    let before = owned(tx, operation, found.id, now, watch)?;
    let (want, count) = match request.want {
        // It is given up as it is cut.
        Want::AtMost(0) => (Want::AtMost(0), before.partitions),
        Want::All | Want::AtMost(_) => (Want::All, settings::partitions(tx, operation)?),
    };
    let registered = |text: &String| parse(operation, text);
    let (store_id, left) = (settings::store_id(tx, operation)?, before.left);
    let owner = before.by.map(|owner| owner.registration);
    let standing = DestinationFound {
        count,
        wanted_count: count,
        epoch: before.epoch,
        wanted: found.wanted.clone(),
        breaker_open: found.breaker_open,
        store_id: Uuid::try_parse(&store_id)
            .map_err(|_| unexpected(operation, "a store's identity that is no UUID"))?,
        groups: vec![GroupFound {
            id: found.id,
            owner: owner.as_ref().map(registered).transpose()?,
            partitions: (0..count).collect(),
            settling: until(now, before.not_before),
            former: former(tx, operation, found.id)?,
            left_dead: left.as_ref().is_some_and(|left| left.dead),
            left_by: left
                .as_ref()
                .map(|left| registered(&left.registration))
                .transpose()?,
            // A relay that is long forgotten has no name.
            left_name: left.map(|left| left.name.unwrap_or(left.registration)),
        }],
    };
    let changes = standing.share_out(us, &ClaimRequest { want, ..*request }, None);
    let decision = ClaimDecision::new(standing, us, &changes);
    if !decision.given_up.is_empty() {
        free(
            tx,
            operation,
            found.id,
            &us.to_string(),
            request.unsettled,
            false,
        )?;
    }
    let mut version = 0;
    if !decision.owned.is_empty() {
        let sql = include_str!("sql/claim.sql");
        let of = named_params! {
            ":registration": us.to_string(), ":partitions": count, ":destination_id": found.id
        };
        version = one(tx, operation, sql, of, |row| row.get(0))?;
    }
    for (action, detail) in &decision.notes {
        let about = About::relay(us, request.destination);
        audit::write_line(tx, operation, action, about, detail)?;
    }
    let shares = shares(tx, operation, found.id, now, watch)?;
    decision.outcome(found.id, request, shares, |_, _| {
        Arc::new(Grant {
            destination_id: found.id,
            registration: us,
            order_by: OrderBy::of_target(request.address).0,
            store_id,
            version,
        })
    })
}

fn former(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
) -> Result<Vec<Uuid>, StoreError> {
    let sql = include_str!("sql/former.sql");
    let of = named_params! { ":destination_id": destination_id };
    let former: Vec<String> = all(tx, operation, sql, of, |row| row.get(0))?;
    former.iter().map(|text| parse(operation, text)).collect()
}
