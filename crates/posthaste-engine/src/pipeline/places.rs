//! Places that take nothing for now, as a full queue: parts of a destination that fail alone.
//!
//! A place is held back from its first refusal on, or from the second event on that it leaves
//! unanswered, while all others flow. From time to time it gets one event, each time another one,
//! and once it takes that, twice as much each time. A refusal is no proof that nothing has come of
//! the event: an exchange that routes it into two queues has given it to the one that takes it, and
//! gives it again each time that it is tried.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry},
    time::Duration,
};

use super::{
    place::{PLACES_MAX, Place},
    reports::HeldPlace,
    returns::Returns,
    ticket::Ticket,
};
use crate::{
    Backoff, Moment, Postponement,
    outcome::ASKED_WAIT_MAX,
    rule::{Rule, left_out},
};

/// A place that has taken nothing for so long takes nothing; before that it may be single events
/// that it refuses.
const QUIET: Duration = Duration::from_secs(10);

/// The words for a place that an operator has paused.
const PAUSED: &str = "paused by an operator";

#[derive(Debug, Clone)]
struct State {
    /// Its events in flight at the most; none while it is held back.
    limit: usize,
    in_flight: usize,
    /// An operator wants it to get nothing: it is not tried.
    is_paused: bool,
    refusals: u32,
    /// When it last took an event, since it was held back.
    took: Option<Moment>,
    /// Since when it takes nothing, or not everything.
    since: Moment,
    /// When it is tried again, or since when it may be.
    turn: Moment,
    /// How long it is open without an event before those that it has refused are tried again.
    unused: Duration,
    /// It was open without an event, and those that it has refused were let go.
    is_unused: bool,
    /// Its events that have left the window for the time being.
    set_aside: usize,
    /// Copies were put off since its last turn: one of them is looked for at the next, for the
    /// place to be tried with. They are due at times of their own, and a place that no event is
    /// there for would be forgotten.
    has_copies: bool,
    name: Box<str>,
    /// Its words.
    reason: Box<str>,
}

impl State {
    fn held(name: String, reason: &str, probe: Backoff, now: Moment) -> Self {
        Self {
            limit: 0,
            in_flight: 0,
            is_paused: false,
            refusals: 0,
            took: None,
            since: now,
            turn: now,
            unused: probe.first,
            is_unused: false,
            set_aside: 0,
            has_copies: false,
            name: name.into(),
            reason: reason.into(),
        }
    }

    /// When it changes by itself.
    fn next_turn(&self) -> Option<Moment> {
        match self.limit {
            0 => (!self.is_paused).then_some(self.turn),
            _ => (self.in_flight == 0).then(|| self.turn.after(self.unused)),
        }
    }
}

/// The places that are held back, or return.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    states: HashMap<Place, State>,
    /// They change by themselves at these times.
    turns: BTreeSet<(Moment, Place)>,
    /// They take nothing, or not everything, since these times.
    since: BTreeSet<(Moment, Place)>,
    /// The events of these places that were sent since they were held back.
    in_flight: HashMap<Ticket, Place>,
    /// Places that left an event unanswered, and have taken none since.
    in_doubt: HashSet<Place>,
    /// Those that take events again.
    pub(super) returns: Returns,
    /// As many keys wait as may, so many: others of these places stay in the window.
    no_room: Option<usize>,
    /// The report to operators.
    trouble: Option<String>,
}

/// A change of what may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// None.
    Same,
    /// A place may be tried.
    Open,
    /// A place may be tried, and no event came for it but those that it has refused.
    Unused,
}

impl Places {
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether an event of this place may be sent.
    pub(super) fn takes(&self, place: Place) -> bool {
        self.states
            .get(&place)
            .is_none_or(|state| state.in_flight < state.limit || left_out(Rule::PlaceIsHeldBack))
    }

    /// Whether the place takes nothing, or not everything.
    pub(super) fn is_limited(&self, place: Place) -> bool {
        self.states.contains_key(&place)
    }

    /// A place left an event unanswered. Whether it did so before, and has taken nothing since: the
    /// first one may be silent by itself.
    pub(super) fn silent(&mut self, place: Place) -> bool {
        if self.is_limited(place) {
            return true;
        }
        let again = self.in_doubt.len() >= PLACES_MAX || !self.in_doubt.insert(place);
        again && !left_out(Rule::SilentPlaceIsHeldBack)
    }

    pub(super) fn has_doubts(&self) -> bool {
        !self.in_doubt.is_empty()
    }

    /// A place took an event.
    pub(super) fn took(&mut self, place: Place) {
        self.in_doubt.remove(&place);
    }

    /// The words of a place that is held back.
    pub(super) fn held(&self, place: Place) -> Option<&str> {
        let state = self.states.get(&place)?;
        (state.limit == 0).then_some(&*state.reason)
    }

