//! The right to move a cursor: partitions, their owners, and claims with epochs.

use std::{any::Any, collections::BTreeSet, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::{HostIdentity, Registered, StoreError};
use crate::Partitions;

/// The state that operators want of a destination.
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

/// The operators' wishes for a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Of it as a whole.
    pub state: DestinationState,
    /// Its places that are to get nothing, while the others do.
    pub paused_places: BTreeSet<String>,
}

impl Wanted {
    /// The destination as a whole, and no place of its own.
    #[must_use]
    pub fn whole(state: DestinationState) -> Self {
        let paused_places = BTreeSet::new();
        Self {
            state,
            paused_places,
        }
    }

    /// Pauses a place, or resumes it. Whether that changes anything.
    ///
    /// # Errors
    /// [`too_many_paused`](Self::too_many_paused).
    pub fn set_place(
        &mut self,
        place: &str,
        paused: bool,
        operation: &'static str,
    ) -> Result<bool, StoreError> {
        let places = &mut self.paused_places;
        if !paused {
            return Ok(places.remove(place));
        }
        if places.len() >= PAUSED_PLACES_MAX && !places.contains(place) {
            return Err(Self::too_many_paused(operation));
        }
        Ok(places.insert(place.to_owned()))
    }

    /// No more than [`PAUSED_PLACES_MAX`] may be paused.
    #[must_use]
    pub fn too_many_paused(operation: &'static str) -> StoreError {
        StoreError::Misconfigured {
            operation,
            reason: format!(
                "{PAUSED_PLACES_MAX} places of it are paused, as many as may be: resume one, or \
                 pause the destination"
            ),
        }
    }
}

/// So many places of a destination may be paused: every renewal of a lease tells all of them.
pub const PAUSED_PLACES_MAX: usize = 100;

/// Where a new destination starts; an existing one goes on where it stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the oldest event that the outbox still holds.
    #[default]
    Oldest,
    /// Behind everything that is visible now.
    Now,
}

/// A live relay that serves a destination, as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its registration.
    pub registration: Uuid,
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub host: HostIdentity,
    /// How long its lease still lasts, by the database's clock.
    pub lease_left: Duration,
    /// Partitions of the destination that it owns.
    pub owned: u16,
    /// Partitions of the destination that it owns at the most.
    pub partitions_max: u16,
    /// It is about to stop: what it owns will soon be free.
    pub leaving: bool,
    /// Whether it reached the broker when it last tried ([`super::ClaimReports::report`]); none: it
    /// did not try.
    pub reaches: Option<bool>,
}

/// How a destination's partitions are shared out. Seen at one moment: only a claim decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// Changes whenever another look is worth its while ([`super::Page::shares_version`]).
    pub version: i64,
    /// The destination's partitions.
    pub partitions: u16,
    /// The live relays that serve it, whoever asks included, by registration.
    pub members: Vec<Member>,
    /// Partitions that nobody owns and a claim may take now.
    pub free: u16,
    /// Partitions that nobody owns and that wait for the end of a settle time.
    pub settling: u16,
    /// The rest of the first of these settle times.
    pub settled_in: Option<Duration>,
    /// Partitions of relays that are fenced, or whose lease is over: to be revoked.
    pub dead: u16,
    /// The stored number of partitions is another one than the destination has: a claim of what we
    /// own brings it nearer.
    pub recut: bool,
}

impl Shares {
    /// The member of this registration.
    #[must_use]
    pub fn member(&self, registration: Uuid) -> Option<&Member> {
        let mut members = self.members.iter();
        members.find(|member| member.registration == registration)
    }
}

/// How many partitions a claim is to own afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// All of them, or none while a live relay owns one.
    All,
    /// So many at the most; none only enlists the relay. Partitions that are owned already are kept
    /// first, then free ones are taken; what is owned beyond is given up.
    AtMost(u16),
}

