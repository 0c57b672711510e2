//! A store in memory, in both ways in which a store may record progress.

mod admin;
mod claimed;
mod ownership;
mod pages;
mod retention;
mod side_read;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use posthaste_engine::{
    AuditLine, Claim, Claimed, Partitions, Progress, Store, StoreError, StoreInfo, StoredEvent,
    memory_tables::{NewEvent, Tables},
};
use tokio::time::Instant;
use uuid::Uuid;

use claimed::MemoryClaimed;

/// As the stores with a schema have it until told otherwise.
const RETENTION: Duration = Duration::from_secs(24 * 3_600);
/// Partitions of a destination, likewise.
const PARTITIONS: u16 = 64;

/// How a memory store records what has been delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryMode {
    /// By a cursor, as PostgreSQL and SQLite do.
    Log,
    /// By marking each finished event, as MySQL, SQL Server and MongoDB do.
    Mark,
}

/// An outbox in memory. Clones share it. Times are tokio's, so that a test may pause them.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    mode: MemoryMode,
    /// The next id, where ids are counted.
    next_id: Option<u128>,
    /// Committed events in commit order, those that retention removed excepted.
    log: Vec<StoredEvent>,
    /// The last number drawn, counted from 1; none comes again.
    last_seq: i64,
    retention: Duration,
    incarnation: u64,
    /// Log mode: everything up to a cursor is passed. Mark mode: it stays where the destination
    /// started.
    tables: Tables<i64>,
    /// Mark mode: what is finished beyond that, by destination.
    finished: BTreeMap<i64, BTreeSet<i64>>,
}

/// An open transaction of a writer; dropped without [`commit`](Self::commit) it leaves nothing.
#[derive(Debug)]
pub struct MemoryTransaction {
    store: MemoryStore,
    events: Vec<(Uuid, NewEvent)>,
}

impl MemoryTransaction {
    /// Writes an event; answers its id.
    pub fn emit(&mut self, event: NewEvent) -> Uuid {
        let id = event.id.unwrap_or_else(|| self.store.lock().new_id());
        self.events.push((id, event));
        id
    }

    /// How many events were written so far: what [`rollback_to`](Self::rollback_to) takes.
    #[must_use]
    pub fn savepoint(&self) -> usize {
        self.events.len()
    }

    /// Takes back what was written behind a savepoint.
    pub fn rollback_to(&mut self, savepoint: usize) {
        self.events.truncate(savepoint);
    }

    /// Makes the events visible, at the end of the log.
    ///
    /// # Errors
    /// [`StoreError::Bug`] when an event needs more than 4 GiB.
    pub fn commit(self) -> Result<(), StoreError> {
        let mut inner = self.store.lock();
        let (mut seq, now) = (inner.last_seq, wall_micros());
        let mut events = Vec::new();
        for (id, event) in &self.events {
            seq += 1;
            events.push(event.stored(seq, *id, now, posthaste::slot)?);
        }
        inner.log.extend(events);
        inner.last_seq = seq;
        Ok(())
    }
}

