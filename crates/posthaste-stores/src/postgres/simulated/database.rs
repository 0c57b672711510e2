//! Transaction numbers, snapshots, the sequence, rows by version, and what a crash leaves of them.

use std::{collections::BTreeSet, sync::Arc};

use posthaste_engine::{RetentionMode, StoredEvent};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Commit, Counters, Settings, tables::Tables};
use crate::postgres::{mvcc::Mvcc, types::Snapshot};

/// How far ahead a value of the sequence is logged, as PostgreSQL does it: what is drawn within
/// needs no record.
const LOGGED_AHEAD: i64 = 32;
/// 2026-01-01, in microseconds: where the database's clock begins.
const CLOCK_BEGINS: i64 = 1_767_225_600_000_000;

/// All that a write-ahead log keeps.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) mvcc: Mvcc<StoredEvent>,
    /// The greatest number of a transaction that has written a record.
    written_xid: u64,
    /// Values of the sequence up to this one are in the log.
    logged: i64,
    /// Of the history: transactions that are part of this state.
    commits: usize,
    /// Settings of retention.
    pub(super) retention_seconds: u64,
    pub(super) retention_mode: RetentionMode,
    /// Unlogged: none after a crash, until a relay refills it.
    pub(super) token: Option<Uuid>,
    pub(super) tables: Tables,
    /// No table: what its observers ask for, of the history that survived.
    pub(super) created: Vec<Arc<Creation>>,
}

/// A destination that was created, and the events that retention had removed by then.
pub(super) type Creation = (String, Vec<Uuid>);

/// The server's memory and disk.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) now: Version,
    /// The state on disk, where `now` holds a commit that is not there yet; none: all of `now` is.
    on_disk: Option<Box<Version>>,
    /// Of what is on disk: the greatest number of a transaction, and the logged value of the
    /// sequence.
    flushed: (u64, i64),
    standby: Box<Version>,
    /// Commits of writers, in their order.
    history: Vec<Commit>,
    /// A connection that was made in an earlier one is broken.
    pub(super) generation: u64,
    pub(super) is_up: bool,
    /// Reads that are between their snapshot and their rows.
    pub(super) reading: usize,
    pub(super) counters: Counters,
    seed: u64,
    last_id: u64,
    began: Instant,
    clock_offset: i64,
}

impl Database {
    pub(super) fn new(settings: &Settings) -> Self {
        let now = Version {
            mvcc: Mvcc::default(),
            written_xid: 0,
            logged: 0,
            commits: 0,
            retention_seconds: settings.retention.as_secs(),
            retention_mode: RetentionMode::Truncate,
            token: Some(id(settings.seed, 2)),
            tables: Tables::new(settings.partitions, true, id(settings.seed, 1)),
            created: Vec::new(),
        };
        Self {
            on_disk: None,
            flushed: (0, 0),
            standby: Box::new(now.clone()),
            now,
            history: Vec::new(),
            generation: 0,
            is_up: true,
            reading: 0,
            counters: Counters::default(),
            seed: settings.seed,
            last_id: 2,
            began: Instant::now(),
            clock_offset: 0,
        }
    }

    /// Looks random, and never comes again.
    pub(super) fn new_id(&mut self) -> Uuid {
        self.last_id += 1;
        id(self.seed, self.last_id)
    }

    /// Microseconds since 1970-01-01 UTC.
    pub(super) fn clock(&self) -> i64 {
        let elapsed = self.began.elapsed().as_micros();
        CLOCK_BEGINS + i64::try_from(elapsed).unwrap_or(i64::MAX / 2) + self.clock_offset
    }

    pub(super) fn step_clock(&mut self, micros: i64) {
        self.clock_offset += micros;
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.now.mvcc.visible()
    }

    /// F.
    pub(super) fn sequence(&self) -> i64 {
        self.now.mvcc.sequence
    }

    /// Gives a transaction its number.
    pub(super) fn assign_xid(&mut self) -> u64 {
        self.now.mvcc.begin()
    }

    /// The next value of the sequence, which no rollback gives back.
    pub(super) fn draw(&mut self) -> i64 {
        let seq = self.now.mvcc.draw();
        if seq > self.now.logged {
            self.now.logged = seq + LOGGED_AHEAD;
        }
        seq
    }

    pub(super) fn insert(&mut self, xid: u64, event: StoredEvent) {
        self.now.written_xid = self.now.written_xid.max(xid);
        self.now.mvcc.insert(xid, event.seq(), event);
    }

    /// Takes a row of an open transaction back.
    pub(super) fn take_back(&mut self, seq: i64) {
        self.now.mvcc.rows.remove(&seq);
    }

    /// Commits, durably with all that came before.
    pub(super) fn commit(&mut self, xid: u64) {
        self.complete(xid);
        self.now.written_xid = self.now.written_xid.max(xid);
        self.flush();
    }

