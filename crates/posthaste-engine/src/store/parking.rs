//! How the owner of a claim parks events, and what becomes of the copies.

use std::time::Duration;

use async_trait::async_trait;

use super::{Cursor, ParkedState, StoreError};
use crate::{EventRef, RejectionKind, StoredEvent};

/// An event to be parked, durably, before the cursor passes it.
#[derive(Debug, Clone)]
pub struct Parking {
    /// The failed event; it is copied.
    pub event: StoredEvent,
    /// The cursor that has passed this event: the marker's place.
    pub at: Cursor,
    /// Attempts made so far; none where it was put off. Only then there is no record of an attempt.
    pub attempts: u32,
    /// The class of the failure ([`crate::RejectionKind::as_str`]).
    pub kind: &'static str,
    /// The broker's answer.
    pub reason: String,
    /// Its next state.
    pub next: AfterFailure,
}

/// The next state of an event whose attempt was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// It waits, and is attempted again so long from now.
    RetryIn(Duration),
    /// Its attempts are used up. It waits for an operator, and its key for it.
    Dead,
    /// Its attempts are used up, and its key goes on without it (policy `skip`): no marker is set.
    Skip,
}

impl AfterFailure {
    /// The state of its parked copy.
    #[must_use]
    pub fn state(self) -> ParkedState {
        match self {
            Self::RetryIn(_) => ParkedState::Parked,
            Self::Dead => ParkedState::Dead,
            Self::Skip => ParkedState::Skipped,
        }
    }

    /// When it is due again, from now; none: not by itself.
    #[must_use]
    pub fn retry_in(self) -> Option<Duration> {
        match self {
            Self::RetryIn(wait) => Some(wait),
            Self::Dead | Self::Skip => None,
        }
    }
}

/// Whether this is the kind of a follower that retention parked unseen and that was not attempted
/// since: it waits for its turn, or no route took it. SQL says the same in `due.sql`.
#[must_use]
pub fn was_never_tried(kind: &str) -> bool {
    matches!(kind, "evacuated" | "not_routed")
}

/// Whether a copy that is due later and is of this kind was put off
/// ([`ParkedCopy::kind_when_postponed`]). SQL says the same in `put_off.sql`.
#[must_use]
pub fn was_put_off(kind: &str) -> bool {
    matches!(kind, "not_now" | "evacuated")
}

/// A parked event that is due, with what is needed to send it.
#[derive(Debug, Clone)]
pub struct ParkedCopy {
    /// The parked copy's id.
    pub id: i64,
    /// The event.
    pub event: StoredEvent,
    /// Attempts made so far.
    pub attempts: u32,
    /// Whether its key, if it has one, waits for it. The key of an event that was skipped, and is
    /// tried again, has gone on.
    pub holds_key: bool,
    /// A follower that retention parked unseen, and that was not attempted yet: routes are asked
    /// for it. Its kind is `evacuated`, or `not_routed` since no route took it.
    pub never_tried: bool,
}

impl ParkedCopy {
    /// The kind that it has once it is put off, unsent or refused for now: one that was never tried
    /// stays one.
    #[must_use]
    pub fn kind_when_postponed(&self) -> &'static str {
        match self.never_tried {
            true => "evacuated",
            false => RejectionKind::NotNow.as_str(),
        }
    }
}

/// The demands of the parked table.
#[derive(Debug, Default)]
pub struct Due {
    /// Parked events whose time has come, oldest first. Of a key's followers that retention parked,
    /// the next one only, and only when nothing earlier of the key waits.
    pub events: Vec<ParkedCopy>,
    /// Keys with a marker that no parked event holds any longer: to be side-read and joined.
    pub released: Vec<String>,
    /// When the next parked event falls due, from now.
    pub next_in: Option<Duration>,
}

/// When a copy is due, by the database's clock in microseconds since 1970-01-01 UTC, and its id:
/// the order of those that are due later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueAt(pub i64, pub i64);

