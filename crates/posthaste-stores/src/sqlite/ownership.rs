//! Leases and claims.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    Claim, ClaimOutcome, Holder, HostIdentity, Ownership, Registered, Registration, Renewal, Start,
    StoreError,
};
use rusqlite::{Transaction, named_params};
use uuid::Uuid;

use super::{
    SqliteStore, audit,
    connection::{clock, execute, micros, until},
    destination::{create, find, readdress, state_named},
    error::{classify, unexpected},
    settings,
};

/// The store's own part of a claim.
#[derive(Debug, Clone)]
pub(super) struct ClaimInner {
    pub(super) destination_id: i64,
    pub(super) registration: Uuid,
    pub(super) store_id: String,
    /// [`posthaste_ownership.version`] as this claim left it.
    pub(super) version: i64,
}

/// A relay that ended this long ago, and owns nothing, is forgotten.
const RELAYS_KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

#[async_trait]
impl Ownership for SqliteStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        const OPERATION: &str = "register the relay";
        let relay = registration.clone();
        let id = Uuid::new_v4();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                let now = clock(tx, OPERATION)?;
                execute(
                    tx,
                    OPERATION,
                    include_str!("sql/relay_prune.sql"),
                    named_params! { ":before": now.saturating_sub(micros(RELAYS_KEPT)) },
                )?;
                let started = i64::try_from(relay.host.process_started)
                    .map_err(|_| unexpected(OPERATION, "a process's start time beyond 2^63"))?;
                execute(
                    tx,
                    OPERATION,
                    include_str!("sql/relay_insert.sql"),
                    named_params! {
                        ":registration": id.to_string(),
                        ":name": relay.name,
                        ":version": relay.version,
                        ":boot_id": relay.host.boot_id,
                        ":pid_namespace": relay.host.pid_namespace,
                        ":pid": relay.host.pid,
                        ":process_started": started,
                        ":now": now,
                        ":lease_expires_at": now.saturating_add(micros(relay.lease)),
                    },
                )?;
                Ok(Registered { registration: id })
            })
            .await
    }

    async fn renew(&self, relay: Registered, lease: Duration) -> Result<Renewal, StoreError> {
        const OPERATION: &str = "renew the lease";
        let registration = relay.registration.to_string();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                let now = clock(tx, OPERATION)?;
                let renewed = execute(
                    tx,
                    OPERATION,
                    include_str!("sql/relay_renew.sql"),
                    named_params! {
                        ":registration": registration,
                        ":lease_expires_at": now.saturating_add(micros(lease)),
                    },
                )?;
                if renewed == 0 {
                    return Err(StoreError::Fenced {
                        operation: OPERATION,
                    });
                }
                claimed_destinations(tx, OPERATION, &registration)
            })
            .await
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        const OPERATION: &str = "fence a relay";
        let why = why.to_owned();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                must_be_valid(tx, OPERATION, by)?;
                fence(tx, OPERATION, &dead.to_string(), &why)
            })
            .await
    }

    async fn claim(
        &self,
        relay: Registered,
        destination: &str,
        address: &str,
        start: Start,
        settle: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        const OPERATION: &str = "claim a destination";
        let name = destination.to_owned();
        let url = address.to_owned();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                must_be_valid(tx, OPERATION, relay)?;
                let found = match find(tx, OPERATION, &name)? {
                    Some(found) => found,
                    None => create(tx, OPERATION, &name, &url, start)?,
                };
                let ours = match take(tx, OPERATION, relay, found.id, settle)? {
                    Taken::Held(holder) => return Ok(ClaimOutcome::Held(holder)),
                    Taken::Ours(ours) => ours,
                };
                if found.url != url {
                    readdress(tx, OPERATION, &name, &found, &url)?;
                }
                Ok(ClaimOutcome::Owned(Claim {
                    destination: name,
                    epoch: ours.epoch,
                    partitions: 0..ours.partitions,
                    settle: ours.settle,
                    state: found.state,
                    breaker_open: found.breaker_open,
                    inner: Arc::new(ours.inner),
                }))
            })
            .await
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        const OPERATION: &str = "leave";
        let registration = relay.registration.to_string();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                let now = clock(tx, OPERATION)?;
                let left = execute(
                    tx,
                    OPERATION,
                    include_str!("sql/relay_leave.sql"),
                    named_params! { ":registration": registration, ":now": now },
                )?;
                if left == 0 {
                    // What it owned is taken over with a settle time, which a release would lose.
                    return Err(StoreError::Fenced {
                        operation: OPERATION,
                    });
                }
                let not_before = if unsettled.is_zero() {
                    0
                } else {
                    now.saturating_add(micros(unsettled))
                };
                execute(
                    tx,
                    OPERATION,
                    include_str!("sql/release.sql"),
                    named_params! { ":registration": registration, ":not_before": not_before },
                )?;
                Ok(())
            })
            .await
    }
}

