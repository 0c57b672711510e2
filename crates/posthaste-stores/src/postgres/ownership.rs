//! Leases and claims. The database's clock decides; every step is one statement or two.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    Claim, ClaimOutcome, DestinationState, Holder, HostIdentity, Ownership, Registered,
    Registration, Renewal, Start, StoreError,
};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{Grant, PostgresStore, error::classify};

const REGISTER: &str = include_str!("sql/register.sql");
const RENEW: &str = include_str!("sql/renew.sql");
const FENCE: &str = include_str!("sql/fence.sql");
const LEAVE: &str = include_str!("sql/leave.sql");
const INCARNATION_REFILL: &str = include_str!("sql/incarnation_refill.sql");
const CLAIM_BEFORE: &str = include_str!("sql/claim_before.sql");
const CLAIM_LOOKUP: &str = include_str!("sql/claim_lookup.sql");
const CLAIM_TAKE: &str = include_str!("sql/claim_take.sql");
const DESTINATION_LOCK: &str = include_str!("sql/destination_lock.sql");
const DESTINATION_CREATE: &str = include_str!("sql/destination_create.sql");

/// Each lost race means that somebody else got further; this many in a row is no race any more.
const RACES_MAX: u32 = 16;

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[async_trait]
impl Ownership for PostgresStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let client = self.ownership.client().await?;
        let failed = |error| classify("register", error);
        let id = Uuid::new_v4();
        let host = &registration.host;
        let started = i64::try_from(host.process_started).unwrap_or(i64::MAX);
        client
            .execute(INCARNATION_REFILL, &[&id])
            .await
            .map_err(failed)?;
        client
            .execute(
                REGISTER,
                &[
                    &id,
                    &registration.name,
                    &registration.version,
                    &micros(registration.lease),
                    &host.boot_id,
                    &host.pid_namespace,
                    &i64::from(host.pid),
                    &started,
                ],
            )
            .await
            .map_err(failed)?;
        Ok(Registered { registration: id })
    }

    async fn renew(&self, relay: Registered, lease: Duration) -> Result<Renewal, StoreError> {
        let client = self.ownership.client().await?;
        let rows = client
            .query(RENEW, &[&relay.registration, &micros(lease)])
            .await
            .map_err(|error| classify("renew", error))?;
        if rows.is_empty() {
            return Err(StoreError::Fenced { operation: "renew" });
        }
        let destinations = rows.iter().filter_map(|row| {
            let name: Option<String> = row.get(0);
            let state: Option<&str> = row.get(1);
            Some((name?, destination_state(state?)))
        });
        Ok(Renewal {
            destinations: destinations.collect(),
        })
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        let client = self.ownership.client().await?;
        let fenced = fence(&client, by, dead, why, false).await?;
        if fenced == 0 && is_fenced(&client, by).await? {
            return Err(StoreError::Fenced { operation: "fence" });
        }
        Ok(())
    }

    async fn claim(
        &self,
        relay: Registered,
        destination: &str,
        address: &str,
        start: Start,
        settle: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        let mut client = self.ownership.client().await?;
        let failed = |error| classify("claim", error);
        client
            .execute(INCARNATION_REFILL, &[&relay.registration])
            .await
            .map_err(failed)?;
        for _ in 0..RACES_MAX {
            // Received before the claim's own transaction is sent: see `Grant::proven`.
            let before = client.query_one(CLAIM_BEFORE, &[]).await.map_err(failed)?;
            let found = client
                .query_opt(CLAIM_LOOKUP, &[&destination])
                .await
                .map_err(failed)?;
            let Some(found) = found.map(|row| Found::read(&row)) else {
                create(&mut client, relay, destination, start).await?;
                continue;
            };
            if let Some(holder) = found.holder(relay) {
                if is_fenced(&client, relay).await? {
                    return Err(StoreError::Fenced { operation: "claim" });
                }
                return Ok(ClaimOutcome::Held(holder));
            }
            let wanted = Wanted {
                relay,
                destination,
                address,
                settle,
            };
            if let Some(claim) = take(&client, &wanted, &found, &before).await? {
                return Ok(ClaimOutcome::Owned(claim));
            }
            if is_fenced(&client, relay).await? {
                return Err(StoreError::Fenced { operation: "claim" });
            }
        }
        Err(StoreError::Unavailable {
            operation: "claim",
            reason: format!("others claim `{destination}` at the same time"),
            source: None,
        })
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let client = self.ownership.client().await?;
        client
            .execute(LEAVE, &[&relay.registration, &micros(unsettled)])
            .await
            .map_err(|error| classify("leave", error))?;
        Ok(())
    }
}

/// What the lookup found of a destination and its owner.
struct Found {
    id: i64,
    state: DestinationState,
    breaker_open: bool,
    first_partition: i32,
    last_partition: i32,
    epoch: i64,
    owner: Option<Uuid>,
    live: bool,
    name: Option<String>,
    host: HostIdentity,
    lease_left: Duration,
}