/// A copy that was put off, and is due later.
#[derive(Debug)]
pub struct PutOff {
    /// Its place among these.
    pub at: DueAt,
    /// The copy.
    pub copy: ParkedCopy,
}

/// How an attempt with a parked copy ended.
#[derive(Debug, Clone)]
pub enum Settlement {
    /// The broker took it: the copy is done, its key may go on.
    Delivered,
    /// Refused again.
    Failed {
        /// The class of the failure.
        kind: &'static str,
        /// The broker's answer.
        reason: String,
        /// Its next state.
        next: AfterFailure,
    },
    /// Not now: no attempt is used up.
    Postponed {
        /// [`ParkedCopy::kind_when_postponed`].
        kind: &'static str,
        /// The broker's answer, to this event or to others of its place.
        reason: String,
        /// When it is due again, from now.
        retry_in: Duration,
    },
}

/// The change that an attempt makes to a parked copy.
#[derive(Debug, Clone, Copy)]
pub struct Attempted<'a> {
    /// The copy's new state.
    pub state: ParkedState,
    /// When it is due again, from now.
    pub retry_in: Option<Duration>,
    /// The class of the failure, or `accepted`: for the record of the attempt.
    pub kind: &'a str,
    /// The broker's answer; empty where it was accepted.
    pub reason: &'a str,
    /// Whether it counts as an attempt, and is recorded as one.
    pub counts: bool,
}

impl Settlement {
    /// The change that the attempt makes to the copy.
    #[must_use]
    pub fn attempted(&self) -> Attempted<'_> {
        match self {
            Self::Delivered => Attempted {
                state: ParkedState::Delivered,
                retry_in: None,
                kind: "accepted",
                reason: "",
                counts: true,
            },
            Self::Failed { kind, reason, next } => Attempted {
                state: next.state(),
                retry_in: next.retry_in(),
                kind,
                reason,
                counts: true,
            },
            Self::Postponed {
                kind,
                reason,
                retry_in,
            } => Attempted {
                state: ParkedState::Parked,
                retry_in: Some(*retry_in),
                kind,
                reason,
                counts: false,
            },
        }
    }
}

impl Attempted<'_> {
    /// Whether it changes a copy in this state. An operator's decision of meanwhile stands,
    /// unless the copy was delivered, which is what happened.
    #[must_use]
    pub fn changes(&self, state: ParkedState) -> bool {
        state.waits() || self.state == ParkedState::Delivered
    }
}

/// Parked events of earlier claims.
#[derive(Debug, Default)]
pub struct SetAside {
    /// Events, whatever became of them since, that the main group may read again because the
    /// stored cursor has not passed them. May hold more. Named by `seq` and id: an event that was
    /// skipped may be emitted again, mended, under the same id, and that one is to be delivered.
    pub again: Vec<EventRef>,
    /// How many without a key wait since they were put off: their kind is `not_now`.
    pub put_off_alone: usize,
}

/// Parks events, and settles the attempts with their copies.
#[async_trait]
pub trait ClaimParking: Send + Sync {
    /// Tells of what earlier claims have parked, as far as a claim has to know it when it begins.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn set_aside(&self) -> Result<SetAside, StoreError>;

    /// Parks events: copy, attempt record and marker in one transaction, durable when it returns.
    /// A key that is already marked gets its marker moved to the new place.
    /// [`super::Progress::Mark`] says which events a mark store finishes with it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn park(&self, events: &[Parking]) -> Result<(), StoreError>;

    /// Parked events that are due and keys that are released.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn due(&self, limit: usize) -> Result<Due, StoreError>;

    /// Copies that were put off, for their place's sake or their own, and are due later: the first
    /// ones behind this place, in their order. None: there are no more.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn put_off(&self, after: Option<DueAt>, limit: usize) -> Result<Vec<PutOff>, StoreError>;

    /// Records how an attempt with a parked copy ended. An operator may have decided on it
    /// meanwhile: that stands, unless the copy was delivered, which is what happened.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError>;
}
