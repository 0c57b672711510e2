//! The database: transactions, snapshots, one sequence, the outbox and the destination's one cursor
//! row.

use std::sync::Arc;

use posthaste_stores::postgres::{
    model::{Number, Out, Position},
    mvcc::{self, Mvcc},
};

/// An event, numbered over all writers' programs.
pub type Event = u8;

/// A row of the outbox.
pub type Row = mvcc::Row<Event>;

/// The state of the database.
#[derive(Debug, Clone)]
pub struct Database {
    /// The outbox.
    pub mvcc: Mvcc<Event>,
    /// The next xid and the sequence's value at the last flush: a crash goes back to them.
    flushed: (u64, i64),
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
            mvcc: Mvcc::default(),
            flushed: (1, 0),
            token: 0,
            epoch: 0,
            owner: None,
            stored: Arc::new(Position::oldest()),
        }
    }
}

impl Database {
    /// A row that draws its number now.
    pub fn insert(&mut self, xid: u64, event: Event) {
        let seq = self.mvcc.draw();
        self.mvcc.insert(xid, seq, event);
    }

    /// A commit, which flushes everything before it. Answers the events in the order of their rows.
    pub fn commit(&mut self, xid: u64) -> Vec<Event> {
        self.mvcc.complete(xid);
        self.flushed = (self.mvcc.next_xid(), self.mvcc.sequence);
        let rows = self.mvcc.rows.values().filter(|row| row.xid == xid);
        rows.map(|row| row.event).collect()
    }

    /// A transaction of one statement.
    pub fn execute(&mut self) {
        let xid = self.mvcc.begin();
        self.commit(xid);
    }

    /// Back to what was flushed: numbers that only lost transactions used are issued again.
    pub fn crash(&mut self) {
        let (next_xid, sequence) = self.flushed;
        self.mvcc.restart(next_xid, sequence);
        self.token += 1;
    }

    /// Leaves out rows that no read from the stored place on can bring, and that nothing else
    /// needs: what it has passed it never comes back to.
    pub fn forget_passed(&mut self, is_needed: impl Fn(&Row) -> bool) {
        let passed: Vec<i64> = (self.mvcc.committed())
            .filter(|row| self.stored.low_sees(row.xid) && !is_needed(row))
            .map(|row| row.seq)
            .collect();
        for seq in passed {
            self.mvcc.rows.remove(&seq);
        }
    }

    /// Describes all but the rows. `crashes`: whether it may crash.
    pub fn describe(&self, crashes: bool, out: Out<'_>) {
        let Self {
            mvcc,
            flushed: (next_xid, sequence),
            token,
            // A claim is told by whether its epoch is the newest, and a relay by whether it is the
            // owner.
            epoch: _,
            owner: _,
            stored,
        } = self;
        mvcc.describe(out);
        if crashes {
            out(Number::Xid(*next_xid));
            out(Number::Seq(*sequence));
        }
        out(Number::Plain(*token));
        stored.describe(out);
    }
}