impl Found {
    fn read(row: &Row) -> Self {
        let text = |name| row.get::<_, Option<String>>(name).unwrap_or_default();
        let pid: Option<i64> = row.get("pid");
        let started: Option<i64> = row.get("process_started");
        Self {
            id: row.get("id"),
            state: destination_state(row.get("state")),
            breaker_open: row.get::<_, &str>("breaker") == "open",
            first_partition: row.get("first_partition"),
            last_partition: row.get("last_partition"),
            epoch: row.get("epoch"),
            owner: row.get("relay"),
            live: row.get::<_, Option<bool>>("live").unwrap_or(false),
            name: row.get("name"),
            host: HostIdentity {
                boot_id: text("boot_id"),
                pid_namespace: text("pid_namespace"),
                pid: pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
                process_started: started.and_then(|s| u64::try_from(s).ok()).unwrap_or(0),
            },
            lease_left: from_micros(row.get::<_, Option<i64>>("lease_left").unwrap_or(0)),
        }
    }

    /// The live relay that holds it, if that is not `relay` itself.
    fn holder(&self, relay: Registered) -> Option<Holder> {
        let registration = self
            .owner
            .filter(|&owner| self.live && owner != relay.registration)?;
        Some(Holder {
            registration,
            name: self.name.clone().unwrap_or_default(),
            host: self.host.clone(),
            lease_left: self.lease_left,
        })
    }
}

/// What a claim asks for.
struct Wanted<'a> {
    relay: Registered,
    destination: &'a str,
    address: &'a str,
    settle: Duration,
}

/// Takes what no live relay holds. None: somebody was quicker, or we are fenced.
async fn take(
    client: &Client,
    wanted: &Wanted<'_>,
    found: &Found,
    before: &Row,
) -> Result<Option<Claim>, StoreError> {
    let relay = wanted.relay;
    let failed = |error| classify("claim", error);
    let dead = found.owner.filter(|&owner| owner != relay.registration);
    if let Some(dead) = dead {
        // First the fence, then the epoch: else a renewal slips between, and two relays hand over.
        fence(client, relay, dead, "its lease is over", true).await?;
        if !is_fenced(client, Registered { registration: dead }).await? {
            return Ok(None);
        }
    }
    let settle = dead.map_or(0, |_| micros(wanted.settle));
    let taken = client
        .query_opt(
            CLAIM_TAKE,
            &[
                &found.id,
                &found.first_partition,
                &relay.registration,
                &found.owner,
                &found.epoch,
                &settle,
                &wanted.address,
            ],
        )
        .await
        .map_err(failed)?;
    let Some(taken) = taken else { return Ok(None) };
    let epoch: i64 = taken.get("epoch");
    let Some(token) = before.get::<_, Option<Uuid>>("token") else {
        return Err(StoreError::IncarnationChanged { operation: "claim" });
    };
    let partition = |number: i32| {
        u16::try_from(number).map_err(|_| StoreError::Bug {
            operation: "claim",
            reason: format!("there is no partition {number}"),
        })
    };
    Ok(Some(Claim {
        destination: wanted.destination.to_owned(),
        epoch: u64::try_from(epoch).unwrap_or(0),
        partitions: partition(found.first_partition)?..partition(found.last_partition + 1)?,
        settle: from_micros(taken.get("settle")),
        state: found.state,
        breaker_open: found.breaker_open,
        inner: Arc::new(Grant {
            destination_id: found.id,
            first_partition: found.first_partition,
            epoch,
            registration: relay.registration,
            token,
            proven: before.get("sequence"),
        }),
    }))
}

async fn fence(
    client: &Client,
    by: Registered,
    dead: Uuid,
    why: &str,
    only_expired: bool,
) -> Result<u64, StoreError> {
    client
        .execute(FENCE, &[&by.registration, &dead, &why, &only_expired])
        .await
        .map_err(|error| classify("fence", error))
}

/// Whether a registration can never renew again: fenced, or gone.
async fn is_fenced(client: &Client, relay: Registered) -> Result<bool, StoreError> {
    let live = "select from posthaste.relays where registration = $1 and fenced_at is null";
    let row = client
        .query_opt(live, &[&relay.registration])
        .await
        .map_err(|error| classify("claim", error))?;
    Ok(row.is_none())
}

/// Creates the destination where it starts; somebody else's creation counts as well.
async fn create(
    client: &mut Client,
    relay: Registered,
    destination: &str,
    start: Start,
) -> Result<(), StoreError> {
    let failed = |error| classify("create the destination", error);
    let transaction = client.transaction().await.map_err(failed)?;
    transaction
        .batch_execute(DESTINATION_LOCK)
        .await
        .map_err(failed)?;
    transaction
        .execute(
            DESTINATION_CREATE,
            &[&destination, &(start == Start::Now), &relay.registration],
        )
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// The table's CHECK knows the same names; a name from a newer schema counts as not to be touched.
pub(super) fn destination_state(name: &str) -> DestinationState {
    match name {
        "active" => DestinationState::Active,
        "removed" => DestinationState::Removed,
        _ => DestinationState::Paused,
    }
}
