//! The outbox as PostgreSQL keeps it, in memory: numbers of transactions, snapshots, the sequence
//! and rows. The simulation, the checked model and the tests of the sweep share it. Not part of the
//! interface.

use std::collections::BTreeMap;

use super::{sweep::Request, types::Snapshot};

/// A row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<E> {
    /// Drawn from the sequence.
    pub seq: i64,
    /// Its transaction.
    pub xid: u64,
    /// Its other columns.
    pub event: E,
}

/// The outbox and the transactions that write it.
#[derive(Debug, Clone)]
pub struct Mvcc<E> {
    pub(super) next_xid: u64,
    pub(super) latest_completed: u64,
    /// In progress, ascending.
    pub(super) open: Vec<u64>,
    /// The sequence's value.
    pub sequence: i64,
    /// By `seq`; those of transactions that were rolled back are gone.
    pub rows: BTreeMap<i64, Row<E>>,
}

impl<E> Default for Mvcc<E> {
    fn default() -> Self {
        Self {
            next_xid: 1,
            latest_completed: 0,
            open: Vec::new(),
            sequence: 0,
            rows: BTreeMap::new(),
        }
    }
}

impl<E> Mvcc<E> {
    /// A transaction gets its number.
    pub fn begin(&mut self) -> u64 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.open.push(xid);
        xid
    }

    /// The number that the next transaction gets.
    #[must_use]
    pub fn next_xid(&self) -> u64 {
        self.next_xid
    }

    /// The next value of the sequence, which no rollback gives back.
    pub fn draw(&mut self) -> i64 {
        self.sequence += 1;
        self.sequence
    }

    /// Inserts a row.
    pub fn insert(&mut self, xid: u64, seq: i64, event: E) {
        self.rows.insert(seq, Row { seq, xid, event });
    }

    /// Ends a transaction: snapshots from now on see its rows.
    pub fn complete(&mut self, xid: u64) {
        self.open.retain(|&open| open != xid);
        self.latest_completed = self.latest_completed.max(xid);
    }

    /// Rolls a transaction back.
    pub fn abort(&mut self, xid: u64) {
        self.rows.retain(|_, row| row.xid != xid);
        self.complete(xid);
    }

    /// Rolls back all that is in progress.
    pub fn abort_all(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.rows.retain(|_, row| !open.contains(&row.xid));
        let latest = open.last().copied().unwrap_or(0);
        self.latest_completed = self.latest_completed.max(latest);
    }

    /// Goes on after a crash: numbers from these on are issued again, and no transaction is in
    /// progress.
    pub fn restart(&mut self, next_xid: u64, sequence: i64) {
        self.abort_all();
        (self.next_xid, self.latest_completed) = (next_xid, next_xid - 1);
        self.sequence = sequence;
    }

    /// Whether a transaction is in progress.
    #[must_use]
    pub fn is_open(&self, xid: u64) -> bool {
        self.open.binary_search(&xid).is_ok()
    }

    /// Rows of transactions that have committed, by `seq`.
    pub fn committed(&self) -> impl DoubleEndedIterator<Item = &Row<E>> + Clone {
        let rows = self.rows.values();
        rows.filter(|row| !self.is_open(row.xid))
    }

    /// The snapshot of a statement that begins now.
    pub(super) fn visible(&self) -> Snapshot {
        let xmax = self.latest_completed + 1;
        let below = self.open.iter().copied().filter(|&xid| xid < xmax);
        Snapshot::new(xmax, below.collect())
    }

    /// The least transaction in progress, else the next one: `xmin`.
    #[must_use]
    pub fn xmin(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next_xid)
    }
}

impl Request {
    /// The statement brings rows behind this `seq`: transactions that its snapshot sees finished
    /// set it back to their own floors.
    pub(super) fn start(&self, snapshot: &Snapshot) -> i64 {
        match self {
            Self::Poll {
                floor,
                stragglers: (xids, floors),
                ..
            } => {
                let finished = xids.iter().zip(floors);
                let finished = finished.filter(|(xid, _)| snapshot.sees(xid.0));
                finished.map(|(_, own)| *own).fold(*floor, i64::min)
            }
            Self::Page { last, .. } => *last,
        }
    }

    /// The last `seq` that the statement may bring.
    pub(super) fn end(&self) -> i64 {
        match self {
            Self::Poll { .. } => i64::MAX,
            Self::Page { until, .. } => *until,
        }
    }

    /// Whether the statement brings this row: the shipped SQL in words.
    pub(super) fn takes(&self, snapshot: &Snapshot, xid: u64, seq: i64) -> bool {
        let (low, high) = match self {
            Self::Poll { low, .. } => (low, snapshot),
            Self::Page { low, high, .. } => (low, &**high),
        };
        seq > self.start(snapshot) && seq <= self.end() && !low.sees(xid) && high.sees(xid)
    }
}
