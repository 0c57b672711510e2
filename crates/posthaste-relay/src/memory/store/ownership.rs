use std::{any::Any, collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    AuditWords, ClaimDecision, ClaimOutcome, ClaimRequest, DestinationState, Leases, Member,
    Ownership, Partitions, Rates, Registered, Registration, Renewal, Shares, Start, StoreError,
    audit,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    DestinationRow, Inner, MemberRow, MemoryStore, PartitionRow, RelayRow, wall_after, wall_micros,
};

/// The store's part of a claim.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) destination: usize,
    pub(super) epoch: u64,
    pub(super) incarnation: u64,
    pub(super) registration: Uuid,
    pub(super) partitions: Partitions,
}

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

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let mut rows = self.destinations.iter();
        rows.position(|row| row.name == name && row.state != DestinationState::Removed)
    }

    fn destination(&mut self, by: Uuid, request: &ClaimRequest<'_>) -> usize {
        let ClaimRequest {
            destination: name,
            address,
            start,
            ..
        } = *request;
        if let Some(index) = self.find(name) {
            return index;
        }
        let cursor = match start {
            Start::Oldest => 0,
            Start::Now => self.last_seq,
        };
        // Sinks compare epochs, relays versions: those of a removed destination are never used
        // again.
        let removed = || self.destinations.iter().filter(|row| row.name == name);
        let epoch = removed().map(|row| row.epoch).max().unwrap_or_default();
        let version = removed().map(|row| row.shares_version).max();
        let partitions = (0..self.partitions).map(|_| PartitionRow::new(cursor));
        let row = DestinationRow {
            name: name.to_owned(),
            address: address.to_owned(),
            cluster: None,
            state: DestinationState::Active,
            epoch,
            shares_version: version.unwrap_or_default() + 1,
            partitions: partitions.collect(),
            members: BTreeMap::new(),
            finished: Default::default(),
            markers: Default::default(),
            parked: Vec::new(),
            breaker: "closed".into(),
            last_error: None,
        };
        self.destinations.push(row);
        let by = self.name_of(by);
        let start = audit::start(start);
        self.note(audit::DESTINATION_CREATED, Some(&by), Some(name), &[&start]);
        self.destinations.len() - 1
    }

    fn enlist(&mut self, relay: Uuid, index: usize, partitions_max: u16) {
        let row = &mut self.destinations[index];
        let known = row.members.get(&relay);
        let member = MemberRow {
            partitions_max,
            ..known.cloned().unwrap_or_default()
        };
        let news = known.is_none_or(|member| member.partitions_max != partitions_max);
        row.shares_version += i64::from(news);
        row.members.insert(relay, member);
    }

    fn shares_of(&self, index: usize) -> Shares {
        let (row, now) = (&self.destinations[index], Instant::now());
        let live = |relay: &Uuid| self.relays.get(relay).filter(|relay| relay.is_live());
        let member = |(registration, member): (&Uuid, &MemberRow)| {
            let relay = live(registration)?;
            Some(Member {
                registration: *registration,
                name: relay.name.clone(),
                host: relay.host.clone(),
                lease_left: relay.lease_until.saturating_duration_since(now),
                owned: row.owned(*registration),
                partitions_max: member.partitions_max,
                leaving: relay.leaving,
                reaches: member.reaches,
            })
        };
        let mut shares = Shares {
            version: row.shares_version,
            members: row.members.iter().filter_map(member).collect(),
            ..Shares::default()
        };
        for partition in &row.partitions {
            shares.partitions += 1;
            let wait = partition.not_before.saturating_duration_since(now);
            match partition.owner {
                Some(owner) => shares.dead += u16::from(live(&owner).is_none()),
                None if wait.is_zero() => shares.free += 1,
                None => {
                    shares.settling += 1;
                    let first = shares.settled_in.unwrap_or(wait).min(wait);
                    shares.settled_in = Some(first);
                }
            }
        }
        shares
    }

    /// Another look at whatever this relay serves is worth its while.
    fn changed_for(&mut self, relay: Uuid) {
        let rows = self.destinations.iter_mut();
        for row in rows.filter(|row| row.members.contains_key(&relay)) {
            row.shares_version += 1;
        }
    }

    /// Gives up all of a destination and serves it no longer.
    fn end(&mut self, relay: Uuid, index: usize, unsettled: Duration, words: AuditWords) {
        let given = self.give_up(relay, index, unsettled);
        let row = &mut self.destinations[index];
        row.shares_version += i64::from(row.members.remove(&relay).is_some());
        let name = row.name.clone();
        if given > 0 {
            let us = self.name_of(relay);
            self.note(words, Some(&us), Some(&name), &[&given]);
        }
    }
}

