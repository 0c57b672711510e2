//! A server in small: numbers, transactions, locks, XA, a log of commits of which a crash keeps
//! what is durable, and a replica that has a part of it.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_engine::Partitions;
use rand::{Rng, rngs::SmallRng};

use super::super::{place::Place, proof::Ticket};

/// A key is a partition.
pub(super) const KEYS: u16 = 4;
/// Transactions that are open at a time.
const OPEN_MAX: usize = 4;

/// An event of a key. Its writer holds the key's lock until it commits, so that of two events of a
/// key the one with the greater id is committed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) id: u64,
    pub(super) key: u16,
}

#[derive(Debug, Clone)]
struct Transaction {
    ticket: Option<u64>,
    /// XA has prepared it.
    xid: Option<u64>,
    /// Its rows are visible, and its ticket is still held.
    is_visible: bool,
    /// It began while the instrument was off.
    is_hidden: bool,
    rows: Vec<(u64, Event)>,
}

/// A row of cursors.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) id: i64,
    pub(super) partitions: Partitions,
    pub(super) place: Place,
    pub(super) ver: i64,
    pub(super) epoch: i64,
    pub(super) relay: usize,
}

/// A commit.
#[derive(Debug, Clone)]
enum Entry {
    /// With the name of the prepared transaction that it was.
    Rows(Vec<(u64, Event)>, Option<u64>),
    Deleted(Vec<u64>),
    Cursors(Vec<Cursor>),
}

/// The ways of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// A prepared transaction whose session has gone keeps its lock, under another ticket.
    pub(super) keeps_locks: bool,
    /// A commit is durable before it is visible.
    pub(super) is_durable_first: bool,
}

#[derive(Debug)]
pub(super) struct Server {
    kind: Kind,
    last: u64,
    /// The last number of which the log tells.
    last_durable: u64,
    names: u64,
    open: Vec<Transaction>,
    log: Vec<Entry>,
    durable: usize,
    /// So much of the log has the replica.
    received: usize,
    /// Raised when all connections are lost.
    pub(super) life: u64,
    /// The instrument is on.
    pub(super) sees: bool,
    /// The rows of the outbox, and of cursors.
    pub(super) rows: BTreeMap<u64, Event>,
    pub(super) cursors: Vec<Cursor>,
}

impl Server {
    pub(super) fn new(kind: Kind) -> Self {
        let mut server = Self {
            kind,
            last: 0,
            last_durable: 0,
            names: 0,
            open: Vec::new(),
            log: Vec::new(),
            durable: 0,
            received: 0,
            life: 0,
            sees: true,
            rows: BTreeMap::new(),
            cursors: Vec::new(),
        };
        server.store(vec![Cursor {
            id: 1,
            partitions: Partitions::all_of(KEYS).unwrap(),
            place: Place::start(),
            ver: 0,
            epoch: 1,
            relay: 0,
        }]);
        server.make_durable();
        server.received = server.log.len();
        server
    }

    /// A name that was never given.
    fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// Something that writers do, or the server beside them.
    pub(super) fn step(&mut self, random: &mut SmallRng) {
        let at = (!self.open.is_empty()).then(|| random.random_range(0..self.open.len()));
        match (random.random_range(0..12), at) {
            (0 | 1, _) if self.open.len() < OPEN_MAX => {
                let ticket = self.name();
                self.open.push(Transaction {
                    ticket: Some(ticket),
                    xid: None,
                    is_visible: false,
                    is_hidden: !self.sees,
                    rows: Vec::new(),
                });
            }
            (2..=4, Some(at)) if self.may_write(at) => self.insert(at, random),
            // Back to a savepoint: the number stays drawn.
            (5, Some(at)) if self.may_write(at) => drop(self.open[at].rows.pop()),
            (6, Some(at)) if self.may_write(at) => {
                self.open[at].xid = Some(self.name());
                self.make_durable();
            }
            (7, Some(at)) if self.open[at].xid.is_some() => self.detach(at),
            (8 | 9, Some(at)) => self.commit(at),
            (10, Some(at)) if random.random_range(0..3) == 0 => self.roll_back(at),
            (11, _) => match random.random::<bool>() {
                true => self.make_durable(),
                false => {
                    // A replica receives what the log has on the disk.
                    let durable = self.durable;
                    self.received = random.random_range(self.received.min(durable)..=durable);
                }
            },
            _ => {}
        }
    }

    fn may_write(&self, at: usize) -> bool {
        self.open[at].xid.is_none() && !self.open[at].is_visible
    }

    fn insert(&mut self, at: usize, random: &mut SmallRng) {
        // Steps of the counter, and statements that fail.
        self.last += random.random_range(1..3);
        let key = random.random_range(0..KEYS);
        let mut others = self.open.iter().enumerate();
        let is_locked = others.any(|(other, open)| {
            other != at && !open.is_visible && open.rows.iter().any(|(_, event)| event.key == key)
        });
        if !is_locked {
            let event = Event {
                id: self.name(),
                key,
            };
            let number = self.last;
            self.open[at].rows.push((number, event));
        }
    }

    fn detach(&mut self, at: usize) {
        self.open[at].ticket = self.kind.keeps_locks.then(|| self.name());
    }

