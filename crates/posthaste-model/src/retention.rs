//! Retention beside open writers, reading destinations and one that is created meanwhile.
//!
//! The floors are the production sweep's: each destination reads through the production pipeline,
//! and what it stores is what the sweep says. Modelled are the locks and statements of
//! `retention_truncate.sql`, `retention_delete.sql` and `destination_create.sql`. A poll and an
//! advance are one step each; other scenarios tear them apart.

mod action;

use std::sync::Arc;

pub use action::Action;
use posthaste_engine::rule::Rule;
use posthaste_stores::postgres::model::{Number, Position, Standing};

use crate::{
    action::Action as Written,
    checker::Machine,
    database::{Event, Row},
    relay::{Found, Memory},
    scenario::{Promise, System},
    state::State as World,
};

/// How rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Removal {
    /// A whole leaf of so many rows, under the leaf's own lock as well.
    Truncate(i64),
    /// Rows, under the retention lock alone.
    Delete,
}

/// The machine that is explored.
#[derive(Debug, Clone)]
pub struct Keeping {
    /// The writers; its relays are none.
    pub writers: System,
    /// How rows go.
    pub removal: Removal,
    /// Whether the first destination sets a block marker for key `a`, once.
    pub marks: bool,
    /// Whether another destination is created: behind all that is visible, or at the oldest event.
    pub creates: Option<Start>,
    /// The rule that is left out.
    pub left_out: Option<Rule>,
}

/// Where a new destination starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// At the oldest event.
    Oldest,
    /// Behind everything visible.
    Now,
}

/// A destination that was created.
#[derive(Debug, Clone)]
struct Destination {
    /// None: nobody has claimed it yet.
    memory: Option<Arc<Memory>>,
    stored: Arc<Position>,
    /// Events that it has delivered, or need not.
    done: Vec<Event>,
}

/// How far the creation of another destination has come.
#[derive(Debug, Clone)]
enum Creation {
    Not,
    /// It has the retention lock, where it takes that.
    Locked,
    /// The row is inserted: it stands here. The transaction has this number.
    Inserted(u64, Position),
    Made,
}

/// How far retention has come.
#[derive(Debug, Clone)]
enum Keeper {
    Idle,
    /// The rows that were due in a look without a lock.
    Looked(i64),
    /// It has its locks.
    Locked(i64),
    /// This goes: a statement under the locks has said so.
    Decided(i64),
}

/// A state of everything.
#[derive(Debug, Clone)]
pub struct State {
    world: World,
    destinations: Vec<Destination>,
    marker: Option<Arc<Position>>,
    creation: Creation,
    keeper: Keeper,
    /// Whether a row ever went.
    removed: bool,
}

impl Keeping {
    fn without(&self, rule: Rule) -> bool {
        self.left_out == Some(rule)
    }

    /// Whether what was seen before the lock decides.
    fn decides_by_the_look(&self) -> bool {
        match self.removal {
            Removal::Truncate(_) => self.without(Rule::TruncationChecksUnderLock),
            Removal::Delete => self.without(Rule::FloorReadUnderLock),
        }
    }

    /// Whether the row lies where rows may go.
    fn is_of_the_leaf(&self, row: &Row) -> bool {
        match self.removal {
            Removal::Truncate(rows) => row.seq <= rows,
            Removal::Delete => true,
        }
    }

    /// `retention_floor.sql`: the least `floor_min` of all that a statement sees.
    fn floor(&self, state: &State) -> i64 {
        let cursors = state.destinations.iter().map(|of| &of.stored);
        let markers = state.marker.iter();
        let markers = markers.filter(|_| !self.without(Rule::FloorCountsMarkers));
        let floors = cursors.chain(markers).map(|place| place.floor_min());
        floors.min().unwrap_or(0)
    }

