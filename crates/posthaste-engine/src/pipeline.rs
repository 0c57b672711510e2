//! One destination's decisions: what to send next, what is blocked, how far the cursor may go, when
//! to stop. A pure state machine: the runner feeds it pages, verdicts and answers, and does what it
//! asks.
//!
//! The *store* is authoritative for progress, markers and parked copies; the *lane's verdicts* for
//! what was accepted; this machine for everything in between. Its memory may be dropped at any
//! moment: a new claim reads it again.
//!
//! Order of a key: an event is sent when every earlier event of its key is accepted, or, where the
//! receiver keeps order behind a failure ([`KeyOrder::Pipelined`](crate::KeyOrder::Pipelined)),
//! sent before it on the same lane. A rejected event is parked (copy and marker durable) before the
//! cursor passes it; from then on only the side read ([`SideStep`]) sends its key.
//!
//! Each part keeps one thing, in a file of its own:
//!
//! | part | keeps |
//! | --- | --- |
//! | `Reading` | when the main group reads, and where that ended |
//! | `Window` | the events that were read, in order (one for the main group, one in `Side`) |
//! | `Side` | keys that come back to the main group |
//! | `Retries` | parked copies that are sent again |
//! | `Waiting` | what waits, and why |
//! | `Trials` | whose turn it is beside suspects |
//! | `Breaker` | whether the destination is there |
//! | `Refusals` | whether it refuses too much |
//! | `LaneUse` | the lane, and what is in flight on it |
//! | `Progress` | what the store holds, and the change under way |
//! | `Reports` | what operators are told |
//!
//! The other files are the decisions, which take several parts each: `next_read`, `sending`,
//! `answers`, `parking`, `leaving`, `storing`, `side_read`, `lane_life`, `rest`.

mod answers;
mod breaker;
mod change;
mod evidence;
mod lane;
mod lane_life;
mod leaving;
mod limits;
#[cfg(feature = "model")]
mod model;
mod next_read;
mod pacer;
mod parking;
mod place;
mod places;
mod progress;
mod reading;
mod refusals;
mod reports;
mod rest;
mod retries;
mod returns;
mod sending;
mod side;
mod side_read;
mod storing;
mod ticket;
mod trials;
mod waiting;
mod window;

use std::collections::BTreeSet;

use crate::{EventRef, Marker, Moment, Router, SinkInfo};
use breaker::Breaker;
use lane::LaneUse;
use progress::Progress;
use reading::Reading;
use refusals::Refusals;
use reports::Reports;
use retries::Retries;
use side::Side;
use ticket::Group;
use trials::Trials;
use waiting::Waiting;
use window::Window;

pub use breaker::BreakerState;
pub use change::Change;
pub use limits::PipelineLimits;
pub use reports::{Counts, HeldPlace, Refused};
pub use side::SideStep;

/// One destination's state machine.
#[derive(Clone)]
pub struct Pipeline {
    limits: PipelineLimits,
    info: SinkInfo,
    router: Router,
    reading: Reading,
    main: Window,
    side: Side,
    retries: Retries,
    waiting: Waiting,
    trials: Trials,
    breaker: Breaker,
    refusals: Refusals,
    lane: LaneUse,
    progress: Progress,
    reports: Reports,
    /// When it is looked again at what waits for places.
    leave_at: Moment,
    /// Events without a key that were parked because their place was held back, and wait.
    put_off_alone: usize,
    paused: bool,
    /// The relay stops: the first number of the main group that is not sent any more.
    stop_behind: Option<u64>,
    /// And events may have to leave the window first.
    stop_leaves: bool,
}

impl Pipeline {
    /// A pipeline over a fresh claim, with the markers read in it.
    #[must_use]
    pub fn new(limits: PipelineLimits, info: SinkInfo, router: Router, markers: &[Marker]) -> Self {
        let order = info.key_order;
        let mut side = Side::new(order);
        let released = markers.iter().filter(|marker| marker.released);
        side.release(released.map(|marker| marker.key.clone()).collect());
        Self {
            reading: Reading::new(limits.poll_busy, limits.poll_idle),
            main: Window::new(order, 0),
            side,
            retries: Retries::new(),
            waiting: Waiting::new(info.parts.clone(), markers),
            trials: Trials::new(),
            breaker: Breaker::new(limits.probe),
            refusals: Refusals::new(limits.probe, limits.rejections_max, limits.blocked_keys_max),
            lane: LaneUse::new(),
            progress: Progress::new(),
            reports: Reports::new(),
            leave_at: Moment::default(),
            put_off_alone: 0,
            paused: false,
            stop_behind: None,
            stop_leaves: false,
            limits,
            info,
            router,
        }
    }

