//! Housekeeping: what has served its time goes.

use std::time::Duration;

use async_trait::async_trait;

use super::{Registered, StoreError};

/// For how long events that were set aside are kept once nothing waits for them any more.
///
/// A dead event that holds its key is no such event: its followers wait for an operator's decision.
/// One that holds none is kept for as long after its last attempt: an event without a key, and one
/// that was skipped and retried, whose key has gone on.
pub const PARKED_RETENTION: Duration = Duration::from_secs(30 * 24 * 3_600);

/// For how long lines of the audit are kept: as long as what they may tell about.
pub const AUDIT_RETENTION: Duration = PARKED_RETENTION;

/// Stores do arithmetic with the window in their own units.
const WINDOW_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// Why a retention window is not one that a store can keep to; none: it is.
#[must_use]
pub fn retention_refused(window: Duration) -> Option<String> {
    if window.subsec_nanos() != 0 {
        return Some(format!("retention: {window:?} is not whole seconds"));
    }
    (window > WINDOW_MAX).then(|| "retention: at most 100 years".to_owned())
}

/// The results of one step of housekeeping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Housekeeping {
    /// Delivered events that went. Of a leaf that was emptied as a whole, the numbers that it had
    /// room for: at most so many.
    pub events: u64,
    /// Leaves that were emptied as a whole (PostgreSQL).
    pub leaves: u64,
    /// Bytes on disk that these leaves gave back.
    pub bytes: u64,
    /// Followers of blocked keys that were copied to where events wait that were set aside, so that
    /// they keep nothing else from going.
    pub evacuated: u64,
    /// Events that had been set aside, and went.
    pub parked: u64,
    /// Records of attempts that went with them.
    pub attempts: u64,
    /// Lines of the audit that went.
    pub audit: u64,
    /// More is due at once: the step ended because it had done enough.
    pub more: bool,
    /// The reason why work that is due was not done. It is worth another try a little later.
    pub in_the_way: Option<String>,
}

impl Housekeeping {
    /// Whether anything went, or was moved out of the way.
    #[must_use]
    pub fn did_something(&self) -> bool {
        let went = self.events + self.leaves + self.parked + self.audit;
        went > 0 || self.evacuated > 0
    }

    /// Adds a later step: counts add up, the rest is the later one's.
    pub fn add(&mut self, later: Self) {
        self.events += later.events;
        self.leaves += later.leaves;
        self.bytes += later.bytes;
        self.evacuated += later.evacuated;
        self.parked += later.parked;
        self.attempts += later.attempts;
        self.audit += later.audit;
        self.more = later.more;
        self.in_the_way = later.in_the_way;
    }
}

/// The kind of thing that keeps events beyond their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinKind {
    /// There is no destination: nothing was delivered, so nothing goes.
    NoDestination,
    /// A destination has not passed them: it is paused, abandoned, or behind.
    Destination,
    /// A key of a destination waits behind a parked event.
    Key,
    /// A transaction is open that may still commit events among them.
    Transaction,
}

impl PinKind {
    /// The name used in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoDestination => "no_destination",
            Self::Destination => "destination",
            Self::Key => "key",
            Self::Transaction => "transaction",
        }
    }
}

/// One thing that keeps events beyond their time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Its kind.
    pub kind: PinKind,
    /// The destination concerned.
    pub destination: Option<String>,
    /// The key concerned.
    pub key: Option<String>,
    /// Why, for people.
    pub detail: String,
}

/// How delivered events go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RetentionMode {
    /// In small deletes.
    #[default]
    Delete,
    /// A leaf of the ring as a whole, where there are leaves (PostgreSQL).
    Truncate,
}

impl RetentionMode {
    /// The name used in settings and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Truncate => "truncate",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Delete, Self::Truncate]
            .into_iter()
            .find(|mode| mode.as_str() == name)
    }
}

/// The events that retention keeps, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retained {
    /// How delivered events go.
    pub mode: RetentionMode,
    /// Why another mode would be better here, for people.
    pub advice: Option<String>,
    /// For how long delivered events are to be kept, as `init` stored it.
    pub configured_window: Duration,
    /// For how long they are kept: less, where the store has less room.
    pub window: Duration,
    /// Events kept beyond the window because something pins them.
    pub debt_events: u64,
    /// Whether that was counted; else it is an upper bound.
    pub debt_exact: bool,
    /// The causes that pin them, the oldest first; the first few where there are many.
    pub pins: Vec<Pin>,
}

/// Housekeeping, by one relay at a time. It needs no claim: every condition is read by the
/// statement that removes, or under the lock that it is removed under.
#[async_trait]
pub trait Retention: Send + Sync {
    /// One step, bounded in time and rows: removes delivered events that are older than the window
    /// and that no cursor, block marker or side read of any destination needs, whoever owns it and
    /// whether or not it is paused; events that were set aside, [`PARKED_RETENTION`] after nothing
    /// waited for them any more; and lines of the audit that are older than [`AUDIT_RETENTION`].
    /// The followers of a blocked key, where it alone keeps them, are set aside behind the event
    /// that blocks it, to be tried one at a time and in their order ([`super::ClaimParking::due`]).
    /// Without any destination no event goes. No writer waits for it longer than a fraction of a
    /// second. Costs one cheap statement when nothing is due. `by` is the relay, for the record.
    ///
    /// # Errors
    /// [`StoreError`]; what was removed stays removed, and any step may be made again.
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError>;

    /// The events that are kept beyond their time, and why.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn retained(&self) -> Result<Retained, StoreError>;
}
