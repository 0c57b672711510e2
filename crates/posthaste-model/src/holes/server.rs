//! The server: writers, commits, locks, the counter, crashes and fail-over.

use std::collections::BTreeSet;

use posthaste_stores::mysql::model::Stored;

use super::{Action, Event, Holes, Kind};

/// A writer has fewer locks than this.
const LOCKS_MAX: u64 = 100;

/// How far a writer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Not,
    Open,
    /// Its transaction is prepared; whether its session is there.
    Prepared(bool),
    /// Its rows are visible, and its locks are held.
    Visible,
    Done,
}

#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub(super) at: At,
    /// The numbers of its events.
    numbers: Vec<u64>,
    /// The identity of its lock on the table.
    ticket: Option<u64>,
    /// How many it has had.
    locks: u64,
    /// It began while the instrument was off, which does not show it.
    is_hidden: bool,
}

/// A commit.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Rows(usize, Vec<u64>),
    Place(Stored),
}

#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) writers: Vec<Writer>,
    /// All that is visible, in the order of the commits.
    pub(super) log: Vec<Entry>,
    /// So many of these survive a crash.
    pub(super) durable: usize,
    /// The last number that was drawn, and the last one when something was made durable.
    last: u64,
    last_durable: u64,
    /// The instrument is on.
    pub(super) sees: bool,
    start: Stored,
}

impl Server {
    pub(super) fn new(writers: usize) -> Self {
        let writer = Writer {
            at: At::Not,
            numbers: Vec::new(),
            ticket: None,
            locks: 0,
            is_hidden: false,
        };
        Self {
            writers: vec![writer; writers],
            log: Vec::new(),
            durable: 0,
            last: 0,
            last_durable: 0,
            sees: true,
            start: Stored::start(),
        }
    }

    /// Another identity than its locks had before.
    fn lock(&mut self, w: usize) -> Option<u64> {
        let writer = &mut self.writers[w];
        writer.locks += 1;
        Some(LOCKS_MAX * w as u64 + writer.locks)
    }

    pub(super) fn writer_actions(&self, of: &Holes, actions: &mut Vec<Action>) {
        for (w, writer) in self.writers.iter().enumerate() {
            let program = of.writers[w];
            let is_whole = writer.numbers.len() == program.keys.len();
            match writer.at {
                At::Not => actions.push(Action::Begin(w)),
                At::Open if !is_whole => {
                    let key = program.keys[writer.numbers.len()];
                    if !self.is_locked(of, w, key) {
                        actions.push(Action::Insert(w));
                    }
                }
                At::Open if program.prepares => actions.push(Action::Prepare(w)),
                At::Open => actions.push(Action::Commit(w)),
                At::Prepared(has_session) => {
                    if has_session {
                        actions.push(Action::Detach(w));
                    }
                    actions.push(Action::Commit(w));
                }
                At::Visible => actions.push(Action::Release(w)),
                At::Done => {}
            }
            if program.may_roll_back && matches!(writer.at, At::Open | At::Prepared(_)) {
                actions.push(Action::RollBack(w));
            }
        }
    }

    /// Whether another writer has locked the key: it has an event of it, and has not committed.
    fn is_locked(&self, of: &Holes, by: usize, key: u8) -> bool {
        let mut others = self.writers.iter().enumerate();
        others.any(|(w, writer)| {
            let written = &of.writers[w].keys[..writer.numbers.len()];
            w != by && matches!(writer.at, At::Open | At::Prepared(_)) && written.contains(&key)
        })
    }

    pub(super) fn write(&mut self, of: &Holes, action: Action) -> Option<()> {
        match action {
            Action::Begin(w) => {
                let ticket = self.lock(w);
                let is_hidden = !self.sees;
                let writer = &mut self.writers[w];
                (writer.at, writer.ticket, writer.is_hidden) = (At::Open, ticket, is_hidden);
            }
            Action::Insert(w) => {
                self.last += 1;
                let number = self.last;
                self.writers[w].numbers.push(number);
            }
            Action::Prepare(w) => {
                self.writers[w].at = At::Prepared(true);
                self.make_durable();
            }
            Action::Detach(w) => self.detach(of, w),
            Action::Commit(w) => {
                let numbers = self.writers[w].numbers.clone();
                self.log.push(Entry::Rows(w, numbers));
                self.writers[w].at = At::Visible;
            }
            Action::Release(w) | Action::RollBack(w) => {
                let writer = &mut self.writers[w];
                (writer.at, writer.ticket) = (At::Done, None);
            }
            _ => return None,
        }
        Some(())
    }

    fn detach(&mut self, of: &Holes, w: usize) {
        self.writers[w].at = At::Prepared(false);
        self.writers[w].ticket = match of.kind {
            Kind::Mysql => self.lock(w),
            Kind::MariaDb => None,
        };
    }

    /// Redo is a prefix: all before it is durable with it.
    pub(super) fn make_durable(&mut self) {
        (self.durable, self.last_durable) = (self.log.len(), self.last);
    }

    /// The locks that the instrument shows.
    pub(super) fn tickets(&self) -> BTreeSet<u64> {
        let shown = self
            .writers
            .iter()
            .filter(|writer| !writer.is_hidden && self.sees);
        shown.filter_map(|writer| writer.ticket).collect()
    }

