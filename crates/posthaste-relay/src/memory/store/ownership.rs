use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    ClaimDecision, ClaimOutcome, ClaimRequest, Leases, Ownership, Partitions, Registered,
    Registration, RelayReport, Renewal, Shares, Start, StoreError, audit,
    memory_tables::{ClaimRow, Tables},
};
use uuid::Uuid;

use super::{Inner, MemoryMode, MemoryStore, wall_micros};

/// The store's part of a claim.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) claim: ClaimRow,
    incarnation: u64,
    partitions: Partitions,
}

impl Held {
    /// Whether this claim is still the newest in this incarnation.
    pub(super) fn guard(&self, inner: &Inner, operation: &'static str) -> Result<(), StoreError> {
        if inner.incarnation != self.incarnation {
            return Err(StoreError::IncarnationChanged { operation });
        }
        match inner.tables.is_newest(&self.claim) {
            true => Ok(()),
            false => Err(StoreError::Fenced { operation }),
        }
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.partitions.contains_slot(slot)
    }

    /// The destination and the relay.
    pub(super) fn of(&self) -> (i64, Uuid) {
        (self.claim.destination_id, self.claim.registration)
    }
}

fn shares(tables: &Tables<i64>, destination: &str, now: i64) -> Result<Shares, StoreError> {
    let id = tables.destination_id(destination);
    let shares = id.and_then(|id| tables.shares(id, now));
    shares.ok_or_else(|| none(destination))
}

fn none(destination: &str) -> StoreError {
    StoreError::no_destination("looking at a destination", destination)
}

#[async_trait]
impl Leases for MemoryStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let mut inner = self.lock();
        let id = inner.new_id();
        inner.tables.register(id, registration, wall_micros());
        Ok(Registered { registration: id })
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        report: &RelayReport,
    ) -> Result<Renewal, StoreError> {
        let (tables, asked) = (&mut self.lock().tables, (lease, report.clone()));
        tables.renew(
            relay.registration,
            asked,
            wall_micros(),
            "renewing the lease",
        )
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        let tables = &mut self.lock().tables;
        tables.fence(by.registration, dead, why, wall_micros(), "fencing a relay")
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        let tables = &mut self.lock().tables;
        tables.announce_leaving(relay.registration, "announcing to leave")
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let (tables, now) = (&mut self.lock().tables, wall_micros());
        tables.leave(relay.registration, None, audit::RELEASE, unsettled, now)
    }
}

#[async_trait]
impl Ownership for MemoryStore {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        const OPERATION: &str = "claiming";
        let (inner, now) = (&mut *self.lock(), wall_micros());
        let (tables, us, name) = (&mut inner.tables, relay.registration, request.destination);
        tables.unless_fenced(us, OPERATION)?;
        let id = tables.destination_id(name).unwrap_or_else(|| {
            let place = match request.start {
                Start::Oldest => 0,
                Start::Now => inner.last_seq,
            };
            let has = |seq| inner.log.contains_key(&seq);
            let id = tables.create(name, place, (us, request.start), has, now);
            // Events that are inserted and not committed yet are pending at their commit.
            if inner.mode == MemoryMode::Mark {
                let unfinished = inner.unfinished.entry(id).or_default();
                if request.start == Start::Oldest {
                    unfinished.extend(inner.log.keys());
                }
            }
            id
        });
        tables.fence_and_revoke(us, id, request.settle, now);
        let (address, found) = tables.look(id, now).ok_or_else(|| none(name))?;
        if request.is_elsewhere(OPERATION, &address)? {
            let shares = shares(tables, name, now)?;
            if shares.is_served_beside(us) {
                return Ok(ClaimOutcome::Elsewhere { address, shares });
            }
        }
        let mut changes = found.share_out(us, request, None);
        for change in changes.iter_mut().filter(|change| change.splits()) {
            change.free_row = tables.split(id, change)?;
        }
        let decision = ClaimDecision::new(found, us, &changes);
        tables.apply(us, id, (request, &decision), now);
        let (epoch, incarnation) = (decision.epoch, inner.incarnation);
        let held = |cursor_id, partitions: &Partitions| -> Arc<dyn Any + Send + Sync> {
            Arc::new(Held {
                claim: ClaimRow {
                    destination_id: id,
                    cursor_id,
                    epoch,
                    registration: us,
                },
                incarnation,
                partitions: partitions.clone(),
            })
        };
        decision.outcome(id, request, shares(tables, name, now)?, held)
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        let (tables, us) = (&mut self.lock().tables, relay.registration);
        tables.unless_fenced(us, "revoking partitions")?;
        if let Some(id) = tables.destination_id(destination) {
            tables.fence_and_revoke(us, id, settle, wall_micros());
        }
        Ok(())
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        shares(&self.lock().tables, destination, wall_micros())
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        let (tables, us, now) = (&mut self.lock().tables, relay.registration, wall_micros());
        tables.leave(us, Some(destination), audit::WITHDRAW, unsettled, now)
    }
}