    /// Up to where rows may go now; none: nothing is due.
    fn due(&self, state: &State) -> Option<i64> {
        let floor = self.floor(state);
        let rows = state.world.database.mvcc.committed();
        let visible = rows.filter(|row| self.is_of_the_leaf(row));
        let seqs = visible.map(|row| row.seq);
        match self.removal {
            // The whole leaf, or nothing of it.
            Removal::Truncate(_) => seqs.max().filter(|&greatest| greatest <= floor),
            Removal::Delete => seqs.filter(|&seq| seq <= floor).max(),
        }
    }

    fn keeper_may_lock(&self, state: &State) -> bool {
        let created = matches!(state.creation, Creation::Locked | Creation::Inserted(..));
        let is_held = created && !self.without(Rule::DestinationCreatedUnderLock);
        let mvcc = &state.world.database.mvcc;
        let mut rows = mvcc.rows.values();
        let written = rows.any(|row| mvcc.is_open(row.xid) && self.is_of_the_leaf(row));
        let waits = matches!(self.removal, Removal::Truncate(_))
            && !self.without(Rule::TruncationWaitsForWriters);
        !(is_held || written && waits)
    }

    /// Whether the leaf's lock keeps a writer from inserting.
    fn holds_writers(&self, state: &State) -> bool {
        let locked = matches!(state.keeper, Keeper::Locked(_) | Keeper::Decided(_));
        match self.removal {
            Removal::Truncate(rows) => {
                locked
                    && state.world.database.mvcc.sequence < rows
                    && !self.without(Rule::TruncationWaitsForWriters)
            }
            Removal::Delete => false,
        }
    }

