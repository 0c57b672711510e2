//! What may be handed to the lane, and the lane's life.

use std::collections::HashSet;

use super::{
    LaneState, Pipeline, RETRY, SIDE,
    blocked::Blocked,
    is_one_of,
    turns::{Of, Turns},
};
use crate::{
    BreakerState, Moment, Outcome, Record, Rejection, RouteDecision, Router, Settlement, SinkError,
    StoredEvent, Verdict,
    retries::{Retries, Sent},
    rule::{Rule, left_out},
    side::Side,
    suspects::turn_name,
    window::Window,
};

/// A probe of a destination that was away, as long as no event is suspect and no topic held back.
/// Beside suspects it is one event: its failure is not another's, and the window holds enough of
/// them until the one at fault is found. Beside topics that are held back each event of a probe may
/// be a repeat somewhere.
const PROBE_EVENTS: usize = 10;
/// Of these, parked events at the most: a probe of a broken destination must reach others.
const PROBE_RETRIES: usize = 3;

/// A batch that is being gathered.
struct Gathering {
    records: Vec<Record>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    /// Of the records, those that may have been delivered before.
    repeated: u64,
}

impl Gathering {
    /// Whether an event of this size still fits; a single larger one goes alone.
    fn fits(&self, bytes: usize) -> bool {
        self.records.len() < self.events_max
            && (self.records.is_empty() || self.bytes + bytes <= self.bytes_max)
    }

    fn push(&mut self, record: Record, bytes: usize) {
        self.bytes += bytes;
        self.records.push(record);
    }
}

impl Pipeline {
    /// The next batch for the lane; none when nothing may be sent now. The caller has tested that the
    /// local deadline leaves time to publish.
    pub fn take_batch(&mut self, now: Moment) -> Option<Vec<Record>> {
        let state = self.breaker.state(now);
        if self.lane != LaneState::Open || self.paused || matches!(state, BreakerState::Open { .. })
        {
            return None;
        }
        let probing = state == BreakerState::HalfOpen;
        // A suspect is tried with nothing else in flight.
        let by_turns = !self.suspects.is_empty();
        let is_alone = by_turns || !self.throttled.is_empty();
        if (probing || by_turns) && self.in_flight > 0 {
            return None;
        }
        if probing {
            self.ramp = Some(if is_alone { 1 } else { PROBE_EVENTS });
        }
        let number = self.batches.next();
        let mut batch = self.gathering();
        if probing || !by_turns {
            let retries_max = match (probing, is_alone) {
                (false, _) => usize::MAX,
                (true, false) => PROBE_RETRIES,
                // Only where nothing else is left: a single one must reach others, too.
                (true, true) => 0,
            };
            self.gather(&mut batch, number, retries_max, Of::Others);
            if probing && batch.records.is_empty() {
                self.gather(&mut batch, number, usize::MAX, Of::Others);
            }
        }
        if by_turns && batch.records.is_empty() {
            self.gather_a_suspect(&mut batch, number);
            if batch.records.is_empty() {
                return self.take_batch(now);
            }
        }
        // As long as others flow, they are not to stand still each time that they are all sent.
        let may_try = probing || self.throttled.not_before().is_some_and(|at| at <= now);
        if may_try && self.in_flight == 0 && batch.records.is_empty() {
            self.gather_throttled(&mut batch, number);
        }
        if batch.records.is_empty() {
            if self.probed.is_empty() {
                return None;
            }
            // All others had their turn.
            self.probed.clear();
            self.ramp = Some(1);
            self.send_passed_over();
            return self.take_batch(now);
        }
        self.counts.repeated += batch.repeated;
        self.in_flight += batch.records.len();
        self.batches.begin(now, batch.records.len());
        if left_out(Rule::CursorWaitsForAnswers) {
            self.take_for_accepted(&batch.records, now);
        }
        Some(batch.records)
    }

    fn gathering(&self) -> Gathering {
        let in_flight_max = self.info.in_flight_events_max;
        let room = in_flight_max
            .min(self.ramp.unwrap_or(in_flight_max))
            .saturating_sub(self.in_flight);
        Gathering {
            records: Vec::new(),
            bytes: 0,
            events_max: self
                .limits
                .batch_events
                .min(self.info.batch_events_max)
                .min(room),
            repeated: 0,
            bytes_max: self.limits.batch_bytes.min(self.info.batch_bytes_max),
        }
    }

    /// Gathers the events of these that are ready.
    fn gather(&mut self, batch: &mut Gathering, number: u64, retries_max: usize, of: Of) {
        if self.stop_behind.is_none() {
            self.gather_retries(batch, number, retries_max, of);
            self.gather_group(Group::Side, batch, number, of);
        }
        self.gather_main(batch, number, of);
    }

