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
//! | `Breaker` | whether the destination is there |
//! | `LaneUse` | the lane, and what is in flight on it |
//! | `Progress` | what the store holds, and the change under way |
//! | `Reports` | what operators are told |
//!
//! `sending` and `answers`, `parking`, `storing` and `side_read` are the decisions, which take
//! several parts each.

mod answers;
mod breaker;
mod change;
mod evidence;
mod lane;
mod limits;
#[cfg(feature = "model")]
mod model;
mod pacer;
mod parking;
mod progress;
mod reading;
mod reports;
mod retries;
mod sending;
mod side;
mod side_read;
mod storing;
mod throttled;
mod ticket;
mod waiting;
mod window;

use std::collections::HashSet;

use crate::{
    Budget, EventRef, FenceKind, Marker, Moment, Page, RouteDecision, Router, SinkError, SinkInfo,
    rule::{Rule, left_out},
};
use breaker::Breaker;
use lane::LaneUse;
use progress::Progress;
use reading::Reading;
use reports::Reports;
use retries::Retries;
use side::{Side, has_key};
use ticket::Group;
use waiting::Waiting;
use window::{State, Window};

pub use breaker::BreakerState;
pub use change::Change;
pub use limits::PipelineLimits;
pub use reports::{Counts, Died};
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
    breaker: Breaker,
    lane: LaneUse,
    progress: Progress,
    reports: Reports,
    paused: bool,
    /// The relay stops: the first number of the main group that is not sent any more.
    stop_behind: Option<u64>,
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
            waiting: Waiting::new(order, markers),
            breaker: Breaker::new(limits.probe, limits.rejections_max),
            lane: LaneUse::new(),
            progress: Progress::new(),
            reports: Reports::new(),
            paused: false,
            stop_behind: None,
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
    /// ([`crate::Claimed::set_aside`]): their copies stand for them, and the cursor passes them.
    pub fn pass_over(&mut self, copied: impl IntoIterator<Item = EventRef>) {
        self.reading.pass_over(copied);
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

/// Reading of the main group.
impl Pipeline {
    /// How much to read now; none when it is not the time, or there is no room. The caller answers
    /// with [`read`](Self::read).
    pub fn next_read(&mut self, now: Moment) -> Option<Budget> {
        let may = self.reading.is_due(now)
            && !self.paused
            && self.stop_behind.is_none()
            && !(self.side.holds_main() && self.reading.is_joinable());
        let events = self.progress.room(&self.limits).filter(|_| may)?;
        if self.must_forget_keys() {
            return None;
        }
        self.reading.begin();
        Some(self.read_budget(events))
    }

    fn read_budget(&self, events: usize) -> Budget {
        Budget {
            events: events.min(self.limits.batch_events),
            bytes: self.limits.batch_bytes,
        }
    }

    /// Whether so many parked keys are in memory that nothing may be read before some are
    /// forgotten. That takes an empty window: a page for which the store was not asked relies on
    /// the keys here.
    fn must_forget_keys(&mut self) -> bool {
        let kept = self.limits.blocked_keys_kept;
        if !self.waiting.has_too_many_keys(kept) {
            return false;
        }
        // No rejected event waits for its marker either.
        let relied_on = self.reading.is_under_way()
            || !self.main.is_empty()
            || self.failed_events() > 0
            || self.progress.is_changing();
        if !relied_on {
            self.waiting.forget_keys(kept);
        }
        relied_on
    }

    /// Whether the store is to be asked which keys of the next page are marked.
    #[must_use]
    pub fn asks_for_markers(&self) -> bool {
        self.waiting.asks_for_markers()
    }

    /// There may be something to read: an idle reader need not wait any longer.
    pub fn hint(&mut self, now: Moment) {
        self.reading.hint(now);
    }

    /// A read was answered, and nothing had to be asked
    /// ([`asks_for_markers`](Self::asks_for_markers)).
    pub fn read(&mut self, page: Page, now: Moment) {
        self.read_marked(page, &HashSet::new(), now);
    }

    /// A read was answered; of its keys, these are marked ([`crate::Claimed::marked`]).
    pub fn read_marked(&mut self, page: Page, marked: &HashSet<String>, now: Moment) {
        let Self {
            router,
            reading,
            waiting,
            reports,
            ..
        } = self;
        reports.counts.read += page.events.len() as u64;
        reading.answered(&page, reports.counts.read, now);
        let read = self.main.push(page, |event| {
            if reading.take_copied(event) {
                return Some(State::Done { finished: true });
            }
            match router.decide(event) {
                RouteDecision::Take(_) => {
                    let waits = waiting.is_parked(event) || has_key(marked, event);
                    return waits.then_some(State::Done { finished: false });
                }
                RouteDecision::Unrouted => reports.counts.unrouted += 1,
                RouteDecision::NotOurs | RouteDecision::Dropped => {}
            }
            Some(State::Done { finished: true })
        });
        self.progress.read(read);
    }
}

/// The lane's life.
impl Pipeline {
    /// When the oldest batch without an answer was submitted; its records are late at a publish
    /// time-out after that.
    #[must_use]
    pub fn oldest_in_flight(&self) -> Option<Moment> {
        self.lane.oldest()
    }

    /// Records handed to the lane and not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.lane.in_flight()
    }

    /// Whether the runner is to open a lane now.
    pub fn wants_lane(&mut self, now: Moment) -> bool {
        self.lane.may_open(now) && !self.paused && !self.is_open(now)
    }

    /// Bytes of a lane that an earlier claim aborted may still arrive: none is opened before
    /// `until`.
    pub fn settle_until(&mut self, until: Moment) {
        self.lane.wait_until(until);
    }

    /// A lane was opened.
    pub fn lane_opened(&mut self) {
        self.lane.opened(self.reports.counts.read);
        self.retries.lane_opened();
    }

    /// No lane could be opened.
    pub fn lane_refused(&mut self, error: &SinkError, now: Moment, random: f64) {
        self.reports.counts.unavailable += 1;
        self.breaker
            .unavailable(error.to_string(), None, now, random);
    }

    /// Whether the runner is to abort the lane and then call [`lane_ended`](Self::lane_ended).
    #[must_use]
    pub fn wants_abort(&self) -> bool {
        self.lane.has_failed()
    }

    /// The lane has to go: the right to send has ended.
    pub fn fail_lane(&mut self, reason: &str, now: Moment, random: f64) {
        if self.lane.fail() {
            self.reports.counts.unavailable += 1;
            self.breaker
                .unavailable(reason.to_owned(), None, now, random);
        }
    }

    /// The lane was aborted. Everything without an answer will be sent again, after the settle time
    /// unless the sink fences exactly.
    pub fn lane_ended(&mut self, now: Moment) {
        let settles = self.info.fence != FenceKind::Exact && !left_out(Rule::AbortEndsConnection);
        self.lane.ended(now, settles.then_some(self.limits.settle));
        self.main.unsend_all();
        self.side.window().unsend_all();
        self.retries.unsend_all();
    }

    /// Tickets of events that went behind what the store holds since the last call
    /// ([`crate::Lane::stored`]).
    pub fn take_behind_the_store(&mut self) -> std::vec::Drain<'_, std::ops::Range<u64>> {
        self.progress.take_behind_the_store()
    }

    /// Once for each lane: everything that was visible at the claim, or read before the lane was
    /// opened, is behind what the store holds ([`crate::Lane::caught_up`]).
    pub fn take_caught_up(&mut self) -> bool {
        self.retries.none_is_due()
            && self.is_drained()
            && self.lane.tell_caught_up(self.progress.stored())
    }

    /// Whether the breaker is open: nothing is sent.
    fn is_open(&mut self, now: Moment) -> bool {
        matches!(self.breaker.state(now), BreakerState::Open { .. })
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
    pub fn take_died(&mut self) -> Vec<Died> {
        self.reports.take_died()
    }

    /// Numbers so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.reports.counts
    }

    /// The breaker's state and its last error.
    pub fn breaker(&mut self, now: Moment) -> (BreakerState, Option<&str>) {
        (self.breaker.state(now), self.breaker.last_error())
    }

    /// Operators want the destination to stand still, or to go on. Answers whether that is news.
    pub fn pause(&mut self, paused: bool) -> bool {
        std::mem::replace(&mut self.paused, paused) != paused
    }

    /// Read and send nothing new; only what is needed so that nothing accepted is repeated.
    pub fn stop(&mut self) {
        self.stop_behind = Some(self.lane.first_unsent());
    }
}