    fn keeper_actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.keeper {
            Keeper::Idle if self.due(state).is_some() => actions.push(Action::Look),
            Keeper::Idle => {}
            Keeper::Looked(_) => {
                let next = match self.keeper_may_lock(state) {
                    true => Action::Lock,
                    false => Action::Leave,
                };
                actions.push(next);
            }
            Keeper::Locked(_) => actions.push(Action::Decide),
            Keeper::Decided(_) => actions.push(Action::Remove),
        }
    }

    fn creation_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let kept = matches!(state.keeper, Keeper::Locked(_) | Keeper::Decided(_));
        match state.creation {
            Creation::Not if self.creates.is_some() => {
                if !kept || self.without(Rule::DestinationCreatedUnderLock) {
                    actions.push(Action::LockToCreate);
                }
            }
            Creation::Locked => actions.push(Action::Insert),
            Creation::Inserted(..) => actions.push(Action::Create),
            Creation::Not | Creation::Made => {}
        }
    }

    fn claim(&self, state: &mut State, d: usize) {
        let database = &mut state.world.database;
        let proven = database.mvcc.sequence;
        database.execute();
        let destination = &mut state.destinations[d];
        let memories = &self.writers.memories;
        let memory = memories.open(
            self.writers.bounds,
            &destination.stored,
            proven,
            &Found::default(),
        );
        destination.memory = Some(memory);
    }

    fn read(&self, state: &mut State, d: usize) -> Option<()> {
        let memories = &self.writers.memories;
        let database = &state.world.database;
        let destination = &mut state.destinations[d];
        let memory = destination.memory.as_ref()?;
        let memory = memories.begin_read(memory, database.mvcc.snapshot())?;
        let key_of = |event| self.writers.key_name(event);
        let size = self.writers.bounds.page;
        let page = memory.page(&database.mvcc, size, key_of);
        let Some(mut memory) = memories.answer(&memory, page) else {
            state.world.broken = Some(Promise::Soundness);
            return Some(());
        };
        while let Some((submitted, sent)) = memories.submit(&memory) {
            memory = submitted;
            for (ticket, event) in sent {
                memory = memories.accepted(&memory, ticket)?;
                destination.done.push(event);
            }
        }
        destination.memory = Some(memory);
        Some(())
    }

    fn advance(&self, state: &mut State, d: usize) -> Option<()> {
        let memories = &self.writers.memories;
        let destination = &mut state.destinations[d];
        let memory = memories.begin_advance(destination.memory.as_ref()?)?;
        destination.stored = Arc::new(memory.advancing_to()?);
        destination.memory = Some(memories.advanced(&memory)?);
        state.world.database.execute();
        Some(())
    }

    /// `destination_create.sql`: the place is of the statement's own snapshot, taken before it has
    /// a number.
    fn insert(&self, state: &mut State) -> Option<()> {
        let database = &mut state.world.database;
        let stored = match self.creates? {
            Start::Oldest => Position::oldest(),
            Start::Now => Position::now(database.mvcc.snapshot()),
        };
        state.creation = Creation::Inserted(database.mvcc.begin(), stored);
        Some(())
    }

    fn create(&self, state: &mut State) -> Option<()> {
        let Creation::Inserted(xid, stored) = &state.creation else {
            return None;
        };
        let (xid, stored) = (*xid, Arc::new(stored.clone()));
        state.world.database.commit(xid);
        let rows = state.world.database.mvcc.rows.values();
        // It begins with what the outbox still holds.
        let events = self.writers.events();
        let held = |event: &Event| {
            let mut rows = rows.clone();
            let row = rows.find(|row| row.event == *event);
            row.is_some_and(|row| stored.standing(row.xid, row.seq) != Standing::Behind)
        };
        let emitted = |event: &Event| {
            let key = &state.world.keys[usize::from(self.writers.key_of(*event))];
            key.order.contains(event)
        };
        let done = events.filter(|event| emitted(event) && !held(event));
        let done = done.collect();
        state.destinations.push(Destination {
            memory: None,
            stored,
            done,
        });
        state.creation = Creation::Made;
        Some(())
    }

    fn remove(&self, state: &mut State) -> Option<()> {
        let Keeper::Decided(up_to) = state.keeper else {
            return None;
        };
        let mvcc = &state.world.database.mvcc;
        let goes = |row: &Row| match self.removal {
            Removal::Truncate(_) => self.is_of_the_leaf(row),
            Removal::Delete => !mvcc.is_open(row.xid) && row.seq <= up_to,
        };
        let gone: Vec<Row> = mvcc
            .rows
            .values()
            .filter(|row| goes(row))
            .cloned()
            .collect();
        let needed = |row: &Row| {
            let is_ahead = |place: &Position| place.standing(row.xid, row.seq) != Standing::Behind;
            let mut destinations = state.destinations.iter();
            let is_read = |of: &Destination| of.done.contains(&row.event);
            let by_destination = destinations.any(|of| is_ahead(&of.stored) && !is_read(of));
            let by_marker = self.writers.key_of(row.event) == 0
                && state.marker.as_ref().is_some_and(|marker| is_ahead(marker));
            mvcc.is_open(row.xid) || by_destination || by_marker
        };
        if gone.iter().any(needed) {
            state.world.broken = Some(Promise::Loss);
        }
        for row in &gone {
            state.world.database.mvcc.rows.remove(&row.seq);
        }
        state.removed |= !gone.is_empty();
        state.keeper = Keeper::Idle;
        Some(())
    }

    fn keep(&self, state: &mut State, action: Action) -> Option<()> {
        let looked = match state.keeper {
            Keeper::Looked(up_to) | Keeper::Locked(up_to) => up_to,
            Keeper::Idle | Keeper::Decided(_) => 0,
        };
        state.keeper = match action {
            Action::Look => Keeper::Looked(self.due(state)?),
            Action::Lock => Keeper::Locked(looked),
            Action::Decide if self.decides_by_the_look() => Keeper::Decided(looked),
            Action::Decide => self.due(state).map_or(Keeper::Idle, Keeper::Decided),
            Action::Remove => return self.remove(state),
            _ => Keeper::Idle,
        };
        Some(())
    }
}

