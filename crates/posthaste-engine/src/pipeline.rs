//! One destination's decisions: what to send next, what is blocked, how far the cursor may go, when to
//! stop. A pure state machine: the runner feeds it pages, verdicts and answers, and does what it asks.
//!
//! Who is authoritative: the *store* for progress, markers and parked copies; the *lane's verdicts* for
//! what was accepted; this machine for everything in between. Whatever it holds may be dropped at any
//! moment: a new claim reads it again.
//!
//! Order of a key: an event is sent when every earlier event of its key is accepted, or, where the
//! receiver keeps order behind a failure ([`KeyOrder::Pipelined`]), sent before it on the same lane. A
//! rejected event is parked (copy and marker durable) before the cursor passes it; from then on only
//! the side read ([`crate::SideStep`]) sends its key.

mod answers;
mod blocked;
mod deaths;
mod limits;
#[cfg(feature = "model")]
mod model;
mod sending;
mod side_read;
mod stored;
mod turns;

use std::{collections::HashSet, ops::Range};

use crate::{
    Batches, BreakerState, Budget, Cursor, EventRef, FenceKind, Marker, Moment, Page, Parking,
    RouteDecision, Router, Settlement, SinkInfo,
    breaker::Breaker,
    pacer::Pacer,
    retries::Retries,
    side::Side,
    suspects::Suspects,
    throttled::Throttled,
    window::{Passed, State, Window},
};
use blocked::Blocked;

pub use deaths::Died;
pub use limits::PipelineLimits;

/// Tickets of the main group begin here, those of side reads and of retries further up.
const MAIN: u64 = 0;
const SIDE: u64 = 1 << 62;
const RETRY: u64 = 1 << 63;
/// Parked events that are in memory at once, and released keys that are looked for at once. Events may be of any size:
/// how many bytes of them come, the store bounds.
const DUE_EVENTS: usize = 2_500;

/// A change that the store is to make; one at a time.
#[derive(Debug)]
pub enum Change {
    /// [`crate::Claimed::park`].
    Park(Vec<Parking>),
    /// [`crate::Claimed::settle`].
    Settle {
        /// The parked copy.
        id: i64,
        /// How its attempt ended.
        settlement: Settlement,
    },
    /// [`crate::Claimed::advance`].
    Advance {
        /// To here.
        up_to: Cursor,
        /// What was finished.
        finished: Vec<i64>,
    },
    /// [`crate::Claimed::report`].
    Report {
        /// State of the breaker.
        breaker: &'static str,
        /// Why it is open.
        last_error: Option<String>,
    },
    /// [`crate::Claimed::due`].
    Due {
        /// How many.
        limit: usize,
    },
}

/// What happened, in numbers that only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events accepted by the broker.
    pub accepted: u64,
    /// Events rejected by the broker, each attempt counted.
    pub rejected: u64,
    /// Failures of the destination.
    pub unavailable: u64,
    /// Events parked.
    pub parked: u64,
    /// Events that no route takes, here or at any other destination.
    pub unrouted: u64,
    /// Events read.
    pub read: u64,
    /// Events sent again although the fate of their first sending is unknown.
    pub repeated: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    None,
    Open,
    /// To be aborted by the runner.
    Failed,
}

/// What the change under way will have done.
#[derive(Debug, Clone)]
enum UnderWay {
    /// Tickets, and whether the key goes on without the event.
    Park(Vec<(u64, bool)>),
    /// The ticket of the attempt.
    Settle(u64),
    Report,
    Advance {
        events: usize,
        bytes: usize,
    },
    Due,
}

