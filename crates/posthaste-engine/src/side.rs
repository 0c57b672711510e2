//! Side read and join: how a released key comes back to the main group.
//!
//! ```text
//!   idle --released key--> opening --> reading --page--> delivering --all done--+
//!    ^                                    ^                                     |
//!    |                                    +-- not there yet: read on -----------+
//!    |                                    +-- there: hold the main group until  |
//!    |                                        it stands, read the last bit -----+
//!    +------ joined (or blocked again by a rejection) <---- there, and it stands
//! ```
//!
//! The join is at one place that both have finished: the main group stands still there, and handles no
//! answer, from the side read's last target to the end of the join's transaction.

use std::collections::VecDeque;

use crate::{
    Budget, Cursor, KeyOrder, Page, StoredEvent,
    mutation::{Mutation, planted},
    window::{State, Window},
};

/// What the runner is to do for the side read; one step at a time.
#[derive(Debug)]
pub enum SideStep {
    /// [`crate::Claimed::side_read`] of this key.
    Open(String),
    /// [`crate::SideRead::next`].
    Read {
        /// How much.
        budget: Budget,
        /// Up to here.
        until: Cursor,
    },
    /// [`crate::SideRead::advance`].
    Advance {
        /// To here.
        at: Cursor,
        /// What was finished.
        finished: Vec<i64>,
    },
    /// [`crate::Claimed::join`].
    Join {
        /// The key that comes back.
        key: String,
        /// Where the main group stands.
        at: Cursor,
    },
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

#[derive(Debug, Clone)]
pub(crate) struct Side {
    order: KeyOrder,
    released: VecDeque<String>,
    key: Option<String>,
    phase: Phase,
    pub(crate) window: Window,
    next_ticket: u64,
    /// The last read had the standing main group as its target.
    last_bit: bool,
    reached: bool,
    /// An event was rejected: what lies behind it waits, or belongs to the key's next side read.
    rejected: bool,
}

impl Side {
    pub(crate) fn new(order: KeyOrder, first_ticket: u64) -> Self {
        Self {
            order,
            released: VecDeque::new(),
            key: None,
            phase: Phase::Idle,
            window: Window::new(order, first_ticket),
            next_ticket: first_ticket,
            last_bit: false,
            reached: false,
            rejected: false,
        }
    }

    /// Keys that no parked event holds any longer.
    pub(crate) fn release(&mut self, keys: Vec<String>) {
        for key in keys {
            if self.key.as_ref() != Some(&key) && !self.released.contains(&key) {
                self.released.push_back(key);
            }
        }
    }

    /// The ticket that the next event read will bear.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    pub(crate) fn may_send(&self) -> bool {
        !self.rejected
    }

    pub(crate) fn send_no_more(&mut self) {
        self.rejected = true;
    }

    pub(crate) fn send_again(&mut self) {
        self.rejected = false;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.released.is_empty()
    }

    /// Whether the main group must stop at the next joinable place.
    pub(crate) fn holds_main(&self) -> bool {
        self.phase == Phase::Holding
            || (self.last_bit && !matches!(self.phase, Phase::Idle | Phase::Opening))
    }

    /// The next step, if there is one. `joinable` is the newest joinable place that the main group has
    /// read up to, `standing` the same when the main group has finished it and holds still there.
    pub(crate) fn next_step(
        &mut self,
        budget: Budget,
        joinable: Option<&Cursor>,
        standing: Option<&Cursor>,
    ) -> Option<SideStep> {
        match self.phase {
            Phase::Idle => {
                // Without a joinable place there is no target yet; the first read brings one.
                joinable?;
                let key = self.released.pop_front()?;
                self.key = Some(key.clone());
                self.phase = Phase::Opening;
                Some(SideStep::Open(key))
            }
            Phase::Read => {
                self.phase = Phase::Reading;
                joinable.map(|until| SideStep::Read {
                    budget,
                    until: until.clone(),
                })
            }
            Phase::Holding => {
                let until = standing?.clone();
                self.last_bit = true;
                self.phase = Phase::Reading;
                Some(SideStep::Read { budget, until })
            }
            Phase::Delivering if self.window.is_done() => {
                // It was there when this read was sent.
                let at = match planted(Mutation::JoinAtTheWrongHigh) {
                    true => joinable,
                    false => standing,
                };
                let step = self.delivered(at);
                // A turn that needs no store is no step: what comes after it is.
                if step.is_some() || self.phase == Phase::Delivering {
                    return step;
                }
                self.next_step(budget, joinable, standing)
            }
            _ => None,
        }
    }

    /// When the relay stops: stores what was delivered, so that a planned stop repeats nothing.
    pub(crate) fn last_step(&mut self) -> Option<SideStep> {
        if self.phase != Phase::Delivering || self.window.has_sent() {
            return None;
        }
        let passed = self
            .window
            .take_passed()
            .filter(|passed| passed.events > 0)?;
        self.phase = Phase::Advancing;
        Some(SideStep::Advance {
            at: passed.up_to,
            finished: passed.finished,
        })
    }

    /// Whether all that was delivered is stored, and nothing is under way that would be.
    pub(crate) fn is_stored(&mut self) -> bool {
        self.phase != Phase::Advancing && self.window.done_prefix() == 0
    }

    fn delivered(&mut self, standing: Option<&Cursor>) -> Option<SideStep> {
        if let Some(passed) = self.window.take_passed()
            && passed.events > 0
        {
            self.phase = Phase::Advancing;
            return Some(SideStep::Advance {
                at: passed.up_to,
                finished: passed.finished,
            });
        }
        if !self.reached {
            self.phase = Phase::Read;
            return None;
        }
        if !self.last_bit && !planted(Mutation::JoinAtTheWrongHigh) {
            self.phase = Phase::Holding;
            return None;
        }
        let (key, at) = (self.key.clone()?, standing?.clone());
        self.phase = Phase::Joining;
        Some(SideStep::Join { key, at })
    }

    pub(crate) fn opened(&mut self) {
        self.phase = Phase::Read;
        self.last_bit = false;
        self.reached = false;
    }

    /// A page came; `done` says what of it is finished already.
    pub(crate) fn read(&mut self, page: Page, done: impl FnMut(&StoredEvent) -> Option<State>) {
        self.reached = page.caught_up;
        self.next_ticket += page.events.len() as u64;
        self.window.push(page, done);
        self.phase = Phase::Delivering;
    }

    pub(crate) fn advanced(&mut self) {
        self.phase = Phase::Delivering;
    }

    /// The key is the main group's again. Answers it.
    pub(crate) fn joined(&mut self) -> Option<String> {
        self.end();
        self.key.take()
    }

    /// An event of the side read was parked: the key is blocked again, at a later place.
    pub(crate) fn blocked_again(&mut self) {
        self.end();
        self.key = None;
    }

    /// All that decides what comes next, but for the window.
    #[cfg(feature = "model")]
    pub(crate) fn describe(&self, out: crate::model::Out<'_>) {
        out(crate::model::Part::Text(&format!(
            "{:?} {:?} {:?} {} {} {} {}",
            self.released,
            self.key,
            self.phase,
            self.next_ticket,
            self.last_bit,
            self.reached,
            self.rejected,
        )));
    }

    fn end(&mut self) {
        self.phase = Phase::Idle;
        self.last_bit = false;
        self.rejected = false;
        self.window = Window::new(self.order, self.next_ticket);
    }
}
