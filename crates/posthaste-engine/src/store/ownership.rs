//! Who may move which cursor: relays with leases, claims with epochs.

use std::{any::Any, fmt, ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;

/// What tells one life of a process from another, on the machine where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostIdentity {
    /// The kernel's boot id.
    pub boot_id: String,
    /// The process namespace.
    pub pid_namespace: String,
    /// Process id inside that namespace.
    pub pid: u32,
    /// The process's start time, in the kernel's own unit since boot.
    pub process_started: u64,
}

/// What a relay tells about itself when it registers.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The relay's name; two live relays may share it.
    pub name: String,
    /// The relay's version.
    pub version: String,
    /// Where it runs.
    pub host: HostIdentity,
    /// How long the right to live lasts without renewal.
    pub lease: Duration,
}

/// A registered relay. A restart registers anew: the registration never comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registered {
    /// The identity of this life of the relay.
    pub registration: Uuid,
}

/// What operators want of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DestinationState {
    /// Deliver.
    Active,
    /// Read and deliver nothing; progress stands and pins retention.
    Paused,
    /// Taken out of service; its progress is gone.
    Removed,
}

impl DestinationState {
    /// The name used in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Removed => "removed",
        }
    }
}

/// What a renewal learned.
#[derive(Debug, Clone, Default)]
pub struct Renewal {
    /// The state of every destination that this relay has claimed, by name.
    pub destinations: Vec<(String, DestinationState)>,
}

/// Where a new destination starts; an existing one goes on where it stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the oldest event that the outbox still holds.
    #[default]
    Oldest,
    /// Behind everything that is visible now.
    Now,
}

/// The right to move the cursors of a range of a destination's partitions.
#[derive(Clone)]
pub struct Claim {
    /// The destination's name.
    pub destination: String,
    /// Raised by every claim of these partitions; only the newest may change anything.
    pub epoch: u64,
    /// The partitions that are owned.
    pub partitions: Range<u16>,
    /// How long to wait before anything is sent: the rest of a settle time.
    pub settle: Duration,
    /// What the operator wants of the destination.
    pub state: DestinationState,
    /// Whether the destination's breaker was open when an owner last reported it
    /// ([`super::Claimed::report`]): then it is probed first.
    pub breaker_open: bool,
    /// The store's own part (ids, incarnation).
    pub inner: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("destination", &self.destination)
            .field("epoch", &self.epoch)
            .field("partitions", &self.partitions)
            .field("settle", &self.settle)
            .field("state", &self.state)
            .field("breaker_open", &self.breaker_open)
            .finish_non_exhaustive()
    }
}

/// Who holds what we want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its registration.
    pub registration: Uuid,
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub host: HostIdentity,
    /// How long its lease still lasts, by the database's clock.
    pub lease_left: Duration,
}

/// The answer to a claim.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// Ours, under a raised epoch.
    Owned(Claim),
    /// A live relay holds it.
    Held(Holder),
}

/// Leases and claims. All times are the database's clock.
#[async_trait]
pub trait Ownership: Send + Sync {
    /// Registers a new life of a relay with a fresh lease, and refills the incarnation token if the
    /// database lost it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError>;

    /// Renews the lease.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when somebody fenced this registration: it never comes back.
    async fn renew(&self, relay: Registered, lease: Duration) -> Result<Renewal, StoreError>;

    /// Fences another registration whose process is known to be gone, whatever its lease says. A
    /// lease that has run out needs no call: [`claim`](Self::claim) fences it.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when `by` itself is fenced.
    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError>;

    /// Claims all partitions of a destination that no live registration holds; creates the destination
    /// at `start` if it is new. A dead holder's registration is fenced first, then the epoch is raised;
    /// a claim from a fenced holder sets the settle time. Claiming what is already ours raises the
    /// epoch: that is how memory is dropped safely. A removed destination's name makes a new one,
    /// whose epochs go on above the removed one's: sinks compare them.
    ///
    /// `address` is the sink's URL without secrets. It is kept for operators; a changed one is audited,
    /// and progress goes on, since it belongs to the name.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when `relay` itself is fenced.
    async fn claim(
        &self,
        relay: Registered,
        destination: &str,
        address: &str,
        start: Start,
        settle: Duration,
    ) -> Result<ClaimOutcome, StoreError>;

    /// Ends a registration: releases all its claims and its lease. `unsettled` says for how long bytes
    /// of an aborted lane may still arrive; it is carried on to the next owner and never lowers what
    /// stands there.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError>;
}