    /// The claim says that the destination was away when its last owner saw it: it is probed before
    /// anything flows.
    pub fn begin_with_a_probe(&mut self) {
        self.breaker.begin_with_a_probe();
        self.reports.store_knows_of_an_outage();
    }

    /// These events were parked under an earlier claim, and the main group may read them again
    /// ([`crate::SetAside::again`]): their copies stand for them, and the cursor passes them.
    pub fn pass_over(&mut self, copied: impl IntoIterator<Item = EventRef>) {
        self.reading.pass_over(copied);
    }

    /// So many events without a key were put off under earlier claims, and wait
    /// ([`crate::SetAside::put_off_alone`]).
    pub fn put_off_before(&mut self, events: usize) {
        self.put_off_alone += events;
    }

    /// So many keys are blocked besides those whose markers were given.
    pub fn blocked_beyond(&mut self, keys: usize) {
        self.waiting.add_parked_in_the_store(keys);
    }

    /// How many keys wait behind a parked event, or for their join.
    #[must_use]
    pub fn blocked_keys(&self) -> usize {
        self.waiting.parked_keys()
    }

    fn window_of(&mut self, group: Group) -> Option<&mut Window> {
        match group {
            Group::Main => Some(&mut self.main),
            Group::Side => Some(self.side.window()),
            Group::Retries => None,
        }
    }

    /// Rejected events that are not being parked yet.
    fn failed_events(&mut self) -> usize {
        self.main.failed_events() + self.side.window().failed_events()
    }
}

/// Reports to operators, and their wishes.
impl Pipeline {
    /// When the accepted events were inserted (database's clock, microseconds since 1970-01-01
    /// UTC), since the last call.
    pub fn take_accepted_inserted_at(&mut self) -> std::vec::Drain<'_, i64> {
        self.reports.take_accepted_inserted_at()
    }

    /// The events that died since the last call, as decided; the change that stores it may still
    /// fail, and then the next claim decides anew.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        self.reports.take_refused()
    }

    /// Numbers so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.reports.counts
    }

    /// The breaker's state, and why the destination, or a part of it, takes nothing. One that
    /// refuses most events, and may accept the next one, is half open.
    pub fn breaker(&mut self, now: Moment) -> (BreakerState, Option<&str>) {
        let state = self.breaker.state(now);
        if let Some(error) = self.breaker.last_error() {
            return (state, Some(error));
        }
        if self.refusals.is_broken() || self.waiting.has_refused() {
            return (BreakerState::HalfOpen, Some(self.refusals.reason()));
        }
        (state, self.waiting.trouble())
    }

    /// Parts of the destination that take nothing for now, or not everything yet: how many, and the
    /// first few, so many at the most.
    #[must_use]
    pub fn held_places(&self, most: usize, now: Moment) -> (usize, Vec<HeldPlace>) {
        let in_main = self.main.undone();
        let in_main = in_main.filter(|event| !self.waiting.is_parked(event));
        let undone = in_main.chain(self.side.undone());
        self.waiting.held_places(most, undone, &self.router, now)
    }

    /// Operators want the destination to stand still, or to go on: then it is tried at once,
    /// however long it has asked to be left alone. Answers whether that is news.
    pub fn pause(&mut self, paused: bool) -> bool {
        let is_news = std::mem::replace(&mut self.paused, paused) != paused;
        if is_news && !paused && !self.breaker.is_closed() {
            self.breaker.begin_with_a_probe();
        }
        is_news
    }

    /// Operators want these places, by name, to get nothing ([`HeldPlace::name`]). Answers whether
    /// that is news.
    pub fn pause_places(&mut self, names: &BTreeSet<String>, now: Moment) -> bool {
        self.waiting.pause_places(names, self.limits.probe, now)
    }

    /// Read and send nothing new; only what is needed so that nothing accepted is repeated.
    pub fn stop(&mut self) {
        self.stop_behind = Some(self.lane.first_unsent());
        self.stop_leaves = true;
    }
}