impl Machine for Keeping {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        let first = Destination {
            memory: None,
            stored: Arc::new(Position::oldest()),
            done: Vec::new(),
        };
        State {
            world: self.writers.first_state(),
            destinations: vec![first],
            marker: None,
            creation: Creation::Not,
            keeper: Keeper::Idle,
            removed: false,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut written = Vec::new();
        self.writers.writer_actions(&state.world, &mut written);
        if self.holds_writers(state) {
            written.retain(|action| matches!(action, Written::Commit(_) | Written::RollBack(_)));
        }
        actions.extend(written.into_iter().map(Action::Write));
        for (d, destination) in state.destinations.iter().enumerate() {
            match destination.memory {
                None => actions.push(Action::Claim(d)),
                Some(_) => actions.extend([Action::Read(d), Action::Advance(d)]),
            }
        }
        if self.marks && state.marker.is_none() {
            actions.push(Action::Mark);
        }
        self.creation_actions(state, actions);
        self.keeper_actions(state, actions);
    }

    fn step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(action) => self.writers.write(&mut state.world, action)?,
            Action::Claim(d) => self.claim(&mut state, d),
            Action::Read(d) => self.read(&mut state, d)?,
            Action::Advance(d) => self.advance(&mut state, d)?,
            Action::Mark => state.marker = Some(Arc::clone(&state.destinations[0].stored)),
            Action::LockToCreate => state.creation = Creation::Locked,
            Action::Insert => self.insert(&mut state)?,
            Action::Create => self.create(&mut state)?,
            Action::Look | Action::Lock | Action::Leave | Action::Decide | Action::Remove => {
                self.keep(&mut state, action)?;
            }
        }
        // A row that a place neither has passed nor brings is lost, although it is still there.
        let hidden = |row: &Row| {
            let mut destinations = state.destinations.iter();
            destinations.any(|of| {
                !of.done.contains(&row.event)
                    && of.stored.standing(row.xid, row.seq) != Standing::Ahead
            })
        };
        let lost = state.world.database.mvcc.committed().any(hidden);
        if lost && state.world.broken.is_none() {
            state.world.broken = Some(Promise::Loss);
        }
        Some(state)
    }

    fn describe(&self, state: &State) -> Vec<Number> {
        let State {
            world,
            destinations,
            marker,
            creation,
            keeper,
            removed,
        } = state;
        let plain = Number::Plain;
        let mut numbers = self.writers.described(world);
        for Destination {
            memory,
            stored,
            done,
        } in destinations
        {
            let mut done = done.clone();
            done.sort_unstable();
            numbers.push(plain(done.len() as u64));
            numbers.extend(done.iter().map(|&event| plain(event.into())));
            stored.describe(&mut |number| numbers.push(number));
            numbers.push(plain(memory.is_some().into()));
            numbers.extend(memory.iter().flat_map(|memory| memory.numbers()));
        }
        numbers.push(plain(marker.is_some().into()));
        if let Some(marker) = marker {
            marker.describe(&mut |number| numbers.push(number));
        }
        match creation {
            Creation::Not => numbers.push(plain(0)),
            Creation::Locked => numbers.push(plain(1)),
            Creation::Inserted(xid, stored) => {
                numbers.extend([plain(2), Number::Xid(*xid)]);
                stored.describe(&mut |number| numbers.push(number));
            }
            Creation::Made => numbers.push(plain(3)),
        }
        numbers.extend(match *keeper {
            Keeper::Idle => [plain(0), plain(0)],
            Keeper::Looked(up_to) => [plain(1), Number::Seq(up_to)],
            Keeper::Locked(up_to) => [plain(2), Number::Seq(up_to)],
            Keeper::Decided(up_to) => [plain(3), Number::Seq(up_to)],
        });
        numbers.push(plain((*removed).into()));
        numbers
    }

    fn broken(state: &State) -> Option<Promise> {
        state.world.broken
    }

    fn is_drained(&self, state: &State) -> bool {
        let all = usize::from(self.creates.is_some()) + 1;
        let committed = |of: &Destination| {
            let mut keys = state.world.keys.iter();
            keys.all(|key| key.order.iter().all(|event| of.done.contains(event)))
        };
        let destinations = &state.destinations;
        let finished = state.world.writers.iter().zip(&self.writers.writers);
        let mut finished = finished.map(|(writer, program)| writer.done == program.len());
        state.removed
            && finished.all(|finished| finished)
            && destinations.len() == all
            && destinations.iter().all(committed)
    }
}
