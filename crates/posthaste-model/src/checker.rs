//! Explores a scenario, and tells what was found.

use std::{
    fmt::Display,
    hash::{Hash, Hasher},
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use posthaste_stores::postgres::model::Number;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{canonical, scenario::Promise};

/// A property: no promise is broken.
const KEPT: &str = "every promise is kept";
/// A property that keeps the other from being empty.
const DRAINED: &str = "everything is delivered and stored";

/// States, and the steps between them.
pub trait Machine: Clone + Send + Sync + 'static {
    /// A state of everything.
    type State: Clone + Send + Sync + 'static;
    /// A step.
    type Action: Clone + Display + PartialEq + Send + Sync + 'static;

    /// Before anything has happened.
    fn first(&self) -> Self::State;

    /// The steps that are possible in a state in which no promise is broken.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Takes a step; none: it would change nothing.
    fn step(&self, last: &Self::State, action: Self::Action) -> Option<Self::State>;

    /// All that decides what follows. Two states are the same when their descriptions are.
    fn describe(&self, state: &Self::State) -> Vec<Number>;

    /// The promise that is broken.
    fn broken(state: &Self::State) -> Option<Promise>;

    /// Whether everything is delivered and stored.
    fn is_drained(&self, state: &Self::State) -> bool;
}

/// A state that its description tells from others.
#[derive(Debug, Clone)]
struct Described<S> {
    state: S,
    hash: u64,
}

impl<S> Hash for Described<S> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hash.hash(hasher);
    }
}

impl<S> PartialEq for Described<S> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

/// A machine, as the model checker takes it.
#[derive(Clone)]
struct Explored<M>(M);

impl<M: Machine> Explored<M> {
    fn described(&self, state: M::State) -> Described<M::State> {
        let hash = canonical::hash(&self.0.describe(&state));
        Described { state, hash }
    }
}

impl<M: Machine> Model for Explored<M> {
    type State = Described<M::State>;
    type Action = M::Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![self.described(self.0.first())]
    }

    fn actions(&self, at: &Self::State, actions: &mut Vec<M::Action>) {
        if M::broken(&at.state).is_none() {
            self.0.actions(&at.state, actions);
        }
    }

    fn next_state(&self, last: &Self::State, action: M::Action) -> Option<Self::State> {
        let next = self.0.step(&last.state, action)?;
        Some(self.described(next))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, at: &Self::State| M::broken(&at.state).is_none()),
            Property::sometimes(DRAINED, |explored: &Self, at: &Self::State| {
                explored.0.is_drained(&at.state)
            }),
        ]
    }
}

/// The result of exploring a scenario.
#[derive(Debug)]
pub struct Found {
    /// States that differ.
    pub states: usize,
    /// Steps from the beginning to the state that is farthest from it.
    pub depth: usize,
    /// Whether every reachable state was visited.
    pub exhausted: bool,
    /// Whether everything was delivered and stored in some state.
    pub drained: bool,
    /// A promise that was broken, with a shortest way to that.
    pub broken: Option<(&'static str, Vec<String>)>,
    /// How long it took.
    pub took: Duration,
}

/// Visits all states, until a promise is broken.
pub fn explore<M: Machine>(machine: &M) -> Found {
    let began = Instant::now();
    let mut found = run(machine, None);
    found.exhausted = found.broken.is_none();
    // The checker tells the last that it came across, which may be a step longer than the first.
    while let Some((_, way)) = &found.broken {
        let shorter = run(machine, NonZeroUsize::new(way.len() + 1));
        if shorter.broken.is_none() {
            break;
        }
        found.broken = shorter.broken;
    }
    found.took = began.elapsed();
    found
}

fn run<M: Machine>(machine: &M, depth: Option<NonZeroUsize>) -> Found {
    let mut builder = Explored(machine.clone()).checker();
    if let Some(depth) = depth {
        builder = builder.target_max_depth(depth.get());
    }
    let checker = builder
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let discoveries = checker.discoveries();
    let broken = discoveries.get(KEPT).and_then(|path| {
        let promise = M::broken(&path.last_state().state)?;
        let way = path.clone().into_actions();
        Some((
            promise.name(),
            way.iter().map(M::Action::to_string).collect(),
        ))
    });
    Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        exhausted: false,
        drained: discoveries.contains_key(DRAINED),
        broken,
        took: Duration::ZERO,
    }
}
