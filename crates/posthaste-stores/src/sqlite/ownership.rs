//! Leases and claims.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, LazyLock},
    time::Duration,
};

use async_trait::async_trait;
use posthaste::Dialect;
use posthaste_engine::{
    ClaimOutcome, ClaimRequest, Leases, Ownership, Registered, Registration, RelayReport, Renewal,
    Shares, StoreError, audit,
};
use rusqlite::{Transaction, named_params};
use serde_json::json;
use uuid::Uuid;

use super::{
    SqliteStore,
    connection::{at_most_one, clock, execute, micros},
    destination::{create, discard_read_again, find, readdress},
    error::unexpected,
    live::with_live,
    owning::{delist, fence, give_up, must_be_valid, reach, revoke},
    shares::{served, shares},
    watch::Watch,
};
use crate::held_places;

/// A relay that ended this long ago, and owns nothing, is forgotten.
const RELAYS_KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

#[async_trait]
impl Leases for SqliteStore {
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
                execute(tx, OPERATION, include_str!("sql/member_prune.sql"), &[])?;
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
                        ":lease": micros(relay.lease),
                        ":level": Dialect::Sqlite.schema_version(),
                    },
                )?;
                Ok(Registered { registration: id })
            })
            .await
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        const OPERATION: &str = "renew the lease";
        let registration = relay.registration.to_string();
        let rates = report
            .iter()
            .map(|(name, of)| (name, of.accepted_per_second));
        let rates = json!(rates.collect::<BTreeMap<_, _>>()).to_string();
        let places = held_places::written(report);
        let watch = Arc::clone(&self.watch);
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
                        ":lease": micros(lease),
                        ":rates": rates,
                        ":places": places,
                    },
                )?;
                if renewed == 0 {
                    return Err(StoreError::Fenced {
                        operation: OPERATION,
                    });
                }
                let mut renewal = Renewal::default();
                for (id, name, wanted) in served(tx, OPERATION, &registration)? {
                    let shares = shares(tx, OPERATION, id, now, &watch)?;
                    renewal.destinations.push((name, wanted, shares));
                }
                Ok(renewal)
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
                fence(tx, OPERATION, by, &dead.to_string(), &why)
            })
            .await
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        const OPERATION: &str = "announce to leave";
        let registration = relay.registration.to_string();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                let announced = execute(
                    tx,
                    OPERATION,
                    include_str!("sql/relay_leaving.sql"),
                    named_params! { ":registration": registration },
                )?;
                must_be_one(OPERATION, announced)
            })
            .await
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        const OPERATION: &str = "leave";
        let registration = relay.registration.to_string();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                let left = execute(
                    tx,
                    OPERATION,
                    include_str!("sql/relay_leave.sql"),
                    named_params! {
                        ":registration": registration,
                        ":now": clock(tx, OPERATION)?,
                    },
                )?;
                // A fenced relay's partitions are revoked with a settle time, which a release would
                // lose.
                must_be_one(OPERATION, left)?;
                for (id, name, _) in served(tx, OPERATION, &registration)? {
                    give_up(tx, OPERATION, relay, (id, &name), unsettled, audit::RELEASE)?;
                    delist(tx, OPERATION, id, &registration)?;
                }
                Ok(())
            })
            .await
    }
}

#[async_trait]
impl Ownership for SqliteStore {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        const OPERATION: &str = "claim a destination";
        let wanted = Arc::new(OwnedRequest::of(request));
        let control = self.control(OPERATION).await?;
        let mut after = 0;
        loop {
            let (wanted, watch) = (Arc::clone(&wanted), Arc::clone(&self.watch));
            let claim = control.write(OPERATION, move |tx| {
                wanted.claim(tx, OPERATION, relay, &watch, after)
            });
            match claim.await? {
                ControlFlow::Break(outcome) => return Ok(outcome),
                ControlFlow::Continue(last) => after = last,
            }
        }
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "revoke a destination";
        let name = destination.to_owned();
        let watch = Arc::clone(&self.watch);
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                must_be_valid(tx, OPERATION, relay)?;
                match find(tx, OPERATION, &name)? {
                    Some(found) => revoke(tx, OPERATION, relay, found.id, settle, &watch),
                    None => Ok(()),
                }
            })
            .await
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        const OPERATION: &str = "look at a destination's relays";
        let name = destination.to_owned();
        let watch = Arc::clone(&self.watch);
        self.control(OPERATION)
            .await?
            .read(OPERATION, move |tx| {
                let found = find(tx, OPERATION, &name)?;
                let found = found.ok_or_else(|| StoreError::no_destination(OPERATION, &name))?;
                shares(tx, OPERATION, found.id, clock(tx, OPERATION)?, &watch)
            })
            .await
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "withdraw from a destination";
        let name = destination.to_owned();
        self.control(OPERATION)
            .await?
            .write(OPERATION, move |tx| {
                must_be_valid(tx, OPERATION, relay)?;
                let Some(found) = find(tx, OPERATION, &name)? else {
                    return Ok(());
                };
                let of = (found.id, name.as_str());
                give_up(tx, OPERATION, relay, of, unsettled, audit::WITHDRAW)?;
                delist(tx, OPERATION, found.id, &relay.registration.to_string())
            })
            .await
    }
}