    /// Operators want just these places to get nothing. One that they want to go on is tried at
    /// once, like one that was held back.
    pub(super) fn pause(&mut self, wanted: BTreeMap<Place, &str>, probe: Backoff, now: Moment) {
        let paused = self.states.iter().filter(|(_, state)| state.is_paused);
        let resumed = paused.filter(|(place, _)| !wanted.contains_key(place));
        for place in resumed.map(|(place, _)| *place).collect::<Vec<_>>() {
            let since = self.change(place, |state| {
                (state.is_paused, state.refusals) = (false, 0);
                (state.limit, state.turn) = (0, now);
                state.reason = "it was paused".into();
                std::mem::replace(&mut state.since, now)
            });
            if let Some(since) = since {
                self.since.remove(&(since, place));
                self.since.insert((now, place));
            }
            self.returns.took(place);
            self.returns.returned(place, now);
        }
        for (place, name) in wanted {
            if !self.is_limited(place) {
                let state = State::held(name.to_owned(), "", probe, now);
                self.turns.insert((now, place));
                self.since.insert((now, place));
                self.states.insert(place, state);
            }
            self.change(place, |state| {
                if !std::mem::replace(&mut state.is_paused, true) {
                    // Copies that wait for it are looked at seldom.
                    (state.limit, state.refusals, state.took) = (0, u32::MAX, None);
                    state.reason = PAUSED.into();
                }
            });
            self.returns.gone(place);
        }
        self.tell();
    }

    pub(super) fn is_paused(&self, place: Place) -> bool {
        self.states.get(&place).is_some_and(|state| state.is_paused)
    }

    /// True of a place that has taken nothing since it was held back, or for [`QUIET`].
    pub(super) fn is_quiet(&self, place: Place, now: Moment) -> bool {
        let state = self.states.get(&place);
        let took = state.and_then(|state| state.took);
        took.is_none_or(|took| now >= took.after(QUIET))
    }

    /// Since when the place does not take everything.
    pub(super) fn since_of(&self, place: Place) -> Option<Moment> {
        self.states.get(&place).map(|state| state.since)
    }

    /// Since when some place does not take everything.
    pub(super) fn since(&self) -> Option<Moment> {
        self.since.first().map(|(since, _)| *since)
    }

    /// Lets places have their turn whose wait is over, and forgets those of which nothing is left.
    pub(super) fn turn(&mut self, now: Moment) -> Turn {
        let mut turn = Turn::Same;
        while let Some(&(due, place)) = self.turns.first()
            && due <= now
        {
            let mut has_copies = false;
            let is_left = self.change(place, |state| {
                if state.limit == 0 {
                    (state.limit, state.turn) = (1, now);
                    turn = turn.max(Turn::Open);
                    has_copies = std::mem::take(&mut state.has_copies);
                    return true;
                }
                state.turn = now;
                turn = Turn::Unused;
                !std::mem::replace(&mut state.is_unused, true)
            });
            if has_copies {
                self.returns.looks_for_one(place);
            }
            if is_left == Some(false) {
                self.forget(place);
                self.returns.returned(place, now);
            }
        }
        turn
    }

    /// When the next place has its turn.
    pub(super) fn next_turn(&self) -> Option<Moment> {
        self.turns.first().map(|(turn, _)| *turn)
    }

    /// An event of this place is sent.
    pub(super) fn sends(&mut self, place: Place, ticket: Ticket) {
        let is_known = self.change(place, |state| {
            state.in_flight += 1;
            state.is_unused = false;
        });
        if is_known.is_some() {
            self.in_flight.insert(ticket, place);
        }
    }

    /// A place took an event; `all` may be in flight where nothing is wrong. Whether more may be
    /// sent than before.
    pub(super) fn accepted(&mut self, ticket: Ticket, all: usize, now: Moment) -> bool {
        let Some(place) = self.answered(ticket) else {
            return false;
        };
        let is_back = self.change(place, |state| {
            state.took = Some(now);
            // Another one was refused meanwhile.
            if state.limit == 0 {
                return None;
            }
            state.limit += 1;
            state.refusals = 0;
            Some(state.limit >= all)
        });
        let Some(is_back) = is_back.flatten() else {
            return false;
        };
        if is_back {
            self.forget(place);
            self.returns.returned(place, now);
            self.in_flight.retain(|_, of| *of != place);
        }
        true
    }

    /// A place refused an event for now; `name` is that of one that takes everything so far. False:
    /// so many places do that the destination takes nothing.
    pub(super) fn refused(
        &mut self,
        (place, ticket): (Place, Ticket),
        name: Option<String>,
        why: &Postponement,
        probe: Backoff,
        now: Moment,
        random: f64,
    ) -> bool {
        let was_tried = self.answered(ticket).is_some();
        let is_new = !self.is_limited(place);
        if is_new && self.states.len() >= PLACES_MAX {
            self.forget_unused();
            if self.states.len() >= PLACES_MAX {
                return false;
            }
        }
        match self.states.entry(place) {
            Entry::Vacant(new) => {
                let name = name.unwrap_or_default();
                new.insert(State::held(name, &why.reason, probe, now));
                self.since.insert((now, place));
                self.turns.insert((now, place));
            }
            // It was sent before the place was held back.
            Entry::Occupied(known) if !was_tried || known.get().limit == 0 => return true,
            Entry::Occupied(_) => {}
        }
        self.returns.held(place, now, random);
        self.change(place, |state| {
            if state.refusals == 0 {
                state.reason = why.reason.as_str().into();
            }
            state.refusals = state.refusals.saturating_add(1);
            state.limit = 0;
            let wait = probe.delay(state.refusals, random);
            let asked = why.wait.unwrap_or_default().min(ASKED_WAIT_MAX);
            state.turn = now.after(wait.max(asked));
        });
        self.tell();
        true
    }

