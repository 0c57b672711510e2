//! The database: transactions, snapshots, one sequence, the outbox and the destination's one cursor row.

use std::sync::Arc;

use posthaste_stores::postgres::model::{Number, Out, Position, Snapshot};

/// An event, numbered over all writers' programs.
pub type Event = u8;

/// A row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Drawn from the sequence.
    pub seq: i64,
    /// Its transaction.
    pub xid: u64,
    /// What it says.
    pub event: Event,
    /// Its transaction has committed.
    pub committed: bool,
}

/// The state of the database.
#[derive(Debug, Clone)]
pub struct Database {
    next_xid: u64,
    latest_completed: u64,
    /// In progress, ascending.
    open: Vec<u64>,
    /// The sequence's value.
    pub sequence: i64,
    /// What a crash goes back to: the next xid and the sequence's value at the last flush.
    flushed: (u64, i64),
    /// The outbox.
    pub rows: Vec<Row>,
    /// The incarnation.
    pub token: u64,
    /// Of the cursor row.
    pub epoch: u64,
    /// Which relay owns the cursor row.
    pub owner: Option<usize>,
    /// Where the cursor stands.
    pub stored: Arc<Position>,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            next_xid: 1,
            latest_completed: 0,
            open: Vec::new(),
            sequence: 0,
            flushed: (1, 0),
            rows: Vec::new(),
            token: 0,
            epoch: 0,
            owner: None,
            stored: Arc::new(Position::oldest()),
        }
    }
}

impl Database {
    /// A transaction gets its number.
    pub fn begin(&mut self) -> u64 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.open.push(xid);
        xid
    }

    /// A row that draws its number now.
    pub fn insert(&mut self, xid: u64, event: Event) {
        self.sequence += 1;
        self.rows.push(Row {
            seq: self.sequence,
            xid,
            event,
            committed: false,
        });
    }

    fn complete(&mut self, xid: u64) {
        self.open.retain(|&open| open != xid);
        self.latest_completed = self.latest_completed.max(xid);
    }

    /// A commit, which flushes everything before it. Answers the events in the order of their rows.
    pub fn commit(&mut self, xid: u64) -> Vec<Event> {
        self.complete(xid);
        self.flushed = (self.next_xid, self.sequence);
        let mut events = Vec::new();
        for row in self.rows.iter_mut().filter(|row| row.xid == xid) {
            row.committed = true;
            events.push(row.event);
        }
        events
    }

    /// A rollback.
    pub fn abort(&mut self, xid: u64) {
        self.complete(xid);
        self.rows.retain(|row| row.xid != xid);
    }

    /// Back to what was flushed: numbers that only lost transactions used are issued again.
    pub fn crash(&mut self) {
        (self.next_xid, self.sequence) = self.flushed;
        self.open.clear();
        self.rows.retain(|row| row.committed);
        self.latest_completed = self.next_xid - 1;
        self.token += 1;
    }

    /// What a statement that begins now sees.
    pub fn snapshot(&self) -> Snapshot {
        let xmax = self.latest_completed + 1;
        let below = self.open.iter().copied().filter(|&xid| xid < xmax);
        Snapshot::new(xmax, below.collect())
    }

    /// The least transaction in progress, else the next one: `xmin`.
    pub fn xmin(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next_xid)
    }

    /// Leaves out rows that no read from the stored place on can bring, and that nothing else needs: what it has
    /// passed it never comes back to.
    pub fn forget_passed(&mut self, is_needed: impl Fn(&Row) -> bool) {
        let Self { rows, stored, .. } = self;
        rows.retain(|row| !(row.committed && stored.low_sees(row.xid)) || is_needed(row));
    }

    /// Describes all but the rows. `crashes`: whether it may crash.
    pub fn describe(&self, crashes: bool, out: Out<'_>) {
        out(Number::Xid(self.next_xid));
        out(Number::Xmax(self.latest_completed + 1));
        out(Number::Plain(self.open.len() as u64));
        self.open.iter().for_each(|&xid| out(Number::Xid(xid)));
        out(Number::Seq(self.sequence));
        if crashes {
            out(Number::Xid(self.flushed.0));
            out(Number::Seq(self.flushed.1));
        }
        out(Number::Plain(self.token));
        self.stored.describe(out);
    }
}
