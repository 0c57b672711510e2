//! A relay's right to live: its registration and the lease of it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use async_trait::async_trait;
use uuid::Uuid;

use super::{Registered, Registration, Shares, StoreError, Wanted};
use crate::HeldPlace;

/// The answer to a renewal.
#[derive(Debug, Clone, Default)]
pub struct Renewal {
    /// Every destination that this relay serves, by name.
    pub destinations: Vec<(String, Wanted, Shares)>,
}

/// A relay's report to operators, by the destination's name.
pub type RelayReport = BTreeMap<String, DestinationReport>;

/// How a destination is doing at one relay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DestinationReport {
    /// Events that it accepted in a second.
    pub accepted_per_second: f64,
    /// How many of its places are held back.
    pub places_held: usize,
    /// Of these the [`PLACES_NAMED`] that were held back first.
    pub places: Vec<HeldPlace>,
}

/// So many places of a destination are told of by name.
pub const PLACES_NAMED: usize = 20;

/// The reports of several relays on the places of one destination, as one: how many are held back
/// at the least, and the first of them.
#[must_use]
pub fn merge_places(
    told: impl IntoIterator<Item = (usize, Vec<HeldPlace>)>,
) -> (usize, Vec<HeldPlace>) {
    let (mut held, mut by_name) = (0, BTreeMap::<Box<str>, HeldPlace>::new());
    for (count, places) in told {
        held = held.max(count);
        for place in places {
            match by_name.entry(place.name.clone()) {
                Entry::Vacant(new) => drop(new.insert(place)),
                Entry::Occupied(mut known) => known.get_mut().and(place),
            }
        }
    }
    held = held.max(by_name.len());
    let mut places: Vec<HeldPlace> = by_name.into_values().collect();
    places.sort_by_key(|place| Reverse(place.held_for));
    places.truncate(PLACES_NAMED);
    (held, places)
}

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

    /// Renews the lease, and notes what the relay tells operators ([`super::DestinationStatus`]).
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when somebody fenced this registration: it never comes back.
    async fn renew(
        &self,
        relay: Registered,
        lease: Duration,
        report: &RelayReport,
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