    /// An event was answered. Its place, if it was sent since that was held back.
    pub(super) fn answered(&mut self, ticket: Ticket) -> Option<Place> {
        let place = self.in_flight.remove(&ticket)?;
        self.change(place, |state| {
            state.in_flight = state.in_flight.saturating_sub(1);
        });
        Some(place)
    }

    /// The lane ended: nothing is in flight.
    pub(super) fn lane_ended(&mut self) {
        for (_, place) in std::mem::take(&mut self.in_flight) {
            self.change(place, |state| state.in_flight = 0);
        }
    }

    /// The report to operators: the place that was held back first, and how many more.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// How many places take nothing, or not everything.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// So many of them, those first that were held back first. `in_memory`: how many events of each
    /// are in the window.
    pub(super) fn first(
        &self,
        most: usize,
        in_memory: &HashMap<Place, usize>,
        now: Moment,
    ) -> Vec<HeldPlace> {
        let states = self.since.iter();
        let states = states.filter_map(|(_, of)| Some((of, self.states.get(of)?)));
        let held = states.take(most).map(|(place, state)| HeldPlace {
            name: state.name.clone(),
            reason: state.reason.clone(),
            held_for: state.since.until(now),
            returns: state.limit > 0,
            is_paused: state.is_paused,
            in_memory: in_memory.get(place).copied().unwrap_or(0),
            set_aside: state.set_aside,
        });
        held.collect()
    }

    /// How soon a copy that waits for this place is tried again, unless the place takes events
    /// before that.
    pub(super) fn wait_of_copy(&mut self, place: Place, retry: Backoff, random: f64) -> Duration {
        match self.states.get_mut(&place) {
            Some(state) if state.limit == 0 => {
                state.has_copies = !state.is_paused;
                retry.delay(state.refusals, random)
            }
            _ => retry.delay(1, random),
        }
    }

    /// A place took a copy: where it does not take everything yet, all others are looked for.
    pub(super) fn took_copy(&mut self, place: Place, now: Moment) {
        self.returns.took(place);
        if self.is_limited(place) {
            self.returns.returned(place, now);
        }
    }

    /// An event of this place leaves the window.
    pub(super) fn sets_aside(&mut self, place: Place) {
        if let Some(state) = self.states.get_mut(&place) {
            state.set_aside += 1;
        }
    }

    fn change<T>(&mut self, place: Place, change: impl FnOnce(&mut State) -> T) -> Option<T> {
        let state = self.states.get_mut(&place)?;
        let before = state.next_turn();
        let changed = change(state);
        let after = state.next_turn();
        if before != after {
            if let Some(turn) = before {
                self.turns.remove(&(turn, place));
            }
            if let Some(turn) = after {
                self.turns.insert((turn, place));
            }
        }
        Some(changed)
    }

    fn forget(&mut self, place: Place) {
        if let Some(state) = self.states.remove(&place) {
            if let Some(turn) = state.next_turn() {
                self.turns.remove(&(turn, place));
            }
            self.since.remove(&(state.since, place));
            self.tell();
        }
    }

    /// Places that were let go, and that no event came for: of some nothing may be left.
    fn forget_unused(&mut self) {
        let is_unused = |state: &State| state.limit > 0 && state.in_flight == 0;
        let unused = self.states.iter().filter(|(_, state)| is_unused(state));
        let unused: Vec<Place> = unused.map(|(place, _)| *place).collect();
        unused.into_iter().for_each(|place| self.forget(place));
    }

    /// Whether as many keys wait as may, and how many these are.
    pub(super) fn has_no_room(&mut self, no_room: Option<usize>) {
        if std::mem::replace(&mut self.no_room, no_room) != no_room {
            self.tell();
        }
    }

    /// The places, or the room for them, are others.
    fn tell(&mut self) {
        let mut held = self.since.iter().filter_map(|(_, of)| self.states.get(of));
        let refuses = held.clone().find(|state| !state.is_paused);
        let first = refuses.or_else(|| held.next());
        self.trouble = first.map(|State { name, reason, .. }| {
            let others = match self.states.len() - 1 {
                0 => String::new(),
                others => format!(" (and {others} more)"),
            };
            let no_room = self.no_room.map_or(String::new(), |keys| {
                format!(
                    "; {keys} keys or events wait, as many as may, and further ones hold up what \
                     is read behind them: mend the place, or route its events elsewhere"
                )
            });
            format!("`{name}`: {reason}{others}{no_room}")
        });
    }
}

#[cfg(feature = "model")]
mod model;
#[cfg(test)]
mod tests;
