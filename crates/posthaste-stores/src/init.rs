//! The options of `posthaste init`, and its answer.

use std::time::Duration;

use posthaste_engine::RetentionMode;

/// The options. One that is none leaves what is stored, or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitOptions {
    /// A role that may write events and nothing else.
    pub writer: Option<String>,
    /// A role that may run a relay: read the outbox, change the state tables.
    pub relay: Option<String>,
    /// Number of partitions, a power of two up to 4 096; default 64. Running relays follow a
    /// change.
    pub partitions: Option<u16>,
    /// Rows in one of the ring's 16 leaves, a power of two from 2^10 to 2^40; default 2^19. Fixed
    /// by the first `init`.
    pub leaf_rows: Option<u64>,
    /// Whether relays listen for hints of writers that there is something to read; default on for a
    /// new outbox. Running relays heed a change with their next claim.
    pub notify: Option<bool>,
    /// How long delivered events are kept, in whole seconds; zero: not at all; default 24 h.
    pub retention: Option<Duration>,
    /// How they go; default [`RetentionMode::Truncate`]. Running relays heed a change at once.
    pub retention_mode: Option<RetentionMode>,
    /// Whether a copied database is to go on by itself: a new era begins. See
    /// [`StoreDescriptor::plan_new_era`](crate::StoreDescriptor::plan_new_era).
    pub new_era: bool,
}

/// The options that not every store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitOption {
    /// [`InitOptions::writer`].
    Writer,
    /// [`InitOptions::relay`].
    Relay,
    /// [`InitOptions::leaf_rows`].
    LeafRows,
    /// [`InitOptions::notify`].
    Notify,
    /// [`InitOptions::retention_mode`].
    RetentionMode,
    /// [`InitOptions::new_era`].
    NewEra,
}

/// The changes that `init` made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    /// Migrations that were applied now.
    pub applied: Vec<u32>,
    /// The schema's version now.
    pub version: u32,
    /// The era that began; none: it was not asked for, or the database is no copy.
    pub new_era: Option<NewEra>,
}

/// A new era of a copied outbox, as it would begin or has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEra {
    /// The last `seq` of the ending era. A writer may still raise it before the era begins.
    pub last_seq: u64,
    /// Whether `seq` was given a second time before the sequence was set forward. Then nothing can
    /// be proven, and all that is kept is sent again.
    pub seq_given_twice: bool,
    /// By name.
    pub destinations: Vec<EraDestination>,
}

/// The effects of a new era on one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EraDestination {
    /// Its name.
    pub name: String,
    /// Events that it had not finished: they stay pending.
    pub pending: u64,
    /// Events that may have been delivered and are sent again, at the most.
    pub again_max: u64,
    /// Whether both numbers were counted; else they are upper bounds.
    pub counted: bool,
    /// Keys that stay blocked.
    pub blocked_keys: u64,
}