    pub(super) fn turns(&self) -> Turns<'_> {
        Turns {
            suspects: &self.suspects,
            throttled: &self.throttled,
            router: &self.router,
            order: self.info.key_order,
        }
    }

    /// The first suspect of which an event is ready: that event and nothing else. When there is none, nobody is
    /// suspect any more.
    fn gather_a_suspect(&mut self, batch: &mut Gathering, number: u64) {
        batch.events_max = 1;
        self.send_passed_over();
        while let Some(suspect) = self.suspects.first() {
            self.gather(batch, number, 1, Of::Suspect(suspect));
            // All that were passed over.
            self.send_passed_over();
            if !batch.records.is_empty() {
                return;
            }
            self.suspects.remove_name(suspect);
        }
    }

    /// One event of the first topic that is held back and has one, each time another event. A topic
    /// without any is held back no longer.
    fn gather_throttled(&mut self, batch: &mut Gathering, number: u64) {
        self.send_passed_over();
        while let Some(topic) = self.throttled.first() {
            batch.events_max = 1;
            self.gather(batch, number, 1, Of::Throttled(topic));
            self.send_passed_over();
            if !batch.records.is_empty() {
                self.ramp = Some(1);
                return;
            }
            if !self.throttled.begin_again() {
                self.throttled.remove(topic);
            }
        }
    }

    pub(super) fn send_passed_over(&mut self) {
        self.main.send_passed_over();
        self.side.window.send_passed_over();
    }

    fn take_for_accepted(&mut self, records: &[Record], now: Moment) {
        let verdict = |record: &Record| Verdict {
            ticket: record.ticket(),
            outcome: Outcome::Accepted(None),
        };
        self.verdicts(records.iter().map(verdict).collect(), now, 0.5);
    }

    fn gather_retries(&mut self, batch: &mut Gathering, number: u64, limit: usize, of: Of) {
        while batch.fits(0) && batch.records.len() < limit {
            let Self {
                retries,
                suspects,
                throttled,
                router,
                ..
            } = self;
            let order = self.info.key_order;
            let turns = Turns {
                suspects,
                throttled,
                router,
                order,
            };
            let is_turn = |event: &StoredEvent| turns.has(of, event);
            let Some((ticket, copy)) = Retries::take(retries, number, is_turn) else {
                return;
            };
            let event = copy.event.clone();
            // A follower that retention set aside was never looked at.
            let never_tried = copy.attempts == 0;
            if never_tried && !matches!(self.router.decide(&event), RouteDecision::Take(_)) {
                self.not_ours(ticket);
                continue;
            }
            let bytes = event.footprint();
            match self.router.record(ticket, event) {
                Ok(record) => batch.push(record, bytes),
                Err(rejection) => {
                    if let Some(Sent { retry, .. }) = self.retries.answered(ticket) {
                        // Fails at once and alike everywhere: there is no herd to spread.
                        self.retry_rejected(ticket, &retry.copy, rejection, 0.5);
                    }
                }
            }
        }
    }

    /// No route takes this copy to the destination: its key goes on without it.
    fn not_ours(&mut self, ticket: u64) {
        if let Some(Sent { retry, .. }) = self.retries.answered(ticket) {
            let settlement = Settlement::Failed {
                kind: "not_routed",
                reason: "no route takes it to this destination".to_owned(),
                retry_in: None,
                skip: true,
            };
            self.retries.settle(ticket, retry.copy.id, settlement);
        }
    }

    fn gather_main(&mut self, batch: &mut Gathering, number: u64, of: Of) {
        if let Some(limit) = self.stop_behind {
            self.main.drop_ready_from(limit);
        }
        let before = batch.records.len();
        self.gather_group(Group::Main, batch, number, of);
        for record in &batch.records[before..] {
            self.highest_sent = self.highest_sent.max(Some(record.ticket()));
        }
    }

    fn gather_group(&mut self, group: Group, batch: &mut Gathering, number: u64, of: Of) {
        let order = self.info.key_order;
        loop {
            let Self {
                main,
                side: Side { window, keys, .. },
                router,
                blocked,
                probed,
                suspects,
                throttled,
                ..
            } = self;
            let turns = Turns {
                suspects,
                throttled,
                router,
                order,
            };
            let window = match group {
                Group::Main => main,
                Group::Side => window,
            };
            let failed = gather(window, batch, number, router, |event| {
                if group.leaves_out(event, blocked, keys) {
                    Turn::Pass
                } else if !turns.has(of, event) || was_probed(probed, event) {
                    Turn::Wait
                } else {
                    Turn::Send
                }
            });
            let Some((ticket, rejection)) = failed else {
                break;
            };
            self.fail(ticket, rejection);
        }
    }

    /// The destination accepted events: more may follow than before, up to the sink's own limit.
    /// Doubling from a probe on spares a destination that has just come back.
    pub(super) fn ramp_up(&mut self, accepted: u64) {
        let accepted = usize::try_from(accepted).unwrap_or(usize::MAX);
        self.ramp = self
            .ramp
            .map(|ramp| ramp.saturating_add(accepted))
            .filter(|&ramp| ramp < self.info.in_flight_events_max);
    }

    /// A broken destination refused this event as a probe: the next ones are others.
    pub(super) fn had_its_turn(&mut self, ticket: u64) {
        let name = self
            .window_of(ticket)
            .and_then(|window| window.entry_mut(ticket))
            .map(|entry| turn_name(&entry.event));
        self.probed.extend(name);
    }

    pub(super) fn has_unsent(&mut self, now: Moment) -> bool {
        let may = self.stop_behind.is_none() || self.main.has_ready();
        may && !matches!(self.breaker.state(now), BreakerState::Open { .. })
            && self
                .main
                .peek_ready()
                .is_some_and(|(ticket, _)| self.stop_behind.is_none_or(|limit| ticket < limit))
    }

    /// When the oldest batch without an answer was submitted; its records are late at a publish
    /// time-out after that.
    #[must_use]
    pub fn oldest_in_flight(&self) -> Option<Moment> {
        self.batches.oldest()
    }

    /// Records handed to the lane and not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the runner is to open a lane now.
    pub fn wants_lane(&mut self, now: Moment) -> bool {
        self.lane == LaneState::None
            && !self.paused
            && self.lane_not_before <= now
            && !matches!(self.breaker.state(now), BreakerState::Open { .. })
    }

    /// Bytes of a lane that an earlier claim aborted may still arrive: none is opened before `until`.
    pub fn settle_until(&mut self, until: Moment) {
        self.lane_not_before = self.lane_not_before.max(until);
    }

    /// A lane was opened.
    pub fn lane_opened(&mut self) {
        self.reached = true;
        self.read_before_lane = self.counts.read;
        (self.told_caught_up, self.none_is_due) = (false, false);
        self.lane = LaneState::Open;
    }

    /// No lane could be opened.
    pub fn lane_refused(&mut self, error: &SinkError, now: Moment, random: f64) {
        self.counts.unavailable += 1;
        self.breaker
            .unavailable(error.to_string(), None, now, random);
    }

    /// Whether the runner is to abort the lane and then call [`lane_ended`](Self::lane_ended).
    #[must_use]
    pub fn wants_abort(&self) -> bool {
        self.lane == LaneState::Failed
    }

    /// The lane has to go: the right to send has ended.
    pub fn fail_lane(&mut self, reason: &str, now: Moment, random: f64) {
        if self.lane == LaneState::Open {
            self.lane = LaneState::Failed;
            self.counts.unavailable += 1;
            self.breaker
                .unavailable(reason.to_owned(), None, now, random);
        }
    }

    /// The lane was aborted. Everything without an answer will be sent again, after the settle time
    /// unless the sink fences exactly.
    pub fn lane_ended(&mut self, now: Moment) {
        self.lane = LaneState::None;
        self.in_flight = 0;
        self.batches.clear();
        self.main.unsend_all();
        self.side.window.unsend_all();
        self.retries.unsend_all();
        if !self.fences_exactly() && !left_out(Rule::AbortEndsConnection) {
            self.lane_not_before = now.after(self.limits.settle);
        }
    }

    pub(super) fn window_of(&mut self, ticket: u64) -> Option<&mut Window> {
        match ticket {
            RETRY.. => None,
            SIDE.. => Some(&mut self.side.window),
            _ => Some(&mut self.main),
        }
    }
}