impl MemoryStore {
    /// An empty outbox.
    #[must_use]
    pub fn new(mode: MemoryMode) -> Self {
        let inner = Inner {
            mode,
            next_id: None,
            log: Vec::new(),
            last_seq: 0,
            retention: RETENTION,
            incarnation: 1,
            tables: Tables::new(PARTITIONS, false, Uuid::now_v7()),
            finished: BTreeMap::new(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// The same outbox, whose new destinations have so many partitions; 64 at first.
    ///
    /// # Errors
    /// The answer of [`Partitions::none_of`] about the count.
    pub fn with_partitions(self, count: u16) -> Result<Self, String> {
        self.lock().tables.partitions = Partitions::none_of(count)?.count();
        Ok(self)
    }

    /// The same outbox, whose ids are counted: two runs that do the same have the same.
    #[must_use]
    pub fn with_counted_ids(self) -> Self {
        let mut inner = self.lock();
        inner.next_id = Some(1);
        inner.tables.store_id = inner.new_id();
        drop(inner);
        self
    }

    /// Changes for how long delivered events are kept; 24 h at first.
    pub fn set_retention(&self, window: Duration) {
        self.lock().retention = window;
    }

    /// Makes every line of the audit so much older, for tests of retention.
    pub fn age_audit(&self, by: Duration) {
        self.lock().tables.age_audit(by);
    }

    /// Makes all that is set aside so much older, with what was attempted and decided of it, for
    /// tests of retention.
    pub fn age_parked(&self, by: Duration) {
        self.lock().tables.age_parked(by);
    }

    /// Everything that the audit says, oldest first.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditLine> {
        self.lock().tables.audit_lines().collect()
    }

    /// Begins a writer's transaction.
    #[must_use]
    pub fn begin(&self) -> MemoryTransaction {
        MemoryTransaction {
            store: self.clone(),
            events: Vec::new(),
        }
    }

    /// A crash of the database, as its readers see it: a new incarnation. Nothing committed is
    /// lost.
    pub fn crash(&self) {
        self.lock().incarnation += 1;
    }

    /// The registration of the live relay of this name.
    #[must_use]
    pub fn registration_of(&self, name: &str) -> Option<Uuid> {
        let (inner, now) = (self.lock(), wall_micros());
        let mut relays = inner.tables.relays.iter();
        let live = relays.find(|(_, row)| row.name == name && row.is_live(now));
        live.map(|(registration, _)| *registration)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn new_id(&mut self) -> Uuid {
        let Some(next) = &mut self.next_id else {
            return Uuid::now_v7();
        };
        *next += 1;
        Uuid::from_u128(*next)
    }

    fn finish(&mut self, destination_id: i64, seqs: impl IntoIterator<Item = i64>) {
        let finished = self.finished.entry(destination_id);
        finished.or_default().extend(seqs);
    }

    fn is_passed(&self, destination_id: i64, event: &StoredEvent) -> bool {
        let row = self.tables.destinations.get(&destination_id);
        let cursor = row.and_then(|row| self.tables.cursor_of(row, event));
        let finished = self.finished.get(&destination_id);
        cursor.is_some_and(|cursor| event.seq() <= cursor.position)
            || finished.is_some_and(|finished| finished.contains(&event.seq()))
    }

    /// The destinations to which this event is still to be delivered: they have not passed it, or
    /// passed it over because its key waits.
    fn pending_at(&self, event: &StoredEvent) -> Vec<i64> {
        let marker = |id| self.tables.markers.get(&(id, event.key()?.to_owned()));
        let kept = self.tables.kept_destinations().map(|(id, _)| id);
        let pending = kept.filter(|id| match (self.mode, marker(*id)) {
            (MemoryMode::Log, Some(marker)) => event.seq() > marker.position,
            _ => !self.is_passed(*id, event),
        });
        pending.collect()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "memory",
            progress: match self.lock().mode {
                MemoryMode::Log => Progress::Cursor,
                MemoryMode::Mark => Progress::Mark,
            },
            shares_out: true,
        }
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        MemoryClaimed::open(self, claim).map(|claimed| Arc::new(claimed) as Arc<dyn Claimed>)
    }
}

/// The wall's time when this process first asked, moved on by tokio's clock, as leases and due
/// times are: a test that moves the one moves the other.
fn wall_micros() -> i64 {
    static BEGAN: OnceLock<(Instant, Duration)> = OnceLock::new();
    let now = Instant::now();
    let (then, wall) = BEGAN.get_or_init(|| {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        (now, wall.unwrap_or_default())
    });
    // Another runtime's clock may be behind the one that asked first.
    let ahead = now.saturating_duration_since(*then);
    let now = (*wall + ahead).saturating_sub(then.saturating_duration_since(now));
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}