    pub(super) fn somebody_writes(&self) -> bool {
        self.writers.iter().any(|writer| writer.ticket.is_some())
    }

    /// The prepared transactions. One that commits leaves the list behind its rows' visibility.
    pub(super) fn prepared(&self) -> BTreeSet<u64> {
        let writers = (0..).zip(&self.writers);
        let listed = writers.filter(|(_, writer)| matches!(writer.at, At::Prepared(_)));
        listed.map(|(w, _)| w).collect()
    }

    pub(super) fn is_prepared(&self, w: usize) -> bool {
        matches!(self.writers[w].at, At::Prepared(_))
    }

    /// The visible events with their numbers, in the order of the commits.
    pub(super) fn events(&self) -> impl Iterator<Item = (u64, Event)> {
        self.log.iter().flat_map(|entry| {
            let (w, numbers) = match entry {
                Entry::Rows(w, numbers) => (*w, &**numbers),
                Entry::Place(_) => (0, &[][..]),
            };
            let events = numbers.iter().enumerate();
            events.map(move |(at, &number)| (number, (w, at)))
        })
    }

    /// The visible rows of these ranges, in the order of their numbers.
    pub(super) fn rows(&self, ranges: &[(u64, u64)]) -> Vec<(u64, Event)> {
        let is_wanted = |number: u64| {
            let mut ranges = ranges.iter();
            ranges.any(|&(first, last)| (first..=last).contains(&number))
        };
        let mut rows: Vec<_> = self
            .events()
            .filter(|&(number, _)| is_wanted(number))
            .collect();
        rows.sort_unstable();
        rows
    }

    /// The stored place.
    pub(super) fn place(&self) -> &Stored {
        let mut places = self.log.iter().rev().filter_map(|entry| match entry {
            Entry::Place(place) => Some(place),
            Entry::Rows(..) => None,
        });
        places.next().unwrap_or(&self.start)
    }

    fn keep(&mut self, left: usize) -> Vec<usize> {
        let lost = self.log.split_off(left);
        let lost = lost.into_iter().filter_map(|entry| match entry {
            Entry::Rows(w, _) => Some(w),
            Entry::Place(_) => None,
        });
        lost.collect()
    }

    fn greatest(&self) -> u64 {
        self.events().map(|(number, _)| number).max().unwrap_or(0)
    }

    /// All that is open is rolled back, but for what is prepared.
    pub(super) fn crash(&mut self, of: &Holes, left: usize, counts_again: bool) {
        let undone = self.keep(left);
        for w in 0..self.writers.len() {
            let prepared = of.writers[w].prepares;
            let writer = &self.writers[w];
            let is_prepared = matches!(writer.at, At::Prepared(_));
            if is_prepared || undone.contains(&w) && prepared {
                self.detach(of, w);
            } else if writer.at != At::Not {
                let writer = &mut self.writers[w];
                (writer.at, writer.ticket) = (At::Done, None);
            }
            // The instrument sees what was restored.
            self.writers[w].is_hidden = false;
        }
        if counts_again {
            self.last = self.last_durable.max(self.greatest());
        }
        self.make_durable();
    }

    /// All that the replica has not received is gone, and prepared transactions with it.
    pub(super) fn promote(&mut self, left: usize) {
        self.keep(left);
        for writer in &mut self.writers {
            if writer.at != At::Not {
                (writer.at, writer.ticket) = (At::Done, None);
            }
        }
        self.last = self.greatest();
        self.make_durable();
    }

    /// `is_whole`: all of the log may matter, since any part of it may be what a replica has.
    pub(super) fn describe(&self, is_whole: bool, out: &mut Vec<u64>) {
        let Self {
            writers,
            log,
            durable,
            last,
            last_durable,
            sees,
            // Never changes.
            start: _,
        } = self;
        for writer in writers {
            let Writer {
                at,
                numbers,
                ticket,
                locks,
                is_hidden,
            } = writer;
            let at = match at {
                At::Not => 0,
                At::Open => 1,
                At::Prepared(has_session) => 2 + u64::from(*has_session),
                At::Visible => 4,
                At::Done => 5,
            };
            out.extend([at, numbers.len() as u64]);
            out.extend(numbers);
            out.extend([ticket.unwrap_or(0), *locks, (*is_hidden).into()]);
        }
        out.extend([
            *last,
            *last_durable,
            (*sees).into(),
            (*durable == log.len()).into(),
        ]);
        let describe = |entry: &Entry, out: &mut Vec<u64>| match entry {
            Entry::Rows(w, _) => out.push(*w as u64),
            Entry::Place(place) => {
                out.push(u64::MAX);
                out.extend(place.unseen().flat_map(|(first, last)| [first, last]));
            }
        };
        let (old, new) = log.split_at(if is_whole { 0 } else { *durable });
        // Of what is there for good, the order of rows counts among rows alone.
        let rows = old.iter().filter(|entry| matches!(entry, Entry::Rows(..)));
        rows.for_each(|entry| describe(entry, out));
        let mut places = old
            .iter()
            .rev()
            .filter(|entry| matches!(entry, Entry::Place(_)));
        places
            .next()
            .into_iter()
            .for_each(|entry| describe(entry, out));
        out.push(*durable as u64 * u64::from(is_whole));
        new.iter().for_each(|entry| describe(entry, out));
    }
}
