//! Explores a scenario, and tells what was found.

use std::{
    fmt::Display,
    hash::Hash,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{
    action::Action,
    scenario::{Promise, System},
    state::State,
};

/// The name of the property that keeps the others from being empty.
pub(crate) const DRAINED: &str = "everything is delivered and stored";

impl Model for System {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        self.writer_actions(state, actions);
        for r in 0..self.relays {
            self.relay_actions(state, r, actions);
        }
        for at in 0..state.orphans.len() {
            actions.push(Action::Straggle(at));
            actions.push(Action::Drop(at));
        }
        actions.extend((0..state.late.len()).map(Action::Late));
        self.aside_actions(state, actions);
        if state.left.database > 0 {
            actions.push(Action::DatabaseCrash);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        self.step(last, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = kept();
        properties.push(Property::sometimes(DRAINED, |system: &Self, state| {
            state.all_delivered(system)
        }));
        properties
    }
}

impl Kept for System {
    fn broken(state: &State) -> Option<Promise> {
        state.broken
    }
}

/// A model whose states say which promise is broken.
pub trait Kept: Model + Clone + Send + Sync + 'static
where
    Self::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    Self::Action: Clone + Display + PartialEq + Send + Sync + 'static,
{
    /// Which one, in this state.
    fn broken(state: &Self::State) -> Option<Promise>;
}

/// A property for each promise.
pub(crate) fn kept<M: Kept>() -> Vec<Property<M>>
where
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Display + PartialEq + Send + Sync + 'static,
{
    vec![
        Property::always(Promise::Loss.name(), |_, s| {
            M::broken(s) != Some(Promise::Loss)
        }),
        Property::always(Promise::Phantom.name(), |_, s| {
            M::broken(s) != Some(Promise::Phantom)
        }),
        Property::always(Promise::Order.name(), |_, s| {
            M::broken(s) != Some(Promise::Order)
        }),
        Property::always(Promise::Replay.name(), |_, s| {
            M::broken(s) != Some(Promise::Replay)
        }),
        Property::always(Promise::Repeats.name(), |_, s| {
            M::broken(s) != Some(Promise::Repeats)
        }),
        Property::always(Promise::Authority.name(), |_, s| {
            M::broken(s) != Some(Promise::Authority)
        }),
        Property::always(Promise::Soundness.name(), |_, s| {
            M::broken(s) != Some(Promise::Soundness)
        }),
    ]
}

/// What exploring a scenario found.
#[derive(Debug)]
pub struct Found {
    /// States that differ.
    pub states: usize,
    /// Steps that were taken.
    pub steps: usize,
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

/// Visits all states, until a promise is broken, or for so long at the most.
pub fn explore<M: Kept>(model: &M, limit: Option<Duration>) -> Found
where
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Display + PartialEq + Send + Sync + 'static,
{
    let began = Instant::now();
    let mut found = run(model, limit, None);
    found.exhausted = found.broken.is_none() && limit.is_none_or(|limit| began.elapsed() < limit);
    // The checker tells the last that it came across, which may be a step longer than the first.
    while let Some((_, way)) = &found.broken {
        let shorter = run(model, None, NonZeroUsize::new(way.len() + 1));
        if shorter.broken.is_none() {
            break;
        }
        found.broken = shorter.broken;
    }
    found.took = began.elapsed();
    found
}

fn run<M: Kept>(model: &M, limit: Option<Duration>, depth: Option<NonZeroUsize>) -> Found
where
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Display + PartialEq + Send + Sync + 'static,
{
    let mut builder = model.clone().checker();
    if let Some(depth) = depth {
        builder = builder.target_max_depth(depth.get());
    }
    if let Some(limit) = limit {
        builder = builder.timeout(limit);
    }
    let checker = builder
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut found = Found {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        exhausted: false,
        drained: false,
        broken: None,
        took: Duration::ZERO,
    };
    for (name, path) in checker.discoveries() {
        if name == DRAINED {
            found.drained = true;
            continue;
        }
        let way: Vec<String> = path
            .into_actions()
            .iter()
            .map(M::Action::to_string)
            .collect();
        if found
            .broken
            .as_ref()
            .is_none_or(|(_, other)| way.len() < other.len())
        {
            found.broken = Some((name, way));
        }
    }
    found
}