    /// Visible first; then the lock goes, and the name of a prepared transaction.
    fn commit(&mut self, at: usize) {
        if self.open[at].is_visible {
            self.open.swap_remove(at);
            return;
        }
        self.open[at].is_visible = true;
        let (rows, xid) = (self.open[at].rows.clone(), self.open[at].xid);
        self.enter(Entry::Rows(rows, xid));
    }

    fn roll_back(&mut self, at: usize) {
        if !self.open[at].is_visible {
            self.open.swap_remove(at);
        }
    }

    fn enter(&mut self, entry: Entry) {
        self.show(&entry);
        self.log.push(entry);
        if self.kind.is_durable_first {
            self.make_durable();
        }
    }

    fn show(&mut self, entry: &Entry) {
        match entry {
            Entry::Rows(rows, _) => self.rows.extend(rows.iter().copied()),
            Entry::Deleted(numbers) => self.rows.retain(|number, _| !numbers.contains(number)),
            Entry::Cursors(cursors) => self.cursors.clone_from(cursors),
        }
    }

    /// The log is written in its order: all before it is durable too.
    pub(super) fn make_durable(&mut self) {
        (self.durable, self.last_durable) = (self.log.len(), self.last);
    }

    pub(super) fn store(&mut self, cursors: Vec<Cursor>) {
        self.enter(Entry::Cursors(cursors));
    }

    pub(super) fn delete(&mut self, numbers: Vec<u64>) {
        self.enter(Entry::Deleted(numbers));
    }

    /// The locks that the instrument shows.
    pub(super) fn tickets(&self) -> BTreeSet<Ticket> {
        let shown = self.open.iter().filter(|open| self.sees && !open.is_hidden);
        let tickets = shown.filter_map(|open| open.ticket);
        tickets.map(|ticket| (ticket, 0, 0)).collect()
    }

    pub(super) fn somebody_writes(&self) -> bool {
        self.open.iter().any(|open| open.ticket.is_some())
    }

    pub(super) fn prepared(&self) -> BTreeSet<Vec<u8>> {
        let listed = self.open.iter().filter(|open| !open.is_visible);
        let names = listed.filter_map(|open| open.xid);
        names.map(|xid| xid.to_be_bytes().to_vec()).collect()
    }

    /// The next number that is drawn is greater.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The events that were committed and not lost, whether their rows are there or not.
    pub(super) fn events(&self) -> BTreeSet<Event> {
        let rows = self.log.iter().filter_map(|entry| match entry {
            Entry::Rows(rows, _) => Some(rows),
            _ => None,
        });
        rows.flatten().map(|&(_, event)| event).collect()
    }

    /// Forgets all behind so much of the log; answers the prepared transactions of it.
    fn cut(&mut self, left: usize) -> Vec<Transaction> {
        let lost = self.log.split_off(left);
        self.rows.clear();
        for entry in std::mem::take(&mut self.log) {
            self.show(&entry);
            self.log.push(entry);
        }
        let prepared = lost.into_iter().filter_map(|entry| match entry {
            Entry::Rows(rows, xid @ Some(_)) => Some(Transaction {
                ticket: None,
                xid,
                is_visible: false,
                is_hidden: false,
                rows,
            }),
            _ => None,
        });
        prepared.collect()
    }

    fn greatest(&self) -> u64 {
        let rows = self.log.iter().filter_map(|entry| match entry {
            Entry::Rows(rows, _) => Some(rows),
            _ => None,
        });
        let prepared = self.open.iter().map(|open| &open.rows);
        let numbers = rows.chain(prepared).flatten().map(|&(number, _)| number);
        numbers.max().unwrap_or(0)
    }

    /// All that is open is rolled back, but for what is prepared. Numbers behind the last one of
    /// which the log tells may be given again.
    pub(super) fn crash(&mut self, random: &mut SmallRng) {
        let left = random.random_range(self.durable..=self.log.len());
        let undone = self.cut(left);
        self.open
            .retain(|open| open.xid.is_some() && !open.is_visible);
        self.open.extend(undone);
        for at in 0..self.open.len() {
            self.detach(at);
            // The instrument sees what was restored.
            self.open[at].is_hidden = false;
        }
        if random.random::<bool>() {
            self.last = self.last_durable.max(self.greatest());
        }
        self.received = self.received.min(left);
        self.begin_life();
    }

    /// All that the replica has not received is gone, and prepared transactions with it.
    pub(super) fn promote(&mut self) {
        self.cut(self.received);
        self.open.clear();
        self.last = self.greatest();
        self.begin_life();
    }

    fn begin_life(&mut self) {
        self.make_durable();
        self.life += 1;
    }

    /// A backup of any time takes the place of the tables, whose open transactions are ended.
    /// Connections stay. It waits for what XA has prepared: answers whether there is nothing.
    pub(super) fn restore(&mut self, random: &mut SmallRng) -> bool {
        if self.open.iter().any(|open| open.xid.is_some()) {
            return false;
        }
        self.open.clear();
        // The first entry is that of the tables' making.
        let left = random.random_range(1..=self.log.len());
        self.cut(left);
        self.last = self.greatest();
        self.received = self.received.min(left);
        self.make_durable();
        true
    }

    /// All that are left end, one way or the other.
    pub(super) fn come_to_rest(&mut self, random: &mut SmallRng) {
        while let Some(at) = self.open.len().checked_sub(1) {
            match random.random_range(0..4) {
                0 => self.roll_back(at),
                _ => self.commit(at),
            }
        }
        self.sees = true;
    }
}
