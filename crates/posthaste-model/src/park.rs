//! The steps with events that the broker refuses, as the statements of the database make them
//! (`park.sql`, `settle.sql`, `due.sql`, `marker_move.sql`, `join.sql`), and what operators decide.
//!
//! A change of the store is one step here: sent, made and answered.

use posthaste_engine::rule::Rule;
use posthaste_stores::postgres::model::{Position, Standing};

use crate::{
    action::Action,
    aside::{Aside, Copied, CopyState},
    database::{Event, Row},
    relay::{
        Found, Memory,
        set_aside::{Asked, Behind, Line, SideAsked},
    },
    scenario::System,
    state::State,
};

impl System {
    /// Whether something that waits holds the key.
    fn holds(&self, aside: &Aside, key: u8) -> bool {
        aside.waiting().any(|copy| self.key_of(copy.event) == key)
    }

    pub(crate) fn aside_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for copy in &state.aside.copies {
            if copy.state == CopyState::Dead {
                actions.extend([Action::Retry(copy.event), Action::Skip(copy.event)]);
            }
        }
    }

    /// An operator's decision on a dead event.
    pub(crate) fn operate(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Retry(event) => state.aside.copy_mut(event)?.state = CopyState::Due,
            Action::Skip(event) => {
                state.aside.copy_mut(event)?.state = CopyState::Settled;
                state.keys[usize::from(self.key_of(event))].skip(event);
            }
            _ => return None,
        }
        Some(())
    }

    /// The rows that a claim finds.
    pub(crate) fn found(&self, state: &State) -> Found {
        let aside = &state.aside;
        let markers = aside.markers.iter().map(|(key, at)| {
            let released = !self.holds(aside, *key);
            (self.name_of_key(*key), (**at).clone(), released)
        });
        let copies = aside.copies.iter().map(|copy| (copy.seq, copy.event));
        Found {
            markers: markers.collect(),
            set_aside: copies.collect(),
        }
    }

    /// The standing of a row by the durable places, where its key may be blocked.
    pub(crate) fn standing(&self, state: &State, row: &Row) -> Standing {
        // It is parked, and visible.
        if state.aside.waits(row.event) {
            return Standing::Ahead;
        }
        let marker = state.aside.marker(self.key_of(row.event));
        let place = marker.unwrap_or(&state.database.stored);
        place.standing(row.xid, row.seq)
    }

    /// Rows and copies that nobody will read again are left out.
    pub(crate) fn forget_passed(&self, state: &mut State) {
        let State {
            database, aside, ..
        } = state;
        database.forget_passed(|row| {
            let marker = aside.marker(self.key_of(row.event));
            marker.is_some_and(|marker| !marker.low_sees(row.xid)) || aside.waits(row.event)
        });
        aside.copies.retain(|copy| {
            let rows = database.mvcc.rows.values();
            let mut rows = rows.filter(|row| row.event == copy.event);
            let passed = |row: &Row| database.stored.standing(row.xid, row.seq) == Standing::Behind;
            copy.state != CopyState::Settled || rows.any(|row| !passed(row))
        });
    }

    fn remember(&self, state: &mut State, r: usize, memory: Memory) -> Option<()> {
        let memory = self.memories.keep(memory);
        state.relays[r].running()?.memory = memory;
        Some(())
    }

    /// The store makes the relay's next change.
    pub(crate) fn change(&self, state: &mut State, r: usize) -> Option<()> {
        let claim = state.relays[r].running()?;
        let (sent, asked) = claim.memory.next_change()?;
        let (before, epoch, token) = (claim.memory.name(), claim.epoch, claim.token);
        match asked {
            Asked::Advance => {
                self.remember(state, r, sent)?;
                return self.advanced(state, r);
            }
            Asked::Look => {
                let (due, released) = self.due(state);
                let memory = sent.looked(&due, released)?;
                // A look that finds nothing new is no step.
                return match memory.name() == before {
                    true => None,
                    false => self.remember(state, r, memory),
                };
            }
            Asked::Park(_) | Asked::Settle { .. } if self.refuses(state, epoch, token) => {
                state.forget(self, r);
                return Some(());
            }
            Asked::Park(events) if self.without(Rule::CursorWaitsForParkedCopy) => {
                claim_parks_later(state, r, events)?;
            }
            Asked::Park(events) => self.park(state, events),
            Asked::Settle { event, end } => {
                let copy = state.aside.copy_mut(event)?;
                // A copy that an operator has settled meanwhile stays so.
                if copy.state != CopyState::Settled {
                    copy.state = end;
                }
            }
        }
        self.remember(state, r, sent.changed())
    }

    /// A control: what was taken for parked is parked at last.
    pub(crate) fn park_late(&self, state: &mut State, r: usize) -> Option<()> {
        let events = std::mem::take(&mut state.relays[r].running()?.parking);
        self.park(state, events);
        Some(())
    }

    fn park(&self, state: &mut State, events: Vec<(Event, Position, CopyState)>) {
        let State {
            aside, database, ..
        } = state;
        for (event, at, copied) in events {
            let mut rows = database.mvcc.rows.values();
            let seq = rows.find(|row| row.event == event).map_or(0, |row| row.seq);
            aside.copies.retain(|copy| copy.event != event);
            aside.copies.push(Copied {
                event,
                seq,
                state: copied,
            });
            aside.copies.sort_by_key(|copy| copy.event);
            if !self.without(Rule::ParkedEventLeavesMarker) {
                aside.set_marker(self.key_of(event), at);
            }
        }
    }

    /// Copies that are to be tried, and keys that nothing holds any more.
    fn due(&self, state: &State) -> (Vec<Line>, Vec<String>) {
        let copies = state.aside.copies.iter();
        let due = copies.filter(|copy| copy.state == CopyState::Due);
        let due = due.map(|copy| (copy.seq, copy.event, self.key_name(copy.event)));
        let markers = state.aside.markers.iter();
        let released = markers.filter(|(key, _)| !self.holds(&state.aside, *key));
        let released = released.map(|(key, _)| self.name_of_key(*key).to_owned());
        (due.collect(), released.collect())
    }

    /// The relay's side read makes its next step.
    pub(crate) fn side_step(&self, state: &mut State, r: usize) -> Option<()> {
        let claim = state.relays[r].running()?;
        let (epoch, token) = (claim.epoch, claim.token);
        let (sent, asked) = claim.memory.next_side_step()?;
        let changes = matches!(asked, SideAsked::Advance(_) | SideAsked::Join(_));
        if changes && self.refuses(state, epoch, token) {
            state.forget(self, r);
            return Some(());
        }
        match self.side_answer(state, &sent, asked) {
            Some(memory) => self.remember(state, r, memory),
            // The statement answers an error, and the claim ends with it.
            None => {
                state.forget(self, r);
                Some(())
            }
        }
    }

    fn side_answer(&self, state: &mut State, sent: &Memory, asked: SideAsked) -> Option<Memory> {
        match asked {
            SideAsked::Open(names) => {
                let marker = |name: String| {
                    let marker = state.aside.marker(self.key_named(&name))?;
                    Some((name, marker.clone()))
                };
                let markers: Option<Vec<_>> = names.into_iter().map(marker).collect();
                Some(sent.side_opened(&markers?))
            }
            SideAsked::Read { budget, until } => {
                let keys = sent.side_keys().iter().map(|name| self.key_named(name));
                let keys: Vec<u8> = keys.collect();
                let behind = |row: &Row| {
                    let key = self.key_of(row.event);
                    let marker = state.aside.marker(key).filter(|_| keys.contains(&key))?;
                    Some(Behind {
                        line: (row.seq, row.event, self.key_name(row.event)),
                        xid: row.xid,
                        marker,
                    })
                };
                let mvcc = &state.database.mvcc;
                let rows: Vec<_> = mvcc.committed().filter_map(behind).collect();
                sent.side_read(&rows, mvcc.sequence, budget, &until)
            }
            SideAsked::Advance(moves) => {
                for (name, at) in moves {
                    let key = self.key_named(&name);
                    state.aside.marker(key)?;
                    if !self.holds(&state.aside, key) {
                        state.aside.set_marker(key, at);
                    }
                }
                Some(sent.side_advanced())
            }
            SideAsked::Join(names) => {
                for name in names {
                    let key = self.key_named(&name);
                    state.aside.marker(key)?;
                    if self.holds(&state.aside, key) {
                        return None;
                    }
                    state.aside.markers.retain(|(of, _)| *of != key);
                }
                Some(sent.side_joined())
            }
        }
    }
}

fn claim_parks_later(
    state: &mut State,
    r: usize,
    events: Vec<(Event, Position, CopyState)>,
) -> Option<()> {
    state.relays[r].running()?.parking.extend(events);
    Some(())
}
