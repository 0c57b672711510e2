//! A store in memory, in both ways in which a store may record progress.

mod admin;
mod claimed;
mod ownership;
mod partition;
mod retention;
mod side_read;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use posthaste_engine::{
    AuditLine, Claim, Claimed, DestinationState, HostIdentity, PageBuilder, ParkedState,
    Partitions, Progress, Rates, Store, StoreError, StoreInfo, StoredEvent, StoredFields,
};
use tokio::time::Instant;
use uuid::Uuid;

use claimed::MemoryClaimed;
use partition::PartitionRow;

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
    mode: MemoryMode,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    /// The next id, where ids are counted.
    next_id: Option<u128>,
    store_id: Uuid,
    /// Partitions of a new destination.
    partitions: u16,
    /// Committed events in commit order, those that retention removed excepted.
    log: Vec<StoredEvent>,
    /// The last number drawn, counted from 1; none comes again.
    last_seq: i64,
    retention: Duration,
    incarnation: u64,
    relays: BTreeMap<Uuid, RelayRow>,
    destinations: Vec<DestinationRow>,
    next_parked_id: i64,
    /// Oldest first.
    audit: Vec<AuditLine>,
}

#[derive(Debug)]
struct RelayRow {
    name: String,
    version: String,
    host: HostIdentity,
    lease_until: Instant,
    lease_until_wall: i64,
    rates: Rates,
    started_at: i64,
    fenced: bool,
    leaving: bool,
}

#[derive(Debug)]
struct DestinationRow {
    name: String,
    address: String,
    cluster: Option<String>,
    state: DestinationState,
    /// The newest epoch that was drawn.
    epoch: u64,
    shares_version: i64,
    partitions: Vec<PartitionRow>,
    /// The relays that serve it, dead ones among them until they are revoked.
    members: BTreeMap<Uuid, MemberRow>,
    /// Mark mode: what is finished beyond where the destination started.
    finished: BTreeSet<i64>,
    markers: BTreeMap<String, i64>,
    parked: Vec<ParkedRow>,
    /// As it was reported last, by whomever.
    breaker: String,
    last_error: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct MemberRow {
    partitions_max: u16,
    reaches: Option<bool>,
    last_error: Option<String>,
}

#[derive(Debug, Clone)]
struct ParkedRow {
    id: i64,
    event: StoredEvent,
    state: ParkedState,
    attempts: u32,
    kind: String,
    reason: String,
    parked_at: i64,
    /// Since when nothing waits for it; what was skipped and is tried again keeps it.
    settled_at: Option<i64>,
    /// When it was last attempted; a copy that retention made: when that was.
    tried_at: i64,
    due: Option<Instant>,
}

impl DestinationRow {
    /// Whether a parked event holds the key.
    fn holds(&self, key: &str) -> bool {
        self.parked
            .iter()
            .any(|row| row.holds_key() && row.event.key() == Some(key))
    }

    /// Whether it is the turn of a copy that retention made: nothing earlier of its key waits.
    fn has_its_turn(&self, parked: &ParkedRow) -> bool {
        let key = parked.event.key();
        let mut holding = self.parked.iter().filter(|row| row.holds_key());
        parked.waits_for_its_turn()
            && holding
                .find(|row| row.event.key() == key)
                .is_some_and(|first| first.id == parked.id)
    }

    fn is_passed(&self, mode: MemoryMode, event: &StoredEvent) -> bool {
        let passed = self.partition_of(event.slot()).cursor;
        let marked = mode == MemoryMode::Mark && self.finished.contains(&event.seq());
        event.seq() <= passed || marked
    }
}

impl ParkedRow {
    fn waits(&self) -> bool {
        self.state.waits()
    }

    /// Whether its key, if it has one, waits for it: the key of what was skipped has gone on.
    fn holds_key(&self) -> bool {
        self.waits() && self.settled_at.is_none()
    }

