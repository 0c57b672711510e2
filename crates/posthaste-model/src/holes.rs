//! A log with holes, as MySQL and MariaDB have it, and the proof that closes them.
//!
//! Where the reader has read to, and its proof, are the MySQL store's own. Modelled are the server:
//! numbers, commits, metadata locks, XA, an instrument that may be blind, crashes and fail-over;
//! and the order of the reader's statements. A read is one consistent view, delivered at once.

mod action;
mod server;

use std::collections::BTreeSet;

pub use action::Action;
use posthaste_stores::{
    mysql::model::{Reader, Stored},
    postgres::model::Number,
};
use server::{At, Entry, Server};

use crate::{checker::Machine, scenario::Promise};

/// A transaction of a writer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The keys of its events, in order.
    pub keys: &'static [u8],
    /// Whether it may be rolled back, too.
    pub may_roll_back: bool,
    /// Whether XA prepares it.
    pub prepares: bool,
}

/// The kind of the server, as far as the proof meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A prepared transaction without a session keeps its lock under another identity.
    Mysql,
    /// It has no lock.
    MariaDb,
}

/// The part of the design that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Without {
    /// A sample is begun behind the read that has shown the hole.
    SampleBehindRead,
    /// A read behind the last sample lacks the number.
    ReadBehindSample,
    /// Prepared transactions are waited for.
    Prepared,
    /// They are listed behind the locks.
    LocksFirst,
    /// Holes are closed by proof: they are closed at once.
    Proof,
    /// Holes are read: only what lies behind the greatest number is.
    Holes,
    /// The reader's own lock has to be in the list.
    Canary,
    /// An instrument that was blind is trusted behind a granted lock only.
    LockAfterBlindness,
    /// Nothing is kept when a connection is lost.
    PlaceOfTheServer,
    /// A write of ours is made durable between read and delivery.
    Fence,
}

/// How many faults there may be of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// The server is killed, and starts again.
    pub crashes: u8,
    /// An asynchronous replica takes its place.
    pub promotions: u8,
    /// The instrument is switched off; it is switched on once the reader has noticed.
    pub blind: u8,
}

/// The machine that is explored.
#[derive(Debug, Clone)]
pub struct Holes {
    /// The writers' transactions.
    pub writers: &'static [Transaction],
    /// The server's kind.
    pub kind: Kind,
    /// Rows of a page at the most.
    pub page: usize,
    /// The faults.
    pub faults: Faults,
    /// The part that is left out.
    pub without: Option<Without>,
}

/// An event: its writer, and its place in the writer's transaction.
type Event = (usize, usize);

/// A look at who may still commit, half done.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Look {
    /// The locks are listed. With [`Without::LocksFirst`] the prepared transactions are.
    Listed(u64, BTreeSet<u64>),
    /// A lock is asked for. Whether the instrument was not blind since.
    Asked(u64, bool),
    /// It was granted.
    Granted(u64, bool),
}

/// A state of everything.
#[derive(Debug, Clone)]
pub struct State {
    server: Server,
    reader: Option<Reader>,
    look: Option<Look>,
    /// The instrument was blind, and no lock was granted since.
    is_distrusted: bool,
    delivered: BTreeSet<Event>,
    faults: Faults,
    broken: Option<Promise>,
}

impl Holes {
    fn leaves_out(&self, part: Without) -> bool {
        self.without == Some(part)
    }

    fn key(&self, (writer, at): Event) -> u8 {
        self.writers[writer].keys[at]
    }