    /// The next commit is in memory only.
    pub(super) fn keep_what_is_on_disk(&mut self) {
        if self.on_disk.is_none() {
            self.on_disk = Some(Box::new(self.now.clone()));
        }
    }

    /// Commits in memory: visible, and lost in a crash unless something is flushed before.
    pub(super) fn commit_unflushed(&mut self, xid: u64) {
        self.complete(xid);
        self.now.written_xid = self.now.written_xid.max(xid);
    }

    pub(super) fn flush(&mut self) {
        self.on_disk = None;
        self.flushed = (self.now.written_xid, self.now.logged);
    }

    /// A writer's transaction is about to commit.
    pub(super) fn note_commit(&mut self, commit: Commit) {
        self.history.push(commit);
    }

    fn complete(&mut self, xid: u64) {
        self.now.mvcc.complete(xid);
        self.now.commits = self.history.len();
    }

    pub(super) fn abort(&mut self, xid: u64) {
        if self.now.mvcc.is_open(xid) {
            self.now.mvcc.abort(xid);
        }
    }

    /// Back to what is on disk.
    pub(super) fn crash(&mut self) {
        let issued = self.issued();
        if let Some(on_disk) = self.on_disk.take() {
            self.now = *on_disk;
        }
        self.begin_a_new_life(issued, self.flushed);
    }

    /// The standby catches up with memory.
    pub(super) fn replicate(&mut self) {
        *self.standby = self.now.clone();
    }

    /// The standby has what is on disk.
    pub(super) fn replicate_flushed(&mut self) {
        *self.standby = self.on_disk.as_deref().unwrap_or(&self.now).clone();
    }

    /// Goes on with what the standby has.
    pub(super) fn fail_over(&mut self) {
        let issued = self.issued();
        self.now = (*self.standby).clone();
        self.on_disk = None;
        self.begin_a_new_life(issued, (self.now.written_xid, self.now.logged));
    }

    /// The newest number of a transaction, and the newest value of the sequence.
    fn issued(&self) -> (u64, i64) {
        (self.now.mvcc.next_xid() - 1, self.now.mvcc.sequence)
    }

    /// Numbers that only lost transactions used are issued again; the sequence goes on where it was
    /// logged.
    fn begin_a_new_life(&mut self, issued: (u64, i64), (xid, sequence): (u64, i64)) {
        self.counters.numbers_again += u64::from(issued.0 > xid);
        self.counters.values_again += u64::from(issued.1 > sequence);
        self.generation += 1;
        self.now.mvcc.restart(xid + 1, sequence);
        (self.now.written_xid, self.now.logged) = (xid, sequence);
        self.now.token = None;
        self.history.truncate(self.now.commits);
        self.flush();
    }

    /// Open transactions are rolled back.
    pub(super) fn cut_connections(&mut self) {
        self.generation += 1;
        self.now.mvcc.abort_all();
    }

    pub(super) fn history(&self) -> &[Commit] {
        &self.history
    }

    /// A destination was created.
    pub(super) fn note_creation(&mut self, name: &str) {
        let rows = self.now.mvcc.rows.values();
        let kept: BTreeSet<Uuid> = rows.map(|row| row.event.id()).collect();
        let committed = self.history.iter().flat_map(|commit| &commit.events);
        let gone = committed.filter(|id| !kept.contains(id)).copied().collect();
        let creation = Arc::new((name.to_owned(), gone));
        self.now.created.push(creation);
    }

    /// Somebody took partitions of this destination over from a dead relay.
    pub(super) fn note_take_over(&mut self, destination_id: i64) {
        let mut parked = self.now.tables.parked.values();
        let parked = parked.any(|row| row.waits() && row.destination_id == destination_id);
        self.counters.take_overs += 1;
        self.counters.take_overs_while_parked += u64::from(parked);
    }

    /// Whether a new snapshot sees what this transaction did.
    pub(super) fn is_completed(&self, xid: u64) -> bool {
        xid < self.now.mvcc.next_xid() && !self.now.mvcc.is_open(xid)
    }

    /// Whether a transaction is open that has written into this leaf.
    pub(super) fn is_being_written(&self, rows: impl Fn(i64) -> bool) -> bool {
        let Mvcc { rows: all, .. } = &self.now.mvcc;
        let mut newest_first = all.values().rev();
        newest_first.any(|row| self.now.mvcc.is_open(row.xid) && rows(row.seq))
    }
}

/// Well spread, as random numbers are, and the same for the same seed.
fn id(seed: u64, number: u64) -> Uuid {
    let mix = |number: u64| {
        let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let high = mix(seed ^ mix(number));
    let bytes = Uuid::from_u64_pair(high, mix(high ^ number)).into_bytes();
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
