//! What an outbox is usually read by, as positive controls: each of these loses or inverts events.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use posthaste_stores::postgres::model::Number;
use stateright::{Model, Property};

use crate::{
    action::Action as Written,
    canonical,
    checker::{Kept, kept},
    database::{Event, Row},
    scenario::{Promise, System},
    state::State as World,
};

/// How relays read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Query {
    /// `seq > last order by seq`.
    AfterLast,
    /// `xid < xmin order by xid, seq`: waits for what is open, so that nothing commits behind it.
    BelowXmin,
    /// `for update skip locked limit 1`, published, then deleted.
    SkipLocked,
}

/// Writers, and relays that read by such a query.
#[derive(Debug, Clone)]
pub struct Polling {
    /// The writers; its relays are none.
    pub writers: System,
    /// How relays read.
    pub query: Query,
    /// Relays.
    pub relays: usize,
}

/// A state of everything.
#[derive(Debug, Clone)]
pub struct State {
    world: World,
    /// The last row that was read.
    last: i64,
    /// What each relay has locked.
    locked: Vec<Option<Event>>,
    done: Vec<Event>,
    hash: u64,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A writer's.
    Write(Written),
    /// The relay reads all that its query brings, and publishes it.
    Poll(usize),
    /// It locks the first row that nobody has locked.
    Lock(usize),
    /// It publishes what it has locked, and deletes it.
    Publish(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(action) => action.fmt(f),
            Self::Poll(r) => write!(f, "R{r} polls and publishes"),
            Self::Lock(r) => write!(f, "R{r} locks the first row that is free"),
            Self::Publish(r) => write!(f, "R{r} publishes it and deletes it"),
        }
    }
}

impl Polling {
    fn deliver(&self, state: &mut State, event: Event) {
        state.done.push(event);
        self.writers.deliver(&mut state.world, event);
    }

    fn poll(&self, state: &mut State) {
        let database = &state.world.database;
        let (last, xmin) = (state.last, database.xmin());
        let new = |row: &&Row| {
            row.committed
                && match self.query {
                    Query::BelowXmin => row.xid < xmin && !state.done.contains(&row.event),
                    _ => row.seq > last,
                }
        };
        let mut rows: Vec<Row> = database.rows.iter().filter(new).cloned().collect();
        match self.query {
            Query::BelowXmin => rows.sort_by_key(|row| (row.xid, row.seq)),
            _ => rows.sort_by_key(|row| row.seq),
        }
        for row in rows {
            state.last = state.last.max(row.seq);
            self.deliver(state, row.event);
        }
    }

    fn lock(&self, state: &mut State, r: usize) -> Option<()> {
        let locked = &state.locked;
        let free = |row: &&Row| row.committed && !locked.contains(&Some(row.event));
        let rows = state.world.database.rows.iter().filter(free);
        let first = rows.min_by_key(|row| row.seq)?;
        state.locked[r] = Some(first.event);
        Some(())
    }

    fn finish(&self, mut state: State) -> State {
        let lost =
            state.world.database.rows.iter().any(|row| {
                row.committed && row.seq <= state.last && !state.done.contains(&row.event)
            });
        if lost && self.query == Query::AfterLast && state.world.broken.is_none() {
            state.world.broken = Some(Promise::Loss);
        }
        let mut numbers = self.writers.describe(&state.world);
        numbers.push(Number::Seq(state.last));
        let locked = state
            .locked
            .iter()
            .map(|event| event.map_or(u64::MAX, u64::from));
        numbers.extend(locked.map(Number::Plain));
        let mut done = state.done.clone();
        done.sort_unstable();
        numbers.extend(done.iter().map(|&event| Number::Plain(event.into())));
        state.hash = canonical::hash(&numbers);
        state
    }
}

impl Model for Polling {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.finish(State {
            world: self.writers.first_state(),
            last: 0,
            locked: vec![None; self.relays],
            done: Vec::new(),
            hash: 0,
        })]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.world.broken.is_some() {
            return;
        }
        let mut written = Vec::new();
        self.writers.writer_actions(&state.world, &mut written);
        actions.extend(written.into_iter().map(Action::Write));
        for r in 0..self.relays {
            actions.push(match (self.query, state.locked[r]) {
                (Query::SkipLocked, None) => Action::Lock(r),
                (Query::SkipLocked, Some(_)) => Action::Publish(r),
                _ => Action::Poll(r),
            });
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(action) => self.writers.write(&mut state.world, action)?,
            Action::Poll(_) => self.poll(&mut state),
            Action::Lock(r) => self.lock(&mut state, r)?,
            Action::Publish(r) => {
                let event = state.locked[r].take()?;
                state.world.database.rows.retain(|row| row.event != event);
                self.deliver(&mut state, event);
            }
        }
        Some(self.finish(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        kept()
    }
}

impl Kept for Polling {
    fn broken(state: &State) -> Option<Promise> {
        state.world.broken
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hash.hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}
