//! Side read and join: how released keys come back to the main group, many at a time.
//!
//! ```text
//!   idle -released keys--> opening --> reading --page--> delivering --all done--+
//!    ^                                    ^                                     |
//!    |                                    +-- not there yet: read on -----------+
//!    |                                    +-- there: hold the main group until  |
//!    |                                        it stands, read the last bit -----+
//!    +------ joined (or all blocked again) <--------------- there, and it stands
//! ```
//!
//! The main group reads on where the destination fails meanwhile: only events that pass show over
//! which one the lanes end, and a topic that is held back delays no other. The side read follows,
//! and the join comes later.
//!
//! The join is at one place that both have finished: the main group stands still there, and handles
//! no answer, from the side read's last target to the end of the join's transaction. A key whose
//! event is rejected leaves the side read, and stands where that was parked; the others go on.

use std::collections::{HashSet, VecDeque};

use super::window::{Passed, State, Window};
use crate::{
    Budget, Cursor, KeyOrder, Page, StoredEvent,
    rule::{Rule, left_out},
};

/// A step that the runner is to do for the side read; one at a time.
#[derive(Debug)]
pub enum SideStep {
    /// [`crate::ClaimMarkers::side_read`] of these keys.
    Open(Vec<String>),
    /// [`crate::SideRead::next`].
    Read {
        /// Before that, [`crate::SideRead::leave`] of these keys.
        left: Vec<String>,
        /// How much.
        budget: Budget,
        /// Up to here.
        until: Cursor,
    },
    /// [`crate::SideRead::advance`].
    Advance {
        /// Before that, [`crate::SideRead::leave`] of these keys.
        left: Vec<String>,
        /// To here.
        at: Cursor,
        /// The `seq` of each finished event.
        finished: Vec<i64>,
    },
    /// [`crate::ClaimMarkers::join`].
    Join {
        /// The keys that come back.
        keys: Vec<String>,
        /// Where the main group stands.
        at: Cursor,
    },
}

/// Whether the event's key is one of these.
pub(super) fn has_key(keys: &HashSet<String>, event: &StoredEvent) -> bool {
    !keys.is_empty() && event.order_key().is_some_and(|key| keys.contains(key))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Opening,
    Read,
    Reading,
    Delivering,
    Advancing,
    /// Reached its target; waits for the main group to stand still.
    Holding,
    Joining,
}

/// Keys of one side read at the most: each is sent along with every page's request.
const KEYS_MAX: usize = 10_000;
/// Bytes of them, likewise.
const KEYS_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(super) struct Side {
    order: KeyOrder,
    released: VecDeque<String>,
    /// The same, to find one.
    is_released: HashSet<String>,
    /// Those that are read now.
    keys: HashSet<String>,
    /// Those that were among them, whose event is to be parked: they are neither read nor released,
    /// and what was delivered before that event is still stored.
    leaving: HashSet<String>,
    /// Those whose event was parked, which the store is to be told.
    left: Vec<String>,
    phase: Phase,
    window: Window,
    next_ticket: u64,
    /// The main group has read beyond the target of the last read.
    is_behind: bool,
    /// The last read had the standing main group as its target.
    last_bit: bool,
    reached: bool,
}

impl Side {
    pub(super) fn new(order: KeyOrder) -> Self {
        Self {
            order,
            released: VecDeque::new(),
            is_released: HashSet::new(),
            keys: HashSet::new(),
            leaving: HashSet::new(),
            left: Vec::new(),
            phase: Phase::Idle,
            window: Window::new(order, 0),
            next_ticket: 0,
            is_behind: false,
            last_bit: false,
            reached: false,
        }
    }

    /// Keys that no parked event holds any longer.
    pub(super) fn release(&mut self, keys: Vec<String>) {
        for key in keys {
            // The store was asked before the event of a leaving key was parked.
            let is_here = self.keys.contains(&key) || self.leaving.contains(&key);
            if !is_here && self.is_released.insert(key.clone()) {
                self.released.push_back(key);
            }
        }
    }

    /// How many keys wait for their join, and nothing holds them but that.
    pub(super) fn released_keys(&self) -> usize {
        self.is_released.len() + self.keys.len()
    }