    fn reader_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(reader) = &state.reader else {
            return actions.push(Action::Open);
        };
        let looks_aside = matches!(state.look, None | Some(Look::Asked(..)))
            || self.leaves_out(Without::SampleBehindRead);
        if looks_aside {
            actions.push(Action::Read);
        }
        actions.push(Action::Advance);
        match &state.look {
            None if reader.wants_sample() || self.leaves_out(Without::SampleBehindRead) => {
                actions.push(Action::ListLocks);
                if state.is_distrusted {
                    actions.push(Action::Ask);
                }
            }
            None => {}
            Some(Look::Asked(..)) => {
                actions.push(Action::ListLocks);
                if !state.server.somebody_writes() {
                    actions.push(Action::Grant);
                }
            }
            Some(Look::Listed(..) | Look::Granted(..)) => actions.push(Action::ListPrepared),
        }
    }

    fn read(&self, state: &mut State) -> Option<()> {
        let reader = state.reader.as_mut()?;
        let decided = match self.leaves_out(Without::Proof) {
            true => u64::MAX,
            false => reader.decided(),
        };
        let mut wanted = reader.unseen();
        if self.leaves_out(Without::Holes) {
            wanted.retain(|&(_, last)| last == u64::MAX);
        }
        let rows = state.server.rows(&wanted);
        let page: Vec<(u64, Event)> = rows.into_iter().take(self.page).collect();
        let numbers: Vec<u64> = page.iter().map(|&(number, _)| number).collect();
        let covered = match numbers.len() < self.page {
            true => u64::MAX,
            false => numbers.last().copied()?,
        };
        reader.read(&numbers, covered, decided);
        if !page.is_empty() && !self.leaves_out(Without::Fence) {
            state.server.make_durable();
        }
        for (_, event) in page {
            self.deliver(state, event);
        }
        Some(())
    }

    fn deliver(&self, state: &mut State, event: Event) {
        if !state.delivered.insert(event) {
            return;
        }
        let mut earlier = state.server.events().take_while(|&(_, of)| of != event);
        let is_overtaken = |of| self.key(of) == self.key(event) && !state.delivered.contains(&of);
        if earlier.any(|(_, of)| is_overtaken(of)) {
            state.broken = Some(Promise::Order);
        }
    }

    fn list_locks(&self, state: &mut State) -> Option<()> {
        let reader = state.reader.as_mut()?;
        if !state.server.sees && !self.leaves_out(Without::Canary) {
            if !state.is_distrusted {
                reader.doubt();
            }
            state.is_distrusted = true;
            if let Some(Look::Asked(_, saw)) = &mut state.look {
                *saw = false;
            }
            return Some(());
        }
        if state.is_distrusted && !self.leaves_out(Without::LockAfterBlindness) {
            return None;
        }
        let first = match self.leaves_out(Without::LocksFirst) {
            true => state.server.prepared(),
            false => state.server.tickets(),
        };
        state.look = Some(Look::Listed(reader.high(), first));
        Some(())
    }

    fn list_prepared(&self, state: &mut State) -> Option<()> {
        let reader = state.reader.as_mut()?;
        let mut prepared = match self.leaves_out(Without::Prepared) {
            true => BTreeSet::new(),
            false => state.server.prepared(),
        };
        match state.look.take()? {
            Look::Listed(mut high, mut tickets) => {
                if self.leaves_out(Without::SampleBehindRead) {
                    high = reader.high();
                }
                if self.leaves_out(Without::LocksFirst) {
                    prepared = std::mem::replace(&mut tickets, state.server.tickets());
                }
                reader.sampled(high, &tickets, &prepared);
            }
            Look::Granted(high, saw) => {
                reader.granted(high, &prepared);
                state.is_distrusted &= !saw;
            }
            Look::Asked(..) => return None,
        }
        if self.leaves_out(Without::ReadBehindSample) {
            reader.read(&[], u64::MAX, reader.decided());
        }
        Some(())
    }

    fn advance(state: &mut State) -> Option<()> {
        let place = state.reader.as_mut()?.advance()?;
        state.server.log.push(Entry::Place(place));
        state.server.make_durable();
        Some(())
    }

    /// The server begins another life.
    fn restarts(&self, state: &mut State) {
        if !self.leaves_out(Without::PlaceOfTheServer) {
            state.reader = None;
        }
        state.look = None;
    }

    fn crash(&self, state: &mut State, left: usize, counts_again: bool) -> Option<()> {
        state.faults.crashes = state.faults.crashes.checked_sub(1)?;
        state.server.crash(self, left, counts_again);
        self.restarts(state);
        let server = &state.server;
        let is_there = |event: &Event| {
            let mut events = server.events();
            events.any(|(_, of)| of == *event) || server.is_prepared(event.0)
        };
        if !state.delivered.iter().all(is_there) {
            state.broken = Some(Promise::Phantom);
        }
        Some(())
    }

    fn promote(&self, state: &mut State, left: usize) -> Option<()> {
        state.faults.promotions = state.faults.promotions.checked_sub(1)?;
        state.server.promote(left);
        self.restarts(state);
        Some(())
    }

    fn switch(state: &mut State) -> Option<()> {
        if state.server.sees {
            state.faults.blind = state.faults.blind.checked_sub(1)?;
        }
        state.server.sees ^= true;
        Some(())
    }

    /// A visible row that was not delivered, and is not read any more.
    fn loses(state: &State) -> bool {
        let stored = state.server.place();
        let mut events = state.server.events();
        events.any(|(number, event)| {
            let is_behind = stored.has_seen(number) || {
                let of = |reader: &Reader| {
                    let unseen = reader.unseen();
                    unseen
                        .iter()
                        .all(|&(first, last)| number < first || number > last)
                };
                state.reader.as_ref().is_some_and(of)
            };
            is_behind && !state.delivered.contains(&event)
        })
    }
}