/// A relay's own row was changed, unless the relay is fenced or gone.
fn must_be_one(operation: &'static str, changed: usize) -> Result<(), StoreError> {
    match changed {
        0 => Err(StoreError::Fenced { operation }),
        _ => Ok(()),
    }
}

/// The request of a claim, for another thread.
struct OwnedRequest {
    destination: String,
    address: String,
    rest: ClaimRequest<'static>,
}

impl OwnedRequest {
    fn of(request: &ClaimRequest<'_>) -> Self {
        Self {
            destination: request.destination.to_owned(),
            address: request.address.to_owned(),
            rest: ClaimRequest {
                destination: "",
                address: "",
                ..*request
            },
        }
    }

    fn request(&self) -> ClaimRequest<'_> {
        ClaimRequest {
            destination: &self.destination,
            address: &self.address,
            ..self.rest
        }
    }

    /// Goes on in another transaction where this one has discarded copies up to the one that it
    /// answers.
    fn claim(
        &self,
        tx: &Transaction<'_>,
        operation: &'static str,
        relay: Registered,
        watch: &Watch,
        after: i64,
    ) -> Result<ControlFlow<ClaimOutcome, i64>, StoreError> {
        must_be_valid(tx, operation, relay)?;
        let request = self.request();
        let name = request.destination;
        let found = match find(tx, operation, name)? {
            Some(found) => found,
            None => {
                let (address, start) = (request.address, request.start);
                create(tx, operation, name, address, start, relay.registration)?
            }
        };
        let (of, by) = ((found.id, name), relay.registration);
        if let Some(last) = discard_read_again(tx, operation, of, after, by)? {
            return Ok(ControlFlow::Continue(last));
        }
        revoke(tx, operation, relay, found.id, request.settle, watch)?;
        if request.is_elsewhere(operation, &found.url)? {
            let now = clock(tx, operation)?;
            let shares = shares(tx, operation, found.id, now, watch)?;
            if shares.is_served_beside(relay.registration) {
                let address = found.url;
                let elsewhere = ClaimOutcome::Elsewhere { address, shares };
                return Ok(ControlFlow::Break(elsewhere));
            }
            readdress(tx, operation, name, &found, request.address, by)?;
        }
        if request.needs_relays_that_know_its_order()
            && let Some(older) = older_relay(tx, operation)?
        {
            return Err(request.beside_older(operation, &older));
        }
        execute(
            tx,
            operation,
            include_str!("sql/member_set.sql"),
            named_params! {
                ":destination_id": found.id,
                ":registration": relay.registration.to_string(),
                ":partitions_max": request.partitions_max,
            },
        )?;
        reach(tx, operation, relay, &request, &found, watch).map(ControlFlow::Break)
    }
}

/// A live relay of a version that does not know the order of a key and a topic.
fn older_relay(
    tx: &Transaction<'_>,
    operation: &'static str,
) -> Result<Option<String>, StoreError> {
    static SQL: LazyLock<String> = LazyLock::new(|| with_live(include_str!("sql/older_relay.sql")));
    /// The first one that knows it.
    const LEVEL: i64 = 8;
    let of = named_params! { ":level": LEVEL, ":now": clock(tx, operation)? };
    at_most_one(tx, operation, &SQL, of, |row| row.get(0))
}