fn was_probed(probed: &HashSet<u64>, event: &StoredEvent) -> bool {
    !probed.is_empty() && probed.contains(&turn_name(event))
}

/// The two that send events for the first time.
#[derive(Clone, Copy)]
pub(super) enum Group {
    Main,
    /// The side read.
    Side,
}

impl Group {
    pub(super) fn of(ticket: u64) -> Self {
        if ticket < SIDE {
            Self::Main
        } else {
            Self::Side
        }
    }

    /// True: the other one sends it, or a later side read. Its key is blocked, or has left this one.
    pub(super) fn leaves_out(
        self,
        event: &StoredEvent,
        blocked: &Blocked,
        keys: &HashSet<String>,
    ) -> bool {
        match self {
            Self::Main => blocked.has(event),
            Self::Side => !is_one_of(keys, event),
        }
    }
}

/// What becomes of a ready event.
enum Turn {
    Send,
    /// The group leaves it out.
    Pass,
    /// Others go first.
    Wait,
}

/// Moves ready events of a window into the batch, in order, while they fit. Ends early at an event
/// that cannot be made into a record, and answers it.
fn gather(
    window: &mut Window,
    batch: &mut Gathering,
    number: u64,
    router: &Router,
    turn: impl Fn(&StoredEvent) -> Turn,
) -> Option<(u64, Rejection)> {
    while let Some((ticket, entry)) = window.peek_ready() {
        match turn(&entry.event) {
            Turn::Send => {}
            Turn::Pass => {
                window.pop_ready();
                window.finish(ticket, false);
                continue;
            }
            Turn::Wait => {
                window.pop_ready();
                continue;
            }
        }
        let bytes = entry.bytes();
        if !batch.fits(bytes) {
            break;
        }
        let record = router.record(ticket, entry.event.clone());
        window.pop_ready();
        match record {
            Ok(record) => {
                batch.push(record, bytes);
                batch.repeated += u64::from(window.sent(ticket, number));
            }
            Err(rejection) => return Some((ticket, rejection)),
        }
    }
    None
}
