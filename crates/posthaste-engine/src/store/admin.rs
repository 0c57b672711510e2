//! Views and acts of operators. These calls need no claim; a running relay notices their effect.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::{DestinationState, HostIdentity, Retained, StoreError};
use crate::{HeldPlace, StoredEvent};

/// The state of a parked event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParkedState {
    /// Waits for its next attempt.
    Parked,
    /// Its attempts are used up.
    Dead,
    /// Left behind by policy or by an operator; kept.
    Skipped,
    /// Left behind by an operator, its payload erased.
    Discarded,
    /// Accepted by the broker in a later attempt.
    Delivered,
}

impl ParkedState {
    /// The name used in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Skipped => "skipped",
            Self::Discarded => "discarded",
            Self::Delivered => "delivered",
        }
    }

    /// Whether it waits for an attempt or an operator.
    #[must_use]
    pub fn waits(self) -> bool {
        matches!(self, Self::Parked | Self::Dead)
    }

    /// The state of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Parked,
            Self::Dead,
            Self::Skipped,
            Self::Discarded,
            Self::Delivered,
        ]
        .into_iter()
        .find(|state| state.as_str() == name)
    }
}

/// A parked event as an operator sees it.
#[derive(Debug, Clone)]
pub struct ParkedEvent {
    /// The destination that refused it.
    pub destination: String,
    /// Its state.
    pub state: ParkedState,
    /// Attempts made.
    pub attempts: u32,
    /// The class of the last failure.
    pub kind: String,
    /// The broker's last answer.
    pub reason: String,
    /// When it was parked: microseconds since 1970-01-01 UTC, database's clock.
    pub parked_at: i64,
    /// When it is due again, likewise; none when it is not going to be tried by itself.
    pub due_at: Option<i64>,
    /// Whether its key waits for it: an event without a key, and one that was skipped once, hold
    /// nothing up.
    pub holds_key: bool,
    /// The event; its payload is none once it was discarded.
    pub event: StoredEvent,
}

/// Which parked events are meant. All given conditions hold together.
#[derive(Debug, Clone, Default)]
pub struct ParkedFilter {
    /// Of this destination only.
    pub destination: Option<String>,
    /// With this event id.
    pub id: Option<Uuid>,
    /// With this key.
    pub key: Option<String>,
    /// In this state; none: those that still wait, parked or dead.
    pub state: Option<ParkedState>,
}

impl ParkedFilter {
    /// True where the action is one on skipped events, which it leaves alone unless they are named.
    #[must_use]
    pub fn means_skipped(&self, action: DeadAction) -> bool {
        self.state == Some(ParkedState::Skipped) && action != DeadAction::Skip
    }

    /// True where the action undoes skipping: copies that a removed destination left come along.
    #[must_use]
    pub fn undoes_skipping(&self, action: DeadAction) -> bool {
        self.means_skipped(action) && action == DeadAction::Retry
    }

    /// Whether the action is one on a copy in this state. `is_kept`: its destination was not
    /// removed; `has_gone_on`: no marker of its key stands.
    #[must_use]
    pub fn acts_on(
        &self,
        action: DeadAction,
        state: ParkedState,
        is_kept: bool,
        has_gone_on: bool,
    ) -> bool {
        let discards = action == DeadAction::Discard;
        let skipped = self.means_skipped(action) && (discards || has_gone_on);
        (discards || is_kept) && (state.waits() || skipped)
    }
}

/// An operator's act on parked events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadAction {
    /// Attempt again now, with a full set of attempts; the key stays blocked until it succeeds.
    /// A skipped event is attempted where the filter names that state and its key has gone on
    /// without it (no marker stands): it comes behind what followed it, and its key goes on
    /// whatever becomes of it. A copy that a removed destination left goes to the one that has its
    /// name now, unless that one reads the event in the outbox, or has a copy of it: it sends it
    /// itself.
    Retry,
    /// The key goes on; the event is kept as skipped.
    Skip,
    /// Skip, and the payload is erased; also that of a skipped event, where the filter names that
    /// state.
    Discard,
}

impl DeadAction {
    /// The name used in the audit table and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Discard => "discard",
        }
    }
}

