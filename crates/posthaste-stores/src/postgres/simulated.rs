//! A PostgreSQL in memory: versions of rows, snapshots, transaction numbers, a sequence, crashes
//! and fail-overs, in virtual time, the same for the same seed.
//!
//! The rules of the store are the production's own (`claimed.rs`, `side_read.rs`, `read_plan.rs`,
//! `sweep.rs`, `converge.rs`, `claim.rs`, `retention.rs`). The statements are simulated, one step
//! each, as the files in `sql` tell. Between a read's snapshot, its F and its rows, and between a
//! statement's number and its commit, everybody else may do something.
//!
//! A statement changes the tables that the memory store has too
//! ([`posthaste_engine::memory_tables`]). Here are the outbox, its places, and the rules that a
//! test can leave out.
//!
//! Coarser than the original: statements that change the relays' tables wait for one lock, where
//! PostgreSQL has one a row; and rows that retention deletes are gone for snapshots that would
//! still see them.

mod admin;
mod advance;
mod claim;
mod creation;
mod database;
mod evacuate;
mod markers;
mod open;
mod owner;
mod ownership;
mod parking;
mod read;
mod report;
mod retention;
mod server;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    AuditLine, Claim, Claimed, Progress, RetentionMode, Store, StoreError, StoreInfo,
};
use uuid::Uuid;

use self::server::{Connection, Server};
use super::Grant;
pub use posthaste_engine::memory_tables::NewEvent;
pub use writer::Transaction;

/// How long the next step takes, of the many that a statement has; zero lets others run first, and
/// no time passes.
pub type Step = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The settings of a simulated database.
#[derive(Clone)]
pub struct Settings {
    /// Ids are drawn from it.
    pub seed: u64,
    /// Partitions of a new destination: a power of two up to 4 096.
    pub partitions: u16,
    /// Rows of a leaf, as a power of two.
    pub leaf_bits: u8,
    /// For how long delivered events are kept; whole seconds.
    pub retention: Duration,
    /// Events of a page at the most, whatever its budget.
    pub page_events: usize,
    /// Whether a pooler stands before the server, which hides that connections break: what is under
    /// way fails, and the next statement goes through another one.
    pub pooled: bool,
    /// How long steps take.
    pub step: Step,
    /// How long a change is under way to the server, besides: its caller may be gone when it
    /// arrives.
    pub under_way: Step,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            partitions: 64,
            leaf_bits: 10,
            retention: Duration::from_secs(24 * 3_600),
            page_events: 10_000,
            pooled: false,
            step: Arc::new(|| Duration::ZERO),
            under_way: Arc::new(|| Duration::ZERO),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// How often something rare happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Polls that went back to the floor of a transaction that had been in progress at their `low`.
    pub stragglers: u64,
    /// Polls whose difference did not fit into one page.
    pub cut_differences: u64,
    /// Keys that came back to the main group.
    pub joins: u64,
    /// New tokens, after crashes and fail-overs.
    pub incarnations: u64,
    /// Claims that took partitions over from a dead relay, ...
    pub take_overs: u64,
    /// ... those of them while something of the destination was parked or dead.
    pub take_overs_while_parked: u64,
    /// Leaves that were emptied, ...
    pub truncations: u64,
    /// ... those of them while some key was blocked.
    pub truncations_beside_a_blocked_key: u64,
    /// Followers of blocked keys that were set aside.
    pub evacuated: u64,
    /// New lives in which numbers of transactions were issued a second time, ...
    pub numbers_again: u64,
    /// ... and those in which values of the sequence were.
    pub values_again: u64,
    /// Statements that changed something when nobody waited for their answer any more.
    pub unheard: u64,
}

/// A writer's transaction that is part of the surviving history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its number, which may have been issued to another one in an earlier life.
    pub xid: u64,
    /// The ids of its events in the order of their `seq`.
    pub events: Vec<Uuid>,
}

/// A simulated server with one outbox. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct SimulatedPostgres {
    server: Arc<Server>,
}