    fn waits_for_its_turn(&self) -> bool {
        self.state == ParkedState::Parked && self.due.is_none()
    }
}

/// An event to put into a memory store.
#[derive(Debug, Clone, Default)]
pub struct NewEvent {
    /// Its id; none: a new one.
    pub id: Option<Uuid>,
    /// Topic.
    pub topic: String,
    /// Key of order.
    pub key: Option<String>,
    /// Type.
    pub event_type: Option<String>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Payload; none is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// Headers in order.
    pub headers: Vec<(String, Option<String>)>,
    /// Writer's clock, microseconds since 1970-01-01 UTC; none: now.
    pub occurred_at: Option<i64>,
    /// Correlation id.
    pub correlation_id: Option<String>,
    /// Causation id.
    pub causation_id: Option<String>,
    /// Tenant.
    pub tenant_id: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// W3C trace context, the vendors' part.
    pub tracestate: Option<String>,
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
    /// [`StoreError::Bug`] when the events need more than 4 GiB.
    pub fn commit(self) -> Result<(), StoreError> {
        let mut inner = self.store.lock();
        let (mut seq, now) = (inner.last_seq, wall_micros());
        let mut page = PageBuilder::default();
        for (id, event) in &self.events {
            seq += 1;
            let fields = fields(seq, *id, now, event);
            let headers = event
                .headers
                .iter()
                .map(|(name, value)| (&**name, value.as_deref()));
            page.push(&fields, headers)
                .map_err(|full| StoreError::Bug {
                    operation: "committing",
                    reason: full.to_string(),
                })?;
        }
        inner.log.extend(page.finish());
        inner.last_seq = seq;
        Ok(())
    }
}

fn fields(seq: i64, id: Uuid, now: i64, event: &NewEvent) -> StoredFields<'_> {
    // In the order of the engine's `Field`.
    let texts = [
        Some(event.topic.as_str()),
        event.key.as_deref(),
        event.event_type.as_deref(),
        event.content_type.as_deref(),
        event.correlation_id.as_deref(),
        event.causation_id.as_deref(),
        event.tenant_id.as_deref(),
        event.traceparent.as_deref(),
        event.tracestate.as_deref(),
    ];
    let slot = match &event.key {
        Some(key) => posthaste::slot(key),
        None => posthaste::slot(&id.to_string()),
    };
    StoredFields {
        seq,
        id,
        occurred_at: event.occurred_at.unwrap_or(now),
        inserted_at: now,
        slot,
        texts,
        payload: event.payload.as_deref(),
    }
}

impl MemoryStore {
    /// An empty outbox.
    #[must_use]
    pub fn new(mode: MemoryMode) -> Self {
        let inner = Inner {
            next_id: None,
            store_id: Uuid::now_v7(),
            partitions: PARTITIONS,
            log: Vec::new(),
            last_seq: 0,
            retention: RETENTION,
            incarnation: 1,
            relays: BTreeMap::new(),
            destinations: Vec::new(),
            next_parked_id: 1,
            audit: Vec::new(),
        };
        Self {
            mode,
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// The same outbox, whose new destinations have so many partitions; 64 at first.
    ///
    /// # Errors
    /// The answer of [`Partitions::none_of`] about the count.
    pub fn with_partitions(self, count: u16) -> Result<Self, String> {
        self.lock().partitions = Partitions::none_of(count)?.count();
        Ok(self)
    }

    /// The same outbox, whose ids are counted: two runs that do the same have the same.
    #[must_use]
    pub fn with_counted_ids(self) -> Self {
        let mut inner = self.lock();
        inner.next_id = Some(1);
        inner.store_id = inner.new_id();
        drop(inner);
        self
    }

    /// Changes for how long delivered events are kept; 24 h at first.
    pub fn set_retention(&self, window: Duration) {
        self.lock().retention = window;
    }

    /// Makes every line of the audit so much older, for tests of retention.
    pub fn age_audit(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        for line in &mut self.lock().audit {
            line.at = line.at.saturating_sub(by);
        }
    }

    /// Makes all that is set aside so much older, with what was attempted and decided of it, for
    /// tests of retention.
    pub fn age_parked(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        let mut inner = self.lock();
        let destinations = inner.destinations.iter_mut();
        for row in destinations.flat_map(|destination| &mut destination.parked) {
            for at in [&mut row.parked_at, &mut row.tried_at] {
                *at = at.saturating_sub(by);
            }
            row.settled_at = row.settled_at.map(|at| at.saturating_sub(by));
        }
    }

    /// Everything that the audit says, oldest first.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditLine> {
        self.lock().audit.clone()
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
        let inner = self.lock();
        let mut live = inner
            .relays
            .iter()
            .filter(|(_, row)| row.name == name && row.is_live());
        live.next().map(|(registration, _)| *registration)
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
}

#[async_trait]
impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "memory",
            progress: match self.mode {
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

/// The wall's time so long from now.
fn wall_after(wait: Duration) -> i64 {
    wall_micros().saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX))
}