fn claimed_destinations(
    tx: &Transaction<'_>,
    operation: &'static str,
    registration: &str,
) -> Result<Renewal, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/claimed_destinations.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":registration": registration })
        .map_err(fail)?;
    let mut renewal = Renewal::default();
    while let Some(row) = rows.next().map_err(fail)? {
        let name = row.get(0).map_err(fail)?;
        let state: String = row.get(1).map_err(fail)?;
        renewal
            .destinations
            .push((name, state_named(operation, &state)?));
    }
    Ok(renewal)
}

fn must_be_valid(
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

fn fence(
    tx: &Transaction<'_>,
    operation: &'static str,
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
    if fenced > 0 {
        audit::write(
            tx,
            operation,
            &audit::Line {
                action: "fence",
                registration: Some(dead),
                detail: Some(why),
                ..audit::Line::default()
            },
        )?;
    }
    Ok(())
}

enum Taken {
    Held(Holder),
    Ours(Ours),
}

struct Ours {
    epoch: u64,
    partitions: u16,
    settle: Duration,
    inner: ClaimInner,
}

fn take(
    tx: &Transaction<'_>,
    operation: &'static str,
    relay: Registered,
    destination_id: i64,
    settle: Duration,
) -> Result<Taken, StoreError> {
    let fail = |error| classify(operation, error);
    let now = clock(tx, operation)?;
    let registration = relay.registration.to_string();
    let mut not_before = 0;
    if let Some((former, live)) = holder(tx, operation, destination_id, now)?
        && former.registration != relay.registration
    {
        if live {
            return Ok(Taken::Held(former));
        }
        // Fenced before the epoch is raised: a renewal that slips in between would leave two owners.
        let why = format!("its lease ended; {registration} takes over");
        fence(tx, operation, &former.registration.to_string(), &why)?;
        not_before = now.saturating_add(micros(settle));
    }
    let partitions = settings::partitions(tx, operation)?;
    let (epoch, not_before, version): (i64, i64, i64) = tx
        .prepare_cached(include_str!("sql/claim.sql"))
        .and_then(|mut statement| {
            statement.query_row(
                named_params! {
                    ":registration": registration,
                    ":not_before": not_before,
                    ":partitions": partitions,
                    ":destination_id": destination_id,
                },
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
        })
        .map_err(fail)?;
    Ok(Taken::Ours(Ours {
        epoch: u64::try_from(epoch).map_err(|_| unexpected(operation, "a negative epoch"))?,
        partitions,
        settle: until(now, not_before),
        inner: ClaimInner {
            destination_id,
            registration: relay.registration,
            store_id: settings::store_id(tx, operation)?,
            version,
        },
    }))
}

/// The registration that owns the destination, and whether it is live.
pub(super) fn holder(
    tx: &Transaction<'_>,
    operation: &'static str,
    destination_id: i64,
    now: i64,
) -> Result<Option<(Holder, bool)>, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/holder.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":destination_id": destination_id, ":now": now })
        .map_err(fail)?;
    let row = rows
        .next()
        .map_err(fail)?
        .ok_or_else(|| unexpected(operation, "a destination without partitions"))?;
    let Some(registration) = row.get::<_, Option<String>>(2).map_err(fail)? else {
        return Ok(None);
    };
    let registration = Uuid::try_parse(&registration)
        .map_err(|_| unexpected(operation, "a registration that is no UUID"))?;
    let started: i64 = row.get(7).map_err(fail)?;
    let host = HostIdentity {
        boot_id: row.get(4).map_err(fail)?,
        pid_namespace: row.get(5).map_err(fail)?,
        pid: row.get(6).map_err(fail)?,
        process_started: u64::try_from(started)
            .map_err(|_| unexpected(operation, "a negative start time"))?,
    };
    let holder = Holder {
        registration,
        name: row.get(3).map_err(fail)?,
        host,
        lease_left: until(now, row.get(8).map_err(fail)?),
    };
    Ok(Some((holder, row.get(9).map_err(fail)?)))
}