/// The request of a relay. Nothing of the destination is in flight, and whatever was read is
/// dropped.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    /// The destination's name.
    pub destination: &'a str,
    /// The destination's target: the sink's URL without secrets, and before it the order that the
    /// destination keeps ([`OrderBy::target`](crate::OrderBy::target)). The store keeps it: events
    /// go to one address at a time.
    /// Another one takes its place, and is audited, once no other live relay serves the
    /// destination; progress goes on, since it belongs to the name.
    pub address: &'a str,
    /// An address of another kind of broker is meant, too; else it is refused.
    pub retarget: bool,
    /// Where the destination starts if it is new.
    pub start: Start,
    /// How many partitions.
    pub want: Want,
    /// Partitions that this relay wants at the most, for the others to know.
    pub partitions_max: u16,
    /// How long bytes of a dead relay may still arrive; zero where the sink fences.
    pub settle: Duration,
    /// How long bytes of our own aborted lane may still arrive. Carried on by what is given up.
    pub unsettled: Duration,
}

impl<'a> ClaimRequest<'a> {
    /// A claim of the whole destination, from the oldest event if it is new.
    #[must_use]
    pub fn all(destination: &'a str, address: &'a str) -> Self {
        Self {
            destination,
            address,
            retarget: false,
            start: Start::Oldest,
            want: Want::All,
            partitions_max: u16::MAX,
            settle: Duration::ZERO,
            unsettled: Duration::ZERO,
        }
    }
}

/// The right to move the cursors of some of a destination's partitions.
#[derive(Clone)]
pub struct Claim {
    /// The destination's name.
    pub destination: String,
    /// The store's number of the destination. One that is removed and made again gets another.
    pub destination_id: i64,
    /// Raised by every claim of the destination; only the newest of a partition may change
    /// anything.
    pub epoch: u64,
    /// The partitions that are owned.
    pub partitions: Partitions,
    /// How long to wait before anything is sent: the rest of a settle time. Only a claim of a relay
    /// that owned nothing has one; others are given no partition before it is over.
    pub settle: Duration,
    /// The operators' wishes for the destination.
    pub wanted: Wanted,
    /// Whether the destination's breaker is open ([`super::DestinationStatus::breaker`]): then it
    /// is probed first.
    pub breaker_open: bool,
    /// The identity of the store: part of what names this claim's owner at a broker.
    pub store_id: Uuid,
    /// Former owners that may still have something under way at the broker: their fences are taken
    /// before anything is sent, and [`super::ClaimReports::fences_taken`] removes them.
    pub former: Vec<Uuid>,
    /// How the destination was shared out when the claim was made, this claim included.
    pub shares: Shares,
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
            .field("wanted", &self.wanted)
            .field("breaker_open", &self.breaker_open)
            .field("former", &self.former)
            .finish_non_exhaustive()
    }
}

/// The answer to a claim.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// Ours, under a raised epoch.
    Owned(Claim),
    /// We own nothing of it: others do, or it has to settle first.
    Held(Shares),
    /// Live relays deliver its events to another address: we are not enlisted, and own what we
    /// owned.
    Elsewhere {
        /// The address that is stored.
        address: String,
        /// The relays that serve it.
        shares: Shares,
    },
}

/// The owners of all partitions. All times are the database's clock.
///
/// The row is the only authority: a partition that a live registration owns is taken by nobody
/// else, it is given up by its owner. A registration whose lease is over is fenced first, then what
/// it owned is revoked (its epoch is raised, its settle time begins), then it is free.
#[async_trait]
pub trait Ownership: Send + Sync {
    /// Revokes first ([`revoke`](Self::revoke)), then brings what this relay owns of a destination
    /// to what it wants, all under one raised epoch; enlists the relay as one that serves the
    /// destination, and creates the destination if it is new. Claiming what is already ours raises
    /// the epoch: that is how memory is dropped safely. A removed destination's name makes a new
    /// one, whose epochs go on above the removed one's: sinks compare them.
    ///
    /// A store that does not share destinations out ([`super::StoreInfo::shares_out`]) takes every
    /// positive number for [`Want::All`].
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when `relay` itself is fenced; [`StoreError::Misconfigured`] where
    /// the destination has an address of another kind ([`ClaimRequest::is_elsewhere`]).
    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError>;

    /// Fences the registrations whose lease is over and makes what dead relays own of the
    /// destination free, once `settle` is over. Touches nothing that is ours.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when `relay` itself is fenced.
    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError>;

    /// How a destination is shared out now.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Misconfigured`] when there is no such destination.
    async fn shares(&self, destination: &str) -> Result<Shares, StoreError>;

    /// Gives up everything of one destination and serves it no longer. `unsettled` as in
    /// [`leave`](super::Leases::leave).
    ///
    /// # Errors
    /// [`StoreError`].
    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError>;
}
