//! A store that is watched: what its answers make true is noted at the moment they are given.

mod claim;
mod lane;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AuditLine, Claim, ClaimOutcome, ClaimRequest, Claimed, DeadAction, DestinationState,
    Housekeeping, Leases, Ownership, ParkedEvent, ParkedFilter, Partitions, Rates, Registered,
    Registration, Renewal, Retained, Retention, Shares, Status, Store, StoreError, StoreInfo,
};
use uuid::Uuid;

use crate::{
    seen::{DestinationIndex, Seen},
    trace::Trace,
};
use claim::{ObservedClaim, Of};
pub(crate) use lane::ObservedSink;

/// The place of a destination's name: `d0`, `d1`.
pub(crate) fn place_of(destination: &str) -> DestinationIndex {
    destination
        .strip_prefix('d')
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

/// The most partitions that a run has.
const CELLS: u16 = 128;

/// Partitions as cells of the finest cut, so that those of another number of partitions can be
/// compared.
pub(crate) fn cells(partitions: &Partitions) -> Vec<u16> {
    let of_each = (CELLS / partitions.count()).max(1);
    let cells = |partition| (0..of_each).map(move |cell| partition * of_each + cell);
    partitions.iter().flat_map(cells).collect()
}

/// Counters that all relays' stores share.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) trace: Trace,
    /// How many crashes the database has seen.
    pub(crate) life: Arc<AtomicU64>,
    /// How many claims were granted.
    claims: Arc<AtomicU64>,
}

impl Observer {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            trace,
            life: Arc::default(),
            claims: Arc::default(),
        }
    }
}

pub(crate) struct Observed {
    inner: Arc<dyn Store>,
    observer: Observer,
    /// The registration that this relay's process had last.
    pub(crate) registration: Arc<Mutex<Option<Uuid>>>,
}

impl Observed {
    pub(crate) fn new(inner: Arc<dyn Store>, observer: Observer) -> Self {
        Self {
            inner,
            observer,
            registration: Arc::default(),
        }
    }
}

#[async_trait]
impl Leases for Observed {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let registered = self.inner.register(registration).await?;
        let mut ours = self
            .registration
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *ours = Some(registered.registration);
        Ok(registered)
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        rates: &Rates,
    ) -> Result<Renewal, StoreError> {
        self.inner.renew(relay, lease, rates).await
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        self.inner.fence(by, dead, why).await
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        self.inner.announce_leaving(relay).await
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        self.inner.leave(relay, unsettled).await
    }
}

#[async_trait]
impl Ownership for Observed {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        let (life, claims) = (
            self.observer.life.load(Relaxed),
            self.observer.claims.load(Relaxed),
        );
        let outcome = self.inner.claim(relay, request).await?;
        if let ClaimOutcome::Owned(claim) = &outcome {
            self.observer.claims.fetch_add(1, Relaxed);
            self.observer.trace.see(&Seen::Claimed {
                place: place_of(&claim.destination),
                epoch: claim.epoch,
                partitions: cells(&claim.partitions),
                registration: relay.registration,
                life,
                claims,
            });
        }
        Ok(outcome)
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        self.inner.revoke(relay, destination, settle).await
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        self.inner.shares(destination).await
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        self.inner.withdraw(relay, destination, unsettled).await
    }
}

#[async_trait]
impl Admin for Observed {
    async fn status(&self) -> Result<Status, StoreError> {
        self.inner.status().await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        self.inner.hand_overs(limit).await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        self.inner.parked(filter, limit).await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        self.inner.act(filter, action).await
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        self.inner.set_destination(name, state).await
    }
}

#[async_trait]
impl Retention for Observed {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let done = self.inner.housekeep(by).await?;
        if done.events > 0 {
            let Observer { trace, .. } = &self.observer;
            trace.note(format_args!("{} events removed", done.events));
        }
        Ok(done)
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        self.inner.retained().await
    }
}

#[async_trait]
impl Store for Observed {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        let life = self.observer.life.load(Relaxed);
        let inner = self.inner.open(claim).await?;
        let registration = self.registration.lock();
        let registration = *registration.unwrap_or_else(PoisonError::into_inner);
        let of = Of::new(
            self.observer.clone(),
            claim,
            registration.unwrap_or_default(),
            life,
        );
        Ok(Arc::new(ObservedClaim::new(inner, of)))
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }
}