/// One destination's state machine.
#[derive(Clone)]
pub struct Pipeline {
    limits: PipelineLimits,
    info: SinkInfo,
    router: Router,
    main: Window,
    side: Side,
    retries: Retries,
    /// Keys with a marker, durable or about to be.
    blocked: Blocked,
    /// Events that were set aside under an earlier claim, which the main group may read again.
    set_aside: HashSet<EventRef>,
    /// Keys, and events without one, that were refused as probes by a destination that is broken,
    /// or by a queue that was full: all others have their turn before these.
    probed: HashSet<u64>,
    /// Records in flight at the most, while a destination that was away resumes.
    ramp: Option<usize>,
    suspects: Suspects,
    throttled: Throttled,
    breaker: Breaker,
    pacer: Pacer,
    counts: Counts,
    lane: LaneState,
    lane_not_before: Moment,
    in_flight: usize,
    batches: Batches<Moment>,
    /// Events and bytes read and not behind the stored cursor.
    unstored: (usize, usize),
    passed: Option<Passed>,
    change: Option<UnderWay>,
    advanced_at: Moment,
    /// Rejected events that were not parked yet.
    failed: usize,
    reported: (&'static str, Option<String>),
    accepted_inserted_at: Vec<i64>,
    died: Vec<Died>,
    due_at: Moment,
    due_seen: bool,
    none_is_due: bool,
    /// Tickets whose events went behind what the store holds since they were last asked for.
    behind_the_store: Vec<Range<u64>>,
    told_caught_up: bool,
    /// Events that had been read when the lane was opened.
    read_before_lane: u64,
    /// A lane was opened: the destination is reached.
    reached: bool,
    reading: bool,
    /// The last read brought all that there was.
    caught_up: bool,
    joinable: Option<Cursor>,
    stands_joinable: bool,
    /// Events that had been read when everything visible at the claim had been.
    drain_target: Option<u64>,
    /// Events behind the stored cursor.
    stored: u64,
    paused: bool,
    /// The highest ticket that may still be sent when the relay stops.
    stop_behind: Option<u64>,
    highest_sent: Option<u64>,
}

impl Pipeline {
    /// A pipeline over a fresh claim, with the markers read in it.
    #[must_use]
    pub fn new(limits: PipelineLimits, info: SinkInfo, router: Router, markers: &[Marker]) -> Self {
        let order = info.key_order;
        let mut side = Side::new(order, SIDE);
        side.release(
            markers
                .iter()
                .filter(|m| m.released)
                .map(|m| m.key.clone())
                .collect(),
        );
        Self {
            main: Window::new(order, MAIN),
            side,
            retries: Retries::new(RETRY),
            blocked: Blocked::new(markers),
            set_aside: HashSet::new(),
            probed: HashSet::new(),
            ramp: None,
            suspects: Suspects::default(),
            throttled: Throttled::default(),
            breaker: Breaker::new(limits.probe, limits.rejections_max),
            pacer: Pacer::new(limits.poll_busy, limits.poll_idle),
            counts: Counts::default(),
            lane: LaneState::None,
            lane_not_before: Moment::default(),
            in_flight: 0,
            batches: Batches::default(),
            unstored: (0, 0),
            passed: None,
            change: None,
            advanced_at: Moment::default(),
            failed: 0,
            reported: ("", None),
            accepted_inserted_at: Vec::new(),
            died: Vec::new(),
            due_at: Moment::default(),
            due_seen: false,
            none_is_due: false,
            behind_the_store: Vec::new(),
            told_caught_up: false,
            read_before_lane: 0,
            reached: false,
            reading: false,
            caught_up: false,
            joinable: None,
            stands_joinable: false,
            drain_target: None,
            stored: 0,
            paused: false,
            stop_behind: None,
            highest_sent: None,
            limits,
            info,
            router,
        }
    }

    /// The claim says that the destination was away when its last owner saw it: it is probed before
    /// anything flows.
    pub fn begin_with_a_probe(&mut self) {
        self.breaker.begin_with_a_probe();
        self.reported.0 = "open";
    }

    /// These events were set aside under an earlier claim ([`crate::Claimed::set_aside`]): their copies stand for
    /// them, and the cursor passes them.
    pub fn pass_over(&mut self, set_aside: impl IntoIterator<Item = EventRef>) {
        self.set_aside.extend(set_aside);
    }