#[async_trait]
impl Leases for MemoryStore {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let mut inner = self.lock();
        let registered = Registered {
            registration: inner.new_id(),
        };
        let row = RelayRow {
            name: registration.name.clone(),
            version: registration.version.clone(),
            host: registration.host.clone(),
            lease_until: Instant::now() + registration.lease,
            lease_until_wall: wall_after(registration.lease),
            rates: Rates::new(),
            started_at: wall_micros(),
            fenced: false,
            leaving: false,
        };
        inner.relays.insert(registered.registration, row);
        Ok(registered)
    }

    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        rates: &Rates,
    ) -> Result<Renewal, StoreError> {
        let mut inner = self.lock();
        let row = inner.relay(relay, "renewing the lease")?;
        row.lease_until = Instant::now() + lease;
        row.lease_until_wall = wall_after(lease);
        row.rates.clone_from(rates);
        let rows = inner.destinations.iter().enumerate();
        let served = rows.filter(|(_, row)| row.members.contains_key(&relay.registration));
        let seen = served.map(|(index, row)| (row.name.clone(), row.state, inner.shares_of(index)));
        Ok(Renewal {
            destinations: seen.collect(),
        })
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let us = inner.relay(by, "fencing a relay")?.name.clone();
        let row = inner.relays.get_mut(&dead).filter(|row| !row.fenced);
        let Some(row) = row else { return Ok(()) };
        row.fenced = true;
        let name = row.name.clone();
        let values: [&dyn Display; 3] = [&name, &dead, &why];
        inner.note(audit::FENCE, Some(&us), None, &values);
        inner.changed_for(dead);
        Ok(())
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.relay(relay, "announcing to leave")?.leaving = true;
        inner.changed_for(relay.registration);
        Ok(())
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.relay(relay, "leaving")?;
        for index in 0..inner.destinations.len() {
            inner.end(relay.registration, index, unsettled, audit::RELEASE);
        }
        inner.relays.remove(&relay.registration);
        Ok(())
    }
}

#[async_trait]
impl Ownership for MemoryStore {
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        let (mut inner, us) = (self.lock(), relay.registration);
        inner.relay(relay, "claiming")?;
        let index = inner.destination(us, request);
        inner.revoke(us, index, request.settle);
        let address = inner.destinations[index].address.clone();
        if request.is_elsewhere("claiming", &address)? {
            let shares = inner.shares_of(index);
            if shares.is_served_beside(us) {
                return Ok(ClaimOutcome::Elsewhere { address, shares });
            }
        }
        inner.enlist(us, index, request.partitions_max);
        let found = inner.look(index);
        let changes = found.share_out(us, request, None);
        let decision = ClaimDecision::new(found, us, &changes);
        inner.apply(us, index, &decision, request.unsettled);
        if address != request.address {
            let (by, name) = (inner.name_of(us), request.destination);
            let values: [&dyn Display; 2] = [&address, &request.address];
            inner.note(audit::ADDRESS_CHANGED, Some(&by), Some(name), &values);
        }
        let incarnation = inner.incarnation;
        let row = &mut inner.destinations[index];
        request.address.clone_into(&mut row.address);
        let epoch = row.epoch;
        let held = |_, partitions: &Partitions| -> Arc<dyn Any + Send + Sync> {
            Arc::new(Held {
                destination: index,
                epoch,
                incarnation,
                registration: us,
                partitions: partitions.clone(),
            })
        };
        // No row ever goes.
        let id = i64::try_from(index).unwrap_or(i64::MAX);
        decision.outcome(id, request, inner.shares_of(index), held)
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.relay(relay, "revoking partitions")?;
        if let Some(index) = inner.find(destination) {
            inner.revoke(relay.registration, index, settle);
        }
        Ok(())
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        let inner = self.lock();
        let index = inner.find(destination);
        let index = index.ok_or_else(|| StoreError::Misconfigured {
            operation: "looking at a destination's shares",
            reason: format!("there is no destination `{destination}`"),
        })?;
        Ok(inner.shares_of(index))
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.relay(relay, "withdrawing")?;
        if let Some(index) = inner.find(destination) {
            inner.end(relay.registration, index, unsettled, audit::WITHDRAW);
        }
        Ok(())
    }
}
