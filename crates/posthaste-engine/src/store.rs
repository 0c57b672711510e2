//! The contract of a store: the code that talks to one kind of database.
//!
//! A store is the sum of small roles. Each is a trait, and callers take the one that they need:
//! [`Leases`] (which relays live), [`Ownership`] (which of them may move which cursor), [`Admin`]
//! (what operators see and do) and [`Retention`] (what has served its time goes). The owner of a
//! claim holds a [`Claimed`], the sum of [`ClaimReader`], [`ClaimProgress`], [`ClaimParking`],
//! [`ClaimMarkers`] and [`ClaimReports`].
//! Scheduling, retries, routing and metrics are not its business.
//!
//! **Guard.** Every statement of a [`Claimed`] that changes a cursor, a marker, a parked copy or
//! the coverage tests the claim's epoch and the database's incarnation in the same statement. When
//! it changes nothing, the answer is [`StoreError::Fenced`] or [`StoreError::IncarnationChanged`];
//! the engine then drops everything that it read under that claim and claims anew.
//!
//! **Unknown outcomes.** After any other error of a changing call its effect is unknown. The engine
//! claims anew (which raises the epoch) before it reads the cursor again, so that a late effect of
//! the lost call is refused.
//!
//! **Calls that are not answered.** Every call is given a deadline by its caller, who drops it when
//! that is over: a connection may stay open and never answer again. So a call may be dropped at any
//! point, and its outcome is unknown then. A connection on which an answer is missing is never used
//! again; dropping it waits for nothing; and nobody waits for a lock that a dropped call held. A
//! call that blocks in the operating system (a file on a device that hangs) cannot be ended: it
//! keeps its thread, and calls behind [`Store::disconnect`] use another one.

mod admin;
mod advance;
pub mod audit;
mod claiming;
mod cursor;
mod error;
mod lease;
mod ownership;
mod parking;
mod read;
mod registration;
mod report;
mod retention;
mod share_out;
mod side_read;
mod target;

use std::sync::Arc;

use async_trait::async_trait;

pub use admin::{
    Admin, AuditLine, DeadAction, DestinationStatus, ParkedEvent, ParkedFilter, ParkedState,
    RelayShare, RelayStatus, Status,
};
pub use advance::{AdvanceOutcome, ClaimProgress};
pub use audit::{AuditWords, HAND_OVERS, with_audit_words};
pub use claiming::{ClaimDecision, DestinationFound};
pub use cursor::Cursor;
pub use error::StoreError;
pub use lease::{DestinationReport, Leases, PLACES_NAMED, RelayReport, Renewal, merge_places};
pub use ownership::{
    Claim, ClaimOutcome, ClaimRequest, DestinationState, Member, Ownership, PAUSED_PLACES_MAX,
    Shares, Start, Want, Wanted,
};
pub use parking::{
    AfterFailure, Attempted, ClaimParking, Due, DueAt, ParkedCopy, Parking, PutOff, SetAside,
    Settlement, was_never_tried, was_put_off,
};
pub use read::{Budget, ClaimReader, Page};
pub use registration::{HostIdentity, Registered, Registration};
pub use report::ClaimReports;
pub use retention::{
    AUDIT_RETENTION, Housekeeping, PARKED_RETENTION, Pin, PinKind, Retained, Retention,
    RetentionMode, retention_refused,
};
pub use share_out::{GroupFound, ShareChange};
pub use side_read::{ClaimMarkers, Marker, SideRead};

/// The properties of a store.
#[derive(Debug, Clone)]
pub struct StoreInfo {
    /// Kind of database, as in the URL: `postgres`, `sqlite`.
    pub kind: &'static str,
    /// Whether an advance names the finished events ([`Progress::Mark`]) or a cursor.
    pub progress: Progress,
    /// Whether relays may own different partitions of a destination; else one relay owns them all,
    /// and others stand by.
    pub shares_out: bool,
}

/// How a store records what has been delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A log: the cursor says it all.
    Cursor,
    /// Mark or delete: each finished event is named. Such a store has no place behind which
    /// everything is new, and owes this instead:
    ///
    /// - **References.** A [`seq`](crate::StoredEvent::seq) names one event and no other as long
    ///   as a claim lasts. It is drawn when the event is inserted, and transactions commit in
    ///   another order.
    /// - **A read looks everywhere.** It brings the committed events that are not finished, in the
    ///   order of `seq`, one that committed late included.
    /// - **Handed-out events.** No event comes twice in a claim. A read may overlap an advance: it
    ///   has found an event unfinished, and its answer comes after the one that finished the event.
    ///   So a handed-out event is forgotten by a read that is sent after the answer to the advance
    ///   or the parking that finished it.
    /// - **Blocked keys.** A page holds no event of a key whose marker was there when the read was
    ///   sent: any number of them at the head starve nothing that follows, and none of them is
    ///   kept in memory. The events of the key that were handed out before are the side read's,
    ///   and after the join the main group's, as far as they are not finished.
    /// - **Parking** finishes the event. Where it leaves or moves a marker, it also finishes the
    ///   events of the key that the same reading has handed out before. It finishes nothing else,
    ///   since an event of a lower `seq` may have come later, or may not have come yet.
    /// - **Places.** Each page ends where a side read can join. The cursor of a page is the
    ///   greatest `seq` that was visible; a side read brings what is not finished of its keys up to
    ///   there. A marker needs no position.
    /// - **Marks.** One column of marks serves one destination. A destination that starts now marks
    ///   what is committed; what is inserted only is pending.
    Mark,
}

/// The partitions of a claim's owner, and only these. Calls may overlap: reading goes
/// on while an advance is under way.
///
/// Dropping it ends its connections; it never releases the claim.
pub trait Claimed:
    ClaimReader + ClaimProgress + ClaimParking + ClaimMarkers + ClaimReports
{
}

impl<T> Claimed for T where
    T: ClaimReader + ClaimProgress + ClaimParking + ClaimMarkers + ClaimReports
{
}

/// One outbox in one database.
#[async_trait]
pub trait Store: Leases + Ownership + Admin + Retention + Send + Sync {
    /// The properties of this store; constant.
    fn info(&self) -> StoreInfo;

    /// Whether a relay may start here: reachable, a primary, the schema present and of a version
    /// that this build honours, rights granted, store identity unchanged, sequence sound. Changes
    /// nothing.
    ///
    /// # Errors
    /// [`StoreError`] with the fix; [`StoreError::Unavailable`] alone is worth a retry.
    async fn check(&self) -> Result<(), StoreError>;

    /// Opens what a claim gives the right to. Nothing that was read under an earlier claim may be
    /// used with it.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the claim is no longer the newest.
    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError>;

    /// Ends all connections, and waits for none of them: what is under way fails, and later calls
    /// make new ones. For a relay whose lease ran out: it trusts no connection that was there
    /// meanwhile. A store without connections does nothing.
    fn disconnect(&self) {}

    /// Leaves the database as one would find it that nobody uses, as far as others do not wait for
    /// that; nothing is lost without it. For whoever is done with this store; later calls make new
    /// connections.
    async fn close(&self) {}
}
