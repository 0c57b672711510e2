//! The usual ways to read an outbox, as positive controls: each of them loses or inverts events.

use std::fmt;

use posthaste_stores::postgres::model::Number;

use crate::{
    action::Action as Written,
    checker::Machine,
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
    /// The event that each relay has locked.
    locked: Vec<Option<Event>>,
    done: Vec<Event>,
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
        let (last, xmin) = (state.last, database.mvcc.xmin());
        let new = |row: &&Row| match self.query {
            Query::BelowXmin => row.xid < xmin && !state.done.contains(&row.event),
            _ => row.seq > last,
        };
        let mut rows: Vec<Row> = database.mvcc.committed().filter(new).cloned().collect();
        if self.query == Query::BelowXmin {
            rows.sort_by_key(|row| (row.xid, row.seq));
        }
        for row in rows {
            state.last = state.last.max(row.seq);
            self.deliver(state, row.event);
        }
    }

    fn lock(&self, state: &mut State, r: usize) -> Option<()> {
        let locked = &state.locked;
        let mut rows = state.world.database.mvcc.committed();
        let first = rows.find(|row| !locked.contains(&Some(row.event)))?;
        state.locked[r] = Some(first.event);
        Some(())
    }
}

impl Machine for Polling {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        State {
            world: self.writers.first_state(),
            last: 0,
            locked: vec![None; self.relays],
            done: Vec::new(),
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
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

    fn step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(action) => self.writers.write(&mut state.world, action)?,
            Action::Poll(_) => self.poll(&mut state),
            Action::Lock(r) => self.lock(&mut state, r)?,
            Action::Publish(r) => {
                let event = state.locked[r].take()?;
                let rows = &mut state.world.database.mvcc.rows;
                rows.retain(|_, row| row.event != event);
                self.deliver(&mut state, event);
            }
        }
        let lost = |row: &Row| row.seq <= state.last && !state.done.contains(&row.event);
        let lost = state.world.database.mvcc.committed().any(lost);
        if lost && self.query == Query::AfterLast && state.world.broken.is_none() {
            state.world.broken = Some(Promise::Loss);
        }
        Some(state)
    }

    fn describe(&self, state: &State) -> Vec<Number> {
        let State {
            world,
            last,
            locked,
            done,
        } = state;
        let mut numbers = self.writers.described(world);
        numbers.push(Number::Seq(*last));
        let locked = locked.iter().map(|event| event.map_or(u64::MAX, u64::from));
        numbers.extend(locked.map(Number::Plain));
        let mut done = done.clone();
        done.sort_unstable();
        numbers.extend(done.iter().map(|&event| Number::Plain(event.into())));
        numbers
    }

    fn broken(state: &State) -> Option<Promise> {
        state.world.broken
    }

    /// These ways to read are not sound, so nothing is asked of them.
    fn is_drained(&self, _: &State) -> bool {
        false
    }
}