    /// How much to read now; none when it is not the time, or there is no room. The caller answers with
    /// [`read`](Self::read).
    pub fn next_read(&mut self, now: Moment) -> Option<Budget> {
        let may = !self.reading
            && !self.paused
            && self.stop_behind.is_none()
            && self.pacer.next() <= now
            && !(self.side.holds_main() && self.stands_joinable);
        let events = self.limits.window_events.saturating_sub(self.unstored.0);
        let bytes = self.limits.window_bytes.saturating_sub(self.unstored.1);
        // A read that could bring only a few events waits for room: small pages cost more than they gain.
        let room = events >= self.limits.batch_events.min(self.limits.window_events / 2)
            && (bytes >= self.limits.batch_bytes.min(self.limits.window_bytes / 2)
                || self.unstored.0 == 0);
        (may && room && !self.must_forget_keys()).then(|| {
            self.reading = true;
            self.read_budget(events)
        })
    }

    fn read_budget(&self, events: usize) -> Budget {
        Budget {
            events: events.min(self.limits.batch_events),
            bytes: self.limits.batch_bytes,
        }
    }

    /// There may be something to read: an idle reader need not wait any longer.
    pub fn hint(&mut self, now: Moment) {
        self.pacer.hint(now, self.reading);
    }

    /// A read was answered, and nothing had to be asked ([`asks_for_markers`](Self::asks_for_markers)).
    pub fn read(&mut self, page: Page, now: Moment) {
        self.read_marked(page, &HashSet::new(), now);
    }

    /// A read was answered; of its keys, these are marked ([`crate::Claimed::marked`]).
    pub fn read_marked(&mut self, page: Page, marked: &HashSet<String>, now: Moment) {
        self.reading = false;
        self.pacer.read(page.events.len(), page.caught_up, now);
        self.stands_joinable = page.joinable;
        if page.joinable {
            self.joinable = Some(page.end.clone());
        }
        let Self {
            router,
            blocked,
            set_aside,
            counts,
            ..
        } = self;
        self.caught_up = page.caught_up;
        let (events, bytes) = self.main.push(page, |event| {
            if !set_aside.is_empty() && set_aside.remove(&event.reference()) {
                return Some(State::Done { finished: true });
            }
            match router.decide(event) {
                RouteDecision::Take(_) => {
                    let waits = blocked.has(event) || is_one_of(marked, event);
                    return waits.then_some(State::Done { finished: false });
                }
                RouteDecision::Unrouted => counts.unrouted += 1,
                RouteDecision::NotOurs | RouteDecision::Dropped => {}
            }
            Some(State::Done { finished: true })
        });
        self.counts.read += events as u64;
        self.unstored.0 += events;
        self.unstored.1 += bytes;
        if self.caught_up && self.drain_target.is_none() {
            self.drain_target = Some(self.counts.read);
        }
    }

    /// The change that the store is to make next; the caller answers with
    /// [`change_done`](Self::change_done), or drops the pipeline when it failed.
    pub fn next_change(&mut self, now: Moment, random: f64) -> Option<Change> {
        if self.change.is_some() {
            return None;
        }
        let parkings = self.parkings(random);
        if !parkings.is_empty() {
            return Some(Change::Park(parkings));
        }
        // Before settlements, of which there may be thousands.
        if let Some(advance) = self.next_advance(now) {
            return Some(advance);
        }
        if let Some((ticket, id, settlement)) = self.retries.take_settlement() {
            self.change = Some(UnderWay::Settle(ticket));
            return Some(Change::Settle { id, settlement });
        }
        if let Some(report) = self.next_report(now) {
            return Some(report);
        }
        if now >= self.due_at && self.retries.is_idle() && self.stop_behind.is_none() {
            self.change = Some(UnderWay::Due);
            return Some(Change::Due { limit: DUE_EVENTS });
        }
        None
    }

    fn next_report(&mut self, now: Moment) -> Option<Change> {
        // A probe is part of the outage: operators see one episode, and the store one write.
        let breaker = match self.breaker.state(now) {
            // Whether the destination is reached is not known before.
            BreakerState::Closed if !self.reached => return None,
            BreakerState::Closed => BreakerState::Closed.as_str(),
            BreakerState::Open { .. } | BreakerState::HalfOpen => "open",
        };
        let last_error = self.breaker.last_error();
        if (breaker, last_error) == (self.reported.0, self.reported.1.as_deref()) {
            return None;
        }
        self.reported = (breaker, last_error.map(str::to_owned));
        self.change = Some(UnderWay::Report);
        Some(Change::Report {
            breaker,
            last_error: self.reported.1.clone(),
        })
    }

