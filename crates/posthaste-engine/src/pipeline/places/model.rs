//! Tells states of places apart.

use super::{Places, State};
use crate::model::{Out, Part, number};

impl Places {
    pub(in crate::pipeline) fn describe(&self, out: Out<'_>) {
        let Self {
            states,
            // Told by the states.
            turns: _,
            since: _,
            in_flight,
            in_doubt,
            returns,
            // For operators alone.
            no_room: _,
            trouble: _,
        } = self;
        let mut states: Vec<_> = states.iter().collect();
        states.sort_unstable_by_key(|(place, _)| **place);
        out(number(states.len()));
        for (place, state) in states {
            let State {
                limit,
                in_flight,
                // No operator is in the model.
                is_paused: _,
                // Only the length of a wait hangs on it, and no time passes.
                refusals: _,
                took,
                // Every moment is the first one.
                since: _,
                turn: _,
                unused: _,
                is_unused,
                // For operators alone.
                set_aside: _,
                has_copies,
                name: _,
                reason: _,
            } = state;
            out(Part::Number(place.0));
            out(number(*limit));
            out(number(*in_flight));
            out(Part::Number(took.is_some().into()));
            out(Part::Number((*is_unused).into()));
            out(Part::Number((*has_copies).into()));
        }
        let mut in_flight: Vec<_> = in_flight.keys().map(|ticket| ticket.name()).collect();
        in_flight.sort_unstable();
        in_flight
            .into_iter()
            .for_each(|name| out(Part::Number(name)));
        let mut in_doubt: Vec<_> = in_doubt.iter().map(|place| place.0).collect();
        in_doubt.sort_unstable();
        out(number(in_doubt.len()));
        in_doubt
            .into_iter()
            .for_each(|place| out(Part::Number(place)));
        returns.describe(out);
    }
}