    /// As many released keys as one side read takes, one at least if there is one.
    fn take_released(&mut self) -> Vec<String> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while let Some(key) = self.released.front()
            && (keys.is_empty() || keys.len() < KEYS_MAX && bytes + key.len() <= KEYS_BYTES_MAX)
        {
            bytes += key.len();
            self.is_released.remove(key);
            keys.extend(self.released.pop_front());
        }
        keys
    }

    /// An event of this key is to be parked: what lies behind it belongs to the key's next side
    /// read.
    pub(super) fn leave(&mut self, key: &str) {
        self.leaving.extend(self.keys.take(key));
    }

    /// An event of this key was parked, and the key's marker stands there.
    pub(super) fn parked(&mut self, key: &str) {
        self.left.extend(self.leaving.take(key));
    }

    pub(super) fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    /// The events that were read, and the keys that are read now.
    pub(super) fn gathered(&mut self) -> (&mut Window, &HashSet<String>) {
        (&mut self.window, &self.keys)
    }

    /// Events of the keys that are read now, which are not done.
    pub(super) fn undone(&self) -> impl Iterator<Item = &StoredEvent> {
        self.window.undone().filter(|event| self.reads(event))
    }

    /// Whether all that was read is accepted or parked.
    pub(super) fn is_done(&mut self) -> bool {
        self.window.is_done()
    }

    /// Whether this side read sends the event's key.
    pub(super) fn reads(&self, event: &StoredEvent) -> bool {
        has_key(&self.keys, event)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.released.is_empty()
    }

    pub(super) fn is_joining(&self) -> bool {
        self.phase == Phase::Joining
    }

    /// Whether the main group must stop at the next joinable place.
    pub(super) fn holds_main(&self) -> bool {
        self.phase == Phase::Holding
            || (self.last_bit && !matches!(self.phase, Phase::Idle | Phase::Opening))
    }

    /// The main group has read up to another joinable place.
    pub(super) fn main_has_read(&mut self) {
        self.is_behind = true;
    }

    /// Lets the main group read on, unless the join is under way. It is held again once the side
    /// read has come as far.
    pub(super) fn let_main_go(&mut self) {
        if self.phase == Phase::Joining {
            return;
        }
        if std::mem::take(&mut self.last_bit) {
            self.reached = false;
        }
        if self.phase == Phase::Holding {
            self.phase = Phase::Delivering;
        }
    }

    /// The next step, if there is one. `joinable` is the newest joinable place that the main group
    /// has read up to, `standing` the same when the main group has finished it and holds still
    /// there. `may_hold`: the main group may be held.
    pub(super) fn next_step(
        &mut self,
        budget: Budget,
        joinable: Option<&Cursor>,
        standing: Option<&Cursor>,
        may_hold: bool,
    ) -> Option<SideStep> {
        match self.phase {
            Phase::Idle => {
                // Without a joinable place there is no target yet; the first read brings one.
                joinable?;
                let keys = self.take_released();
                if keys.is_empty() {
                    return None;
                }
                self.keys = keys.iter().cloned().collect();
                self.phase = Phase::Opening;
                Some(SideStep::Open(keys))
            }
            Phase::Read => {
                let until = joinable?.clone();
                Some(self.read_step(budget, until))
            }
            Phase::Holding => {
                let until = standing?.clone();
                self.last_bit = true;
                Some(self.read_step(budget, until))
            }
            Phase::Delivering if self.window.is_done() => {
                // It was there when this read was sent.
                let at = match left_out(Rule::JoinWhereMainGroupStands) {
                    true => joinable,
                    false => standing,
                };
                let step = self.delivered(at, may_hold);
                // A turn that needs no store is no step: what comes after it is.
                if step.is_some() || self.phase == Phase::Delivering {
                    return step;
                }
                self.next_step(budget, joinable, standing, may_hold)
            }
            _ => None,
        }
    }

    fn read_step(&mut self, budget: Budget, until: Cursor) -> SideStep {
        self.phase = Phase::Reading;
        self.is_behind = false;
        SideStep::Read {
            left: std::mem::take(&mut self.left),
            budget,
            until,
        }
    }

    fn advance_step(&mut self, passed: Passed) -> SideStep {
        self.phase = Phase::Advancing;
        SideStep::Advance {
            left: std::mem::take(&mut self.left),
            at: passed.up_to,
            finished: passed.finished,
        }
    }

    /// When the relay stops: stores what was delivered, so that a planned stop repeats nothing.
    pub(super) fn last_step(&mut self) -> Option<SideStep> {
        if self.phase != Phase::Delivering || self.window.has_sent() {
            return None;
        }
        self.pass_what_has_left();
        let passed = self
            .window
            .take_passed()
            .filter(|passed| passed.events > 0)?;
        Some(self.advance_step(passed))
    }

    /// Nothing is gathered any more, which would pass what follows an event of a key that has left:
    /// what was delivered behind it could not be stored.
    fn pass_what_has_left(&mut self) {
        let Self { window, keys, .. } = self;
        for number in window.ready_of(|event| !has_key(keys, event)) {
            window.finish(number, false);
        }
    }

    /// When the relay stops: whether all that was delivered is stored, and nothing is under way
    /// that would be.
    pub(super) fn is_stored(&mut self) -> bool {
        self.pass_what_has_left();
        self.phase != Phase::Advancing && self.window.done_prefix() == 0
    }

    fn delivered(&mut self, standing: Option<&Cursor>, may_hold: bool) -> Option<SideStep> {
        if let Some(passed) = self.window.take_passed()
            && passed.events > 0
        {
            return Some(self.advance_step(passed));
        }
        if self.keys.is_empty() {
            self.end();
            return None;
        }
        if !self.reached {
            self.phase = Phase::Read;
            return None;
        }
        if !self.last_bit && !left_out(Rule::JoinWhereMainGroupStands) {
            if may_hold {
                self.phase = Phase::Holding;
            } else if self.is_behind {
                self.phase = Phase::Read;
            }
            return None;
        }
        let at = standing?.clone();
        self.phase = Phase::Joining;
        let mut keys: Vec<String> = self.keys.iter().cloned().collect();
        keys.sort_unstable();
        Some(SideStep::Join { keys, at })
    }

    pub(super) fn opened(&mut self) {
        self.phase = Phase::Read;
        self.last_bit = false;
        self.reached = false;
    }

    /// A page came; `done` says what of it is finished already.
    pub(super) fn read(&mut self, page: Page, done: impl FnMut(&StoredEvent) -> Option<State>) {
        self.reached = page.caught_up;
        self.next_ticket += page.events.len() as u64;
        self.window.push(page, done);
        self.phase = Phase::Delivering;
    }

    pub(super) fn advanced(&mut self) {
        self.phase = Phase::Delivering;
    }

    /// The keys are the main group's again. Answers them.
    pub(super) fn joined(&mut self) -> HashSet<String> {
        let keys = std::mem::take(&mut self.keys);
        self.end();
        keys
    }

    /// `answers`: how many events the destination has accepted or refused by now. `rejects`: events
    /// may be rejected for good.
    #[cfg(feature = "model")]
    pub(super) fn describe(&self, answers: u64, rejects: bool, out: crate::model::Out<'_>) {
        let Self {
            // Never changes.
            order: _,
            released,
            // The same as the queue.
            is_released: _,
            keys,
            leaving,
            left,
            phase,
            window,
            next_ticket,
            is_behind,
            last_bit,
            reached,
        } = self;
        if !rejects {
            // No key is ever released.
            return;
        }
        window.describe(answers, out);
        let mut keys: Vec<&String> = keys.iter().collect();
        keys.sort_unstable();
        let mut leaving: Vec<&String> = leaving.iter().collect();
        leaving.sort_unstable();
        let keys = format!("{released:?} {keys:?} {leaving:?} {left:?}");
        let state = format!("{phase:?} {next_ticket:?} {is_behind} {last_bit} {reached}");
        for part in [keys, state] {
            out(crate::model::Part::Text(&part));
        }
    }

    fn end(&mut self) {
        self.phase = Phase::Idle;
        self.last_bit = false;
        self.left.clear();
        self.window = Window::new(self.order, self.next_ticket);
    }
}
