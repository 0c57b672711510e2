//! What the owner of a claim may do: read, advance, park, side-read and join.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::{Cursor, StoreError};
use crate::{EventRef, StoredEvent};

/// How much one read may bring. At least one event comes if there is one, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Events at the most.
    pub events: usize,
    /// Bytes at the most, by [`StoredEvent::footprint`].
    pub bytes: usize,
}

/// What one read brought, in the order in which it is to be delivered.
#[derive(Debug)]
pub struct Page {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// The store's value for cursors inside this page.
    pub base: Arc<dyn Any + Send + Sync>,
    /// Where the destination stands when all of this page is finished.
    pub end: Cursor,
    /// Whether `end` is a place where a side read can join. In between (inside a snapshot difference)
    /// it is not.
    pub joinable: bool,
    /// Whether everything that was visible when this read was sent lies at or before `end`.
    pub caught_up: bool,
    /// An empty advance to `end` is worth making although no event was finished: it moves what the
    /// store keeps beside the position (PostgreSQL's floors).
    pub wants_advance: bool,
    /// The destination's [`super::Shares::version`] as this read saw it; zero where nothing is shared out.
    pub shares_version: i64,
}

impl Page {
    /// The cursor that has passed everything up to and including `event` of this page.
    #[must_use]
    pub fn cursor_at(&self, event: &StoredEvent) -> Cursor {
        Cursor::within(Arc::clone(&self.base), event.seq())
    }
}

/// What an advance did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdvanceOutcome {
    /// A further advance is worth making as soon as a read was answered (see
    /// [`Page::wants_advance`]).
    pub wants_advance: bool,
}

/// A durable block marker: all events of this key before `at` are accepted or parked; from there on
/// only the side read sends this key.
#[derive(Debug, Clone)]
pub struct Marker {
    /// The blocked key.
    pub key: String,
    /// Up to where the key is done with.
    pub at: Cursor,
    /// Whether no parked event holds it any longer: the side read may go on.
    pub released: bool,
}

/// An event to be set aside, durably, before the cursor passes it.
#[derive(Debug, Clone)]
pub struct Parking {
    /// The failed event; it is copied.
    pub event: StoredEvent,
    /// The cursor that has passed this event: the marker's place.
    pub at: Cursor,
    /// Attempts made so far.
    pub attempts: u32,
    /// The class of the failure ([`crate::RejectionKind::as_str`]).
    pub kind: &'static str,
    /// The broker's answer.
    pub reason: String,
    /// When it is due again, from now; none: its attempts are used up, it is dead.
    pub retry_in: Option<Duration>,
    /// Whether its key goes on without it (policy `skip`): no marker is set.
    pub skip: bool,
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
}

/// What the parked table asks for.
#[derive(Debug, Default)]
pub struct Due {
    /// Parked events whose time has come, oldest first. Of a key's followers that retention set aside, the next
    /// one only, and only when nothing earlier of the key waits.
    pub events: Vec<ParkedCopy>,
    /// Keys with a marker that no parked event holds any longer: to be side-read and joined.
    pub released: Vec<String>,
    /// When the next parked event falls due, from now.
    pub next_in: Option<Duration>,
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
        /// When it is due again, from now; none: its attempts are used up, it is dead.
        retry_in: Option<Duration>,
        /// With its attempts used up: its key goes on without it (policy `skip`).
        skip: bool,
    },
}

/// What the owner of a claim holds: its partitions, and only these. Calls may overlap: reading goes on while an advance is under way.
///
/// Dropping it ends its connections; it never releases the claim.
#[async_trait]
pub trait Claimed: Send + Sync {
    /// The markers of this claim, read in the claim or after it, by their keys in an order of the store's
    /// own: those behind `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError>;

    /// Which of these keys have a marker. Asked with each page where there are more markers than a relay
    /// keeps in memory.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError>;

    /// Events that are set aside, whatever became of them since, and that the main group may read again because
    /// the stored cursor has not passed them. May hold more. Named by `seq` and id: an event that was skipped may
    /// be emitted again, mended, under the same id, and that one is to be delivered.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn set_aside(&self) -> Result<Vec<EventRef>, StoreError>;

    /// The next page of the main group, from the stored cursors on. Partitions that stand at several places
    /// are brought to one first: those behind are read up to where the others stand, and join them there.
    /// Returns soon, with an empty page when nothing is there. One caller at a time.
    ///
    /// # Errors
    /// [`StoreError`]; afterwards only a new claim may read again.
    async fn next(&self, budget: Budget) -> Result<Page, StoreError>;

    /// Moves the cursor: everything up to `up_to` is finished. A mark store uses `finished` (events
    /// that were accepted, parked or that no route takes; events passed over because their key is
    /// blocked are *not* in it), a log store `up_to`. Never goes back. Durable when it returns. One
    /// caller at a time.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn advance(&self, up_to: &Cursor, finished: &[i64])
    -> Result<AdvanceOutcome, StoreError>;

    /// Sets events aside: copy, attempt record and marker in one transaction, durable when it
    /// returns. A key that is already marked gets its marker moved to the new place.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn park(&self, events: &[Parking]) -> Result<(), StoreError>;

    /// Parked events that are due and keys that are released.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn due(&self, limit: usize) -> Result<Due, StoreError>;

    /// Records how an attempt with a parked copy ended. An operator may have decided on it meanwhile: that
    /// stands, unless the copy was delivered, which is what happened.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError>;

    /// Begins to read what released keys have behind their markers, each behind its own.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Bug`] when one of them has no marker.
    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError>;

    /// Removes the markers of these keys. The caller has side-read them up to `at`, which is joinable,
    /// the main group stands at `at`, everything before it is finished and stored, and nothing of it is
    /// in flight.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Bug`] when one of them has no marker, or something that waits holds it.
    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError>;

    /// Tells operators and other relays how the destination is for this one: the breaker's state and its
    /// last error. The next claim of the destination answers it; not needed for correctness.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError>;

    /// Stores which cluster of brokers the destination is delivered to ([`crate::Lane::cluster`]).
    /// Answers the former one where that was another, of which an audit line tells.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError>;

    /// The fences of these former owners are taken ([`super::Claim::former`]).
    ///
    /// # Errors
    /// [`StoreError`].
    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError>;

    /// Waits for a hint that there is something to read, where the store hears such hints; else for ever. It
    /// saves an idle reader some waiting and is needed for nothing else. Cancel safe.
    async fn hinted(&self) {
        std::future::pending().await
    }

    /// The id of the relay's registration that holds this claim.
    fn registration(&self) -> Uuid;
}

/// Reads released keys, each from its marker on, in the order in which each is to be delivered.
#[async_trait]
pub trait SideRead: Send {
    /// These keys were blocked again: their markers stand where [`Claimed::park`] has put them, and this
    /// side read neither reads nor moves them any more.
    fn leave(&mut self, keys: &[String]);

    /// The next page: events behind the side read's own place and at or before `until`, a
    /// joinable cursor of the main group. An empty page whose `caught_up` is set means that the side
    /// read has reached `until`. A place that lies behind the side read's own (a key that was blocked
    /// in mid-difference) is reached already; the side read never goes back to it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError>;

    /// Moves the markers of the keys of which pages brought something since the last advance to `at` of one
    /// of them: everything of them up to there is accepted or parked. Durable when it returns.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn advance(&mut self, at: &Cursor, finished: &[i64]) -> Result<(), StoreError>;
}