impl SimulatedPostgres {
    /// An empty outbox.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            server: Arc::new(Server::new(settings)),
        }
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.server)
    }

    /// Begins a writer's transaction.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        Transaction::begin(self.connect())
    }

    /// Crashes the server and starts it again: what was not flushed is gone, its transaction
    /// numbers and values of the sequence are issued again, and so is the incarnation. All
    /// connections break; calls under way fail, perhaps after what they were to do was done.
    pub fn crash(&self) {
        self.server.lock().crash();
    }

    /// The standby catches up: [`fail_over`](Self::fail_over) goes on from here.
    pub fn replicate(&self) {
        self.server.lock().replicate();
    }

    /// The standby has what commits wait for, as a synchronous one does, and nothing that nobody
    /// waited for.
    pub fn replicate_flushed(&self) {
        self.server.lock().replicate_flushed();
    }

    /// Promotes the standby. Changes after the last [`replicate`](Self::replicate) are gone; else
    /// as [`crash`](Self::crash).
    pub fn fail_over(&self) {
        self.server.lock().fail_over();
    }

    /// Breaks all connections. New ones are made at once.
    pub fn cut_connections(&self) {
        self.server.lock().cut_connections();
    }

    /// Breaks all connections; every call is refused until [`start`](Self::start).
    pub fn stop(&self) {
        let mut database = self.server.lock();
        database.is_up = false;
        database.cut_connections();
    }

    /// Answers again.
    pub fn start(&self) {
        self.server.lock().is_up = true;
    }

    /// Sets the database's clock, by which leases end, forth or back.
    pub fn step_clock(&self, micros: i64) {
        self.server.lock().step_clock(micros);
    }

    /// The database's clock, microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.server.lock().clock()
    }

    /// As `posthaste init --partitions`: relays follow claim by claim.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn set_partitions(&self, count: u16) -> Result<(), StoreError> {
        let connection = self.connect();
        let set = connection.change("init", move |database| {
            database.now.tables.partitions = count;
            Ok(())
        });
        set.await
    }

    /// As `posthaste init --retention`, whole seconds.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn set_retention(&self, window: Duration) -> Result<(), StoreError> {
        let connection = self.connect();
        let set = connection.change("init", move |database| {
            database.now.retention_seconds = window.as_secs();
            Ok(())
        });
        set.await
    }

    /// As `posthaste init --retention-mode`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server is down.
    pub async fn set_retention_mode(&self, mode: RetentionMode) -> Result<(), StoreError> {
        let connection = self.connect();
        let set = connection.change("init", move |database| {
            database.now.retention_mode = mode;
            Ok(())
        });
        set.await
    }

    /// Makes every line of the audit so much older.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server is down.
    pub async fn age_audit(&self, by: Duration) -> Result<(), StoreError> {
        let connection = self.connect();
        let age = connection.change("age the audit", move |database| {
            database.now.tables.age_audit(by);
            Ok(())
        });
        age.await
    }

    /// Makes all that is set aside so much older, with what was attempted and decided of it.
    ///
    /// # Errors
    /// [`StoreError`] when the change is not answered.
    pub async fn age_parked(&self, by: Duration) -> Result<(), StoreError> {
        let connection = self.connect();
        let age = connection.change("age what is set aside", move |database| {
            database.now.tables.age_parked(by);
            Ok(())
        });
        age.await
    }

    /// The commits of writers that survived, in their order.
    #[must_use]
    pub fn committed(&self) -> Vec<Commit> {
        self.server.lock().history().to_vec()
    }

    /// Every destination that was created and survived, with the events that retention had removed
    /// by then.
    #[must_use]
    pub fn created(&self) -> Vec<Arc<(String, Vec<Uuid>)>> {
        self.server.lock().now.created.clone()
    }

    /// The counts so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.server.lock().counters
    }

    /// Everything that the audit says, oldest first.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditLine> {
        let database = self.server.lock();
        database.now.tables.audit_lines().collect()
    }
}

#[async_trait]
impl Store for SimulatedPostgres {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "postgres",
            progress: Progress::Cursor,
            shares_out: true,
        }
    }

    /// Whether the sequence is where its readers saw it.
    async fn check(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "check";
        let connection = self.connect();
        let look = connection.look(OPERATION, |database| {
            let cursors = database.now.tables.cursors.values();
            let floor = cursors.map(|row| row.position.floors.floor).max();
            (database.sequence(), floor.unwrap_or(0))
        });
        match look.await? {
            (sequence, floor) if sequence < floor => {
                Err(super::claimed::set_back(OPERATION, sequence, floor))
            }
            _ => Ok(()),
        }
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        let grant = claim
            .inner
            .downcast_ref::<Grant>()
            .ok_or_else(|| StoreError::Bug {
                operation: "open",
                reason: "the claim is another store's".to_owned(),
            })?;
        Ok(Arc::new(open::open(&self.server, grant).await?))
    }
}