    /// When the accepted events were inserted (database's clock, microseconds since 1970-01-01 UTC),
    /// since the last call.
    pub fn take_accepted_inserted_at(&mut self) -> std::vec::Drain<'_, i64> {
        self.accepted_inserted_at.drain(..)
    }

    fn next_advance(&mut self, now: Moment) -> Option<Change> {
        let done = self.main.done_prefix();
        let half_full = 2 * done >= self.limits.window_events
            || (done > 0 && 2 * self.unstored.1 >= self.limits.window_bytes);
        let time = now >= self.advanced_at.after(self.limits.advance_every);
        let hurry = self.stop_behind.is_some() || self.side.holds_main();
        if !(half_full || time || hurry) {
            return None;
        }
        if let Some(newer) = self.main.take_passed() {
            self.passed = Some(match self.passed.take() {
                None => newer,
                Some(older) => older.and(newer),
            });
        }
        let passed = self.passed.take_if(|passed| passed.wanted)?;
        self.change = Some(UnderWay::Advance {
            events: passed.events,
            bytes: passed.bytes,
        });
        self.advanced_at = now;
        Some(Change::Advance {
            up_to: passed.up_to,
            finished: passed.finished,
        })
    }

    /// Numbers so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
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
        self.stop_behind = Some(self.highest_sent.map_or(0, |ticket| ticket + 1));
    }

    /// After [`stop`](Self::stop): nothing is in flight and all progress is stored, or the destination
    /// is away so that no more can come of waiting.
    pub fn is_stopped(&mut self, now: Moment) -> bool {
        let away = self.lane != LaneState::Open || self.breaker.state(now) != BreakerState::Closed;
        let sent = self.in_flight == 0 && (away || !self.has_unsent(now));
        sent && self.change.is_none()
            && self.main.done_prefix() == 0
            && self.side.is_stored()
            && !self.retries.has_settlements()
            && self.passed.as_ref().is_none_or(|passed| !passed.wanted)
    }

    /// Whether everything that was visible when this claim was opened is accepted, parked, or blocked
    /// behind a parked event, and that is stored.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.drain_target
            .is_some_and(|target| self.stored >= target)
            && self.due_seen
            && self.side.is_idle()
            && self.retries.is_idle()
            && self.change.is_none()
    }

    /// Whether there is nothing to do: the last read brought all that there was, and nothing that was
    /// read waits for the destination or for the store.
    pub fn is_idle(&mut self) -> bool {
        let blocked = &self.blocked;
        self.caught_up
            && self.main.is_done_but_for(|event| blocked.has(event))
            && self.side.is_idle()
            && self.retries.is_idle()
            && self.change.is_none()
    }

    /// When something is due by itself, later than `now`; the runner wakes then at the latest. What is
    /// due already and was not done waits for an answer.
    pub fn next_wake(&mut self, now: Moment) -> Option<Moment> {
        let advance = (self.main.done_prefix() > 0 || self.passed.is_some())
            .then(|| self.advanced_at.after(self.limits.advance_every));
        let probe = match self.breaker.state(now) {
            BreakerState::Open { until } => Some(until),
            _ => None,
        };
        let dues = [Some(self.due_at), Some(self.pacer.next()), advance, probe];
        let lane = (self.lane == LaneState::None).then_some(self.lane_not_before);
        dues.into_iter()
            .chain([lane, self.throttled.not_before()])
            .flatten()
            .filter(|&due| due > now)
            .min()
    }

    fn fences_exactly(&self) -> bool {
        self.info.fence == FenceKind::Exact
    }
}

fn is_one_of(keys: &HashSet<String>, event: &crate::StoredEvent) -> bool {
    !keys.is_empty() && event.key().is_some_and(|key| keys.contains(key))
}
