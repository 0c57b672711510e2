//! A store in memory, in both ways in which a store may record progress.

mod admin;
mod claimed;
mod handed_out;
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
    /// By a cursor. An event is numbered when it is committed, as in SQLite.
    Log,
    /// By a mark on each finished event. An event is numbered when it is inserted, so that it may
    /// appear behind events of greater numbers.
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
    /// Committed events by their numbers, those that retention removed excepted.
    log: BTreeMap<i64, StoredEvent>,
    /// The last number drawn, counted from 1; none comes again.
    last_seq: i64,
    retention: Duration,
    incarnation: u64,
    /// How long the answer to a read is under way.
    answer_time: Duration,
    /// Log mode: everything up to a cursor is passed. Mark mode: places mean nothing.
    tables: Tables<i64>,
    /// Mark mode: the committed events that a destination has not finished, by its id. Each
    /// destination has marks of its own.
    unfinished: BTreeMap<i64, BTreeSet<i64>>,
}

/// An open transaction of a writer; dropped without [`commit`](Self::commit) it leaves nothing.
#[derive(Debug)]
pub struct MemoryTransaction {
    store: MemoryStore,
    events: Vec<Written>,
}

#[derive(Debug)]
struct Written {
    id: Uuid,
    event: NewEvent,
    /// Mark mode: its number, and the time of its insertion.
    inserted: Option<(i64, i64)>,
}

impl MemoryTransaction {
    /// Writes an event; answers its id.
    pub fn emit(&mut self, event: NewEvent) -> Uuid {
        let mut inner = self.store.lock();
        let id = event.id.unwrap_or_else(|| inner.new_id());
        let inserted = (inner.mode == MemoryMode::Mark).then(|| (inner.draw(), wall_micros()));
        drop(inner);
        self.events.push(Written {
            id,
            event,
            inserted,
        });
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

    /// Makes the events visible: in log mode at the end of the log.
    ///
    /// # Errors
    /// [`StoreError::Bug`] when an event needs more than 4 GiB.
    pub fn commit(self) -> Result<(), StoreError> {
        let (mut inner, now) = (self.store.lock(), wall_micros());
        let mut events = Vec::new();
        for written in &self.events {
            let (seq, at) = written.inserted.unwrap_or_else(|| (inner.draw(), now));
            let stored = written.event.stored(seq, written.id, at, posthaste::slot);
            events.push(stored?);
        }
        inner.add(events);
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
            log: BTreeMap::new(),
            last_seq: 0,
            retention: RETENTION,
            incarnation: 1,
            answer_time: Duration::ZERO,
            tables: Tables::new(PARTITIONS, false, Uuid::now_v7()),
            unfinished: BTreeMap::new(),
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

    /// The same outbox, whose answers to reads in mark mode are under way for so long: a read does
    /// not know of changes that are made meanwhile.
    #[must_use]
    pub fn with_answer_time(self, time: Duration) -> Self {
        self.lock().answer_time = time;
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

    /// The answer to a read is under way.
    async fn answer(&self) {
        let time = self.lock().answer_time;
        match time.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(time).await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn new_id(&mut self) -> Uuid {
        let Some(next) = &mut self.next_id else {
            return Uuid::now_v7();
        };
        *next += 1;
        Uuid::from_u128(*next)
    }

    /// The next number.
    fn draw(&mut self) -> i64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// Events are committed.
    fn add(&mut self, events: Vec<StoredEvent>) {
        if self.mode == MemoryMode::Mark {
            let tables = &self.tables;
            let is_kept = |id: &i64| tables.kept_destinations().any(|(kept, _)| kept == *id);
            self.unfinished.retain(|id, _| is_kept(id));
            for unfinished in self.unfinished.values_mut() {
                unfinished.extend(events.iter().map(StoredEvent::seq));
            }
        }
        let by_seq = events.into_iter().map(|event| (event.seq(), event));
        self.log.extend(by_seq);
    }

    /// Marks these events.
    fn finish(&mut self, destination_id: i64, seqs: impl IntoIterator<Item = i64>) {
        if let Some(unfinished) = self.unfinished.get_mut(&destination_id) {
            for seq in seqs {
                unfinished.remove(&seq);
            }
        }
    }

    /// Mark mode: what the destination has not finished.
    fn unfinished(&self, destination_id: i64) -> impl Iterator<Item = StoredEvent> {
        let order = self.tables.order_of(destination_id);
        let seqs = self.unfinished.get(&destination_id).into_iter().flatten();
        let events = seqs.filter_map(|seq| self.log.get(seq));
        events.map(move |event| event.clone().ordered_by(order))
    }

    fn is_passed(&self, destination_id: i64, event: &StoredEvent) -> bool {
        match self.mode {
            MemoryMode::Log => {
                let row = self.tables.destinations.get(&destination_id);
                let cursor = row.and_then(|row| self.tables.cursor_of(row, event));
                cursor.is_some_and(|cursor| event.seq() <= cursor.position)
            }
            MemoryMode::Mark => {
                let unfinished = self.unfinished.get(&destination_id);
                unfinished.is_none_or(|unfinished| !unfinished.contains(&event.seq()))
            }
        }
    }

    /// The destinations to which this event is still to be delivered: they have not passed it, or
    /// passed it over because its key waits.
    fn pending_at(&self, event: &StoredEvent) -> Vec<i64> {
        let marker = |id| {
            let key = event.order_key_by(self.tables.order_of(id))?;
            self.tables.markers.get(&(id, key.to_owned()))
        };
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
