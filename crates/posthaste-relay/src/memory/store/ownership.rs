use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    Claim, ClaimOutcome, DestinationState, Holder, Ownership, Registered, Registration, Renewal,
    Start, StoreError,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{DestinationRow, Inner, MemoryStore, RelayRow, wall_after};

/// The store's part of a claim.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) destination: usize,
    pub(super) epoch: u64,
    pub(super) incarnation: u64,
    pub(super) registration: Uuid,
}

const PARTITIONS: Range<u16> = 0..64;

impl RelayRow {
    pub(super) fn is_live(&self) -> bool {
        !self.fenced && self.lease_until > Instant::now()
    }
}

impl Inner {
    fn relay(
        &mut self,
        relay: Registered,
        operation: &'static str,
    ) -> Result<&mut RelayRow, StoreError> {
        let row = self
            .relays
            .get_mut(&relay.registration)
            .filter(|row| !row.fenced);
        row.ok_or(StoreError::Fenced { operation })
    }

    fn destination(&mut self, name: &str, address: &str, start: Start) -> usize {
        let found = self
            .destinations
            .iter()
            .position(|row| row.name == name && row.state != DestinationState::Removed);
        if let Some(index) = found {
            return index;
        }
        let last = self.last_seq;
        // Sinks compare epochs: those of a removed destination are never used again.
        let removed = self.destinations.iter().filter(|row| row.name == name);
        let epoch = removed.map(|row| row.epoch).max().unwrap_or_default();
        self.destinations.push(DestinationRow {
            name: name.to_owned(),
            address: address.to_owned(),
            state: DestinationState::Active,
            owner: None,
            epoch,
            not_before: Instant::now(),
            cursor: if start == Start::Now { last } else { 0 },
            finished: Default::default(),
            markers: Default::default(),
            parked: Vec::new(),
            breaker: "closed".into(),
            last_error: None,
        });
        self.destinations.len() - 1
    }

    /// Who else holds the destination; its registration is fenced if its lease has run out. The second
    /// answer: it was taken from a fenced relay.
    fn holder(&mut self, index: usize, relay: Registered) -> (Option<Holder>, bool) {
        let owner = self.destinations[index]
            .owner
            .filter(|owner| *owner != relay.registration);
        let Some(registration) = owner else {
            return (None, false);
        };
        let Some(row) = self.relays.get_mut(&registration) else {
            return (None, true);
        };
        if row.is_live() {
            let lease_left = row.lease_until - Instant::now();
            let (name, host) = (row.name.clone(), row.host.clone());
            return (
                Some(Holder {
                    registration,
                    name,
                    host,
                    lease_left,
                }),
                false,
            );
        }
        row.fenced = true;
        (None, true)
    }
}

#[async_trait]
impl Ownership for MemoryStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let registered = Registered {
            registration: Uuid::now_v7(),
        };
        let row = RelayRow {
            name: registration.name.clone(),
            version: registration.version.clone(),
            host: registration.host.clone(),
            lease_until: Instant::now() + registration.lease,
            lease_until_wall: wall_after(registration.lease),
            fenced: false,
        };
        self.lock().relays.insert(registered.registration, row);
        Ok(registered)
    }

    async fn renew(&self, relay: Registered, lease: Duration) -> Result<Renewal, StoreError> {
        let mut inner = self.lock();
        let row = inner.relay(relay, "renewing the lease")?;
        row.lease_until = Instant::now() + lease;
        row.lease_until_wall = wall_after(lease);
        let owned = inner
            .destinations
            .iter()
            .filter(|d| d.owner == Some(relay.registration));
        Ok(Renewal {
            destinations: owned.map(|d| (d.name.clone(), d.state)).collect(),
        })
    }

    async fn fence(&self, by: Registered, dead: Uuid, _why: &str) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.relay(by, "fencing a relay")?;
        if let Some(row) = inner.relays.get_mut(&dead) {
            row.fenced = true;
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
        let mut inner = self.lock();
        inner.relay(relay, "claiming")?;
        let index = inner.destination(destination, address, start);
        let (holder, from_fenced) = inner.holder(index, relay);
        if let Some(holder) = holder {
            return Ok(ClaimOutcome::Held(holder));
        }
        let incarnation = inner.incarnation;
        let row = &mut inner.destinations[index];
        let now = Instant::now();
        if from_fenced {
            row.not_before = row.not_before.max(now + settle);
        }
        row.owner = Some(relay.registration);
        row.address = address.to_owned();
        row.epoch += 1;
        let held = Held {
            destination: index,
            epoch: row.epoch,
            incarnation,
            registration: relay.registration,
        };
        Ok(ClaimOutcome::Owned(Claim {
            destination: destination.to_owned(),
            epoch: row.epoch,
            partitions: PARTITIONS,
            settle: row.not_before.saturating_duration_since(now),
            state: row.state,
            breaker_open: row.breaker == "open",
            inner: Arc::new(held),
        }))
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.relay(relay, "leaving")?;
        let not_before = Instant::now() + unsettled;
        for row in &mut inner.destinations {
            if row.owner == Some(relay.registration) {
                row.owner = None;
                row.not_before = row.not_before.max(not_before);
            }
        }
        inner.relays.remove(&relay.registration);
        Ok(())
    }
}