/// A destination as an operator sees it.
#[derive(Debug, Clone)]
pub struct DestinationStatus {
    /// Its name.
    pub name: String,
    /// The sink's URL without secrets, as its last claim named it ([`super::Ownership::claim`]).
    pub address: String,
    /// The state that the operator wants.
    pub state: DestinationState,
    /// The places of it that an operator has paused.
    pub paused_places: BTreeSet<String>,
    /// Events not finished yet.
    pub pending: u64,
    /// Whether `pending` is exact; else it is an upper bound.
    pub pending_exact: bool,
    /// Parked events that wait for another attempt.
    pub parked: u64,
    /// Parked events whose attempts are used up.
    pub dead: u64,
    /// Keys that wait behind a parked event.
    pub blocked_keys: u64,
    /// Age of the oldest pending event by the database's insertion clock.
    pub oldest_pending_age: Option<Duration>,
    /// The breaker: as its owners say, else as another relay says that has tried, else as it was
    /// reported last ([`super::ClaimReports::report`]).
    pub breaker: String,
    /// The last error as its relay reported it.
    pub last_error: Option<String>,
    /// The names of the live relays that hold it, if there are any.
    pub relay: Option<String>,
    /// Events that it accepted in a second, between the last two renewals of its live relays; none
    /// where no relay has told yet.
    pub accepted_per_second: Option<f64>,
    /// How many of its places are held back, as its live relays told with their last renewals; at
    /// the least, where several relays hold back more than they name.
    pub places_held: usize,
    /// Those of them that were held back first, [`super::PLACES_NAMED`] at the most.
    pub places: Vec<HeldPlace>,
}

/// A relay's share of a destination that it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayShare {
    /// The destination's name.
    pub destination: String,
    /// Partitions that it owns; none while it stands by.
    pub partitions: u32,
    /// The newest epoch of these partitions; 0 without any.
    pub epoch: u64,
    /// Whether it reached the broker when it last tried; none: it did not try.
    pub reaches: Option<bool>,
}

/// A relay as an operator sees it.
#[derive(Debug, Clone)]
pub struct RelayStatus {
    /// The identity of this life of the relay.
    pub registration: Uuid,
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub host: HostIdentity,
    /// When it registered: microseconds since 1970-01-01 UTC, database's clock.
    pub started_at: i64,
    /// Its version.
    pub version: String,
    /// `live`, `expired` or `fenced`.
    pub state: String,
    /// End of its lease: microseconds since 1970-01-01 UTC, database's clock.
    pub lease_expires_at: i64,
    /// Partitions that it owns, over all destinations.
    pub partitions: u32,
    /// It is about to stop: what it owns will soon be free.
    pub leaving: bool,
    /// Each destination that it serves, by name.
    pub shares: Vec<RelayShare>,
}

/// A line of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// When: microseconds since 1970-01-01 UTC, database's clock.
    pub at: i64,
    /// The act.
    pub action: String,
    /// The name of the relay that did it; none: an operator did, or nobody knows the name any more.
    pub relay: Option<String>,
    /// The destination that it was done to; none: to all, or to none of them.
    pub destination: Option<String>,
    /// All else that is to be said.
    pub detail: String,
}

/// The outbox as an operator sees it.
#[derive(Debug, Clone)]
pub struct Status {
    /// Events not finished by at least one destination.
    pub pending: u64,
    /// Whether `pending` is exact (up to 100 000); else it is an upper bound.
    pub pending_exact: bool,
    /// Age of the oldest pending event by the database's insertion clock.
    pub oldest_pending_age: Option<Duration>,
    /// Each destination.
    pub destinations: Vec<DestinationStatus>,
    /// Each registered relay that is not long gone.
    pub relays: Vec<RelayStatus>,
    /// Bytes that the outbox takes on disk.
    pub retained_bytes: u64,
    /// The events that are kept beyond their time, and why.
    pub retained: Retained,
}

/// Operators' calls.
#[async_trait]
pub trait Admin: Send + Sync {
    /// The outbox at a glance.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn status(&self) -> Result<Status, StoreError>;

    /// The last lines of the audit whose action is one of [`super::HAND_OVERS`], newest first, at
    /// most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError>;

    /// Parked events, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError>;

    /// Acts on every parked event that the filter means and that still waits, or was skipped and is
    /// to be tried again; each keeps a durable record. Answers how many.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError>;

    /// Pauses, resumes or removes a destination, with an audit line. False: there is none of this
    /// name. Removing is refused while a live relay holds it.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when a live relay names the destination that is to be removed.
    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError>;

    /// Pauses a place of a destination, or resumes it, with an audit line; all of its relays learn
    /// it with their next renewal. False: there is no destination of this name. The name of the
    /// place is that of [`HeldPlace::name`]; whether any event goes there, nobody knows.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] beyond [`super::PAUSED_PLACES_MAX`].
    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError>;
}