impl Machine for Holes {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        State {
            server: Server::new(self.writers.len()),
            reader: None,
            look: None,
            is_distrusted: false,
            delivered: BTreeSet::new(),
            faults: self.faults,
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.server.writer_actions(self, actions);
        self.reader_actions(state, actions);
        let log = &state.server.log;
        if state.faults.crashes > 0 {
            for left in state.server.durable..=log.len() {
                let crash = |counts_again| Action::Crash { left, counts_again };
                actions.extend([false, true].map(crash));
            }
        }
        if state.faults.promotions > 0 {
            actions.extend((0..=log.len()).map(Action::Promote));
        }
        let may_switch = match state.server.sees {
            true => state.faults.blind > 0,
            // An instrument that is off and on between two looks is out of the proof's reach.
            false => state.is_distrusted || self.leaves_out(Without::Canary),
        };
        if may_switch {
            actions.push(Action::Switch);
        }
    }

    fn step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Open => state.reader = Some(Reader::open(state.server.place())),
            Action::Read => self.read(&mut state)?,
            Action::ListLocks => self.list_locks(&mut state)?,
            Action::ListPrepared => self.list_prepared(&mut state)?,
            Action::Ask => {
                let high = state.reader.as_ref()?.high();
                state.look = Some(Look::Asked(high, state.server.sees));
            }
            Action::Grant => match state.look {
                Some(Look::Asked(high, saw)) => state.look = Some(Look::Granted(high, saw)),
                _ => return None,
            },
            Action::Advance => Self::advance(&mut state)?,
            Action::Crash { left, counts_again } => self.crash(&mut state, left, counts_again)?,
            Action::Promote(left) => self.promote(&mut state, left)?,
            Action::Switch => Self::switch(&mut state)?,
            written => state.server.write(self, written)?,
        }
        if Self::loses(&state) && state.broken.is_none() {
            state.broken = Some(Promise::Loss);
        }
        Some(state)
    }

    fn describe(&self, state: &State) -> Vec<Number> {
        let State {
            server,
            reader,
            look,
            is_distrusted,
            delivered,
            faults,
            broken: _,
        } = state;
        let mut plain = Vec::new();
        server.describe(faults.promotions > 0, &mut plain);
        plain.push(reader.is_some().into());
        if let Some(reader) = reader {
            let unseen = reader.unseen();
            plain.push(unseen.len() as u64);
            plain.extend(unseen.iter().flat_map(|&(first, last)| [first, last]));
            plain.push(reader.fingerprint());
        }
        match look {
            None => plain.push(0),
            Some(Look::Listed(high, tickets)) => {
                plain.extend([1, *high, tickets.len() as u64]);
                plain.extend(tickets);
            }
            Some(Look::Asked(high, saw)) => plain.extend([2, *high, (*saw).into()]),
            Some(Look::Granted(high, saw)) => plain.extend([3, *high, (*saw).into()]),
        }
        plain.push((*is_distrusted).into());
        plain.push(delivered.len() as u64);
        plain.extend(delivered.iter().flat_map(|&(w, at)| [w as u64, at as u64]));
        let Faults {
            crashes,
            promotions,
            blind,
        } = faults;
        plain.extend([crashes, promotions, blind].map(|&count| u64::from(count)));
        plain.into_iter().map(Number::Plain).collect()
    }

    fn broken(state: &State) -> Option<Promise> {
        state.broken
    }

    fn is_drained(&self, state: &State) -> bool {
        let server = &state.server;
        let has_no_hole = |place: &Stored| place.unseen().count() == 1;
        server.writers.iter().all(|writer| writer.at == At::Done)
            && server
                .events()
                .all(|(_, event)| state.delivered.contains(&event))
            && server
                .events()
                .all(|(number, _)| server.place().has_seen(number))
            && has_no_hole(server.place())
            && server.place().has_seen(1)
    }
}