/// Rest.
impl Pipeline {
    /// After [`stop`](Self::stop): nothing is in flight and all progress is stored, or the
    /// destination is away so that no more can come of waiting.
    pub fn is_stopped(&mut self, now: Moment) -> bool {
        let away = !self.lane.is_open() || self.breaker.state(now) != BreakerState::Closed;
        let sent = self.lane.in_flight() == 0 && (away || !self.has_unsent(now));
        sent && !self.progress.is_changing()
            && self.main.done_prefix() == 0
            && self.side.is_stored()
            && !self.retries.has_settlements()
            && self.progress.owes_no_advance()
    }

    fn has_unsent(&mut self, now: Moment) -> bool {
        let may = self.stop_behind.is_none() || self.main.has_ready();
        let behind = self.stop_behind.unwrap_or(u64::MAX);
        may && !self.is_open(now) && self.main.peek_ready().is_some_and(|(n, _)| n < behind)
    }

    /// Whether everything that was visible when this claim was opened is accepted, parked, or
    /// blocked behind a parked event, and that is stored.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let target = self.reading.drain_target();
        target.is_some_and(|target| self.progress.stored() >= target)
            && self.retries.has_looked()
            && self.is_idle_but_for_main()
    }

    /// Whether there is nothing to do: the last read brought all that there was, and nothing that
    /// was read waits for the destination or for the store.
    pub fn is_idle(&mut self) -> bool {
        let waiting = &self.waiting;
        self.reading.is_caught_up()
            && self.main.is_done_but_for(|event| waiting.is_parked(event))
            && self.is_idle_but_for_main()
    }

    fn is_idle_but_for_main(&self) -> bool {
        self.side.is_idle() && self.retries.is_idle() && !self.progress.is_changing()
    }

    /// When something is due by itself, later than `now`; the runner wakes then at the latest. What
    /// is due already and was not done waits for an answer.
    pub fn next_wake(&mut self, now: Moment) -> Option<Moment> {
        let probe = match self.breaker.state(now) {
            BreakerState::Open { until } => Some(until),
            BreakerState::Closed | BreakerState::HalfOpen => None,
        };
        let dues = [
            Some(self.retries.look_at()),
            Some(self.reading.next()),
            self.progress.next_advance_at(&mut self.main, &self.limits),
            probe,
            self.lane.opens_at(),
            self.waiting.topics_not_before(),
        ];
        dues.into_iter().flatten().filter(|&due| due > now).min()
    }
}
