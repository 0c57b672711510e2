//! A relay's right to live: its registration and the lease of it.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::{DestinationState, Registered, Registration, Shares, StoreError};

/// The answer to a renewal.
#[derive(Debug, Clone, Default)]
pub struct Renewal {
    /// Every destination that this relay serves, by name.
    pub destinations: Vec<(String, DestinationState, Shares)>,
}

/// Events that a relay's destinations accepted in a second, by the destination's name.
pub type Rates = BTreeMap<String, f64>;

/// Registrations and their leases. All times are the database's clock.
///
/// A registration is one life of a relay. Once somebody has fenced it, it never comes back.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Registers a new life of a relay with a fresh lease, and refills the incarnation token if the
    /// database lost it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError>;

    /// Renews the lease, and notes how fast the relay delivers for operators to see
    /// ([`super::DestinationStatus::accepted_per_second`]).
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when somebody fenced this registration: it never comes back.
    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        rates: &Rates,
    ) -> Result<Renewal, StoreError>;

    /// Fences another registration whose process is known to be gone, whatever its lease says. A
    /// lease that has run out needs no call: [`claim`](super::Ownership::claim) and
    /// [`revoke`](super::Ownership::revoke) fence it.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when `by` itself is fenced.
    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError>;

    /// Tells the others that this relay is about to leave, so that they look out for what becomes
    /// free.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError>;

    /// Ends a registration: releases all its claims and its lease. `unsettled` says for how long
    /// bytes of an aborted lane may still arrive; it is carried on to the next owner and never
    /// lowers what stands there.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when somebody fenced this registration: it has nothing to release,
    /// whoever takes over from it has to settle.
    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError>;
}
