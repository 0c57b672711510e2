//! Batches for the lane: which events, and how many.

use std::collections::HashSet;

use super::{
    Pipeline,
    breaker::BreakerState,
    evidence::FAILS_ALONE_MAX,
    retries::{Retries, Sent},
    side::has_key,
    ticket::{Group, Ticket},
    waiting::{Of, Waiter, Waiting},
    window::Window,
};
use crate::{
    AfterFailure, Moment, Outcome, Record, Rejection, RouteDecision, Router, Settlement,
    StoredEvent, Verdict,
    rule::{Rule, left_out},
};

/// A probe of a destination that was away, as long as no event is suspect. Beside suspects it is
/// one event: its failure is not another's, and the window holds enough of them until the one at
/// fault is found.
pub(super) const PROBE_EVENTS: usize = 10;
/// Of these, parked events at the most: a probe of a broken destination must reach others.
const PROBE_RETRIES: usize = 3;
/// So many of the others are kept for a suspect: as many answers as show it to be at fault, and one
/// more, since an answer may come between two trials of others.
const WITNESSES: usize = FAILS_ALONE_MAX as usize + 1;
/// Events in flight at a destination that refuses everything.
const REFUSED_AT_ONCE: usize = 100;

/// A batch that is being gathered.
struct Gathering {
    /// Its number.
    number: u64,
    records: Vec<Record>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    /// Of the records, those that may have been delivered before.
    repeated: u64,
    /// In a trial: the suspects in it. A second event of one would hide which of them is at fault.
    on_trial: Option<HashSet<Waiter>>,
}

impl Gathering {
    /// Whether an event of this size still fits; a single larger one goes alone.
    fn fits(&self, bytes: usize) -> bool {
        self.records.len() < self.events_max
            && (self.records.is_empty() || self.bytes + bytes <= self.bytes_max)
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn tries(&self, event: &StoredEvent) -> bool {
        let on_trial = self.on_trial.as_ref();
        on_trial.is_some_and(|of| of.contains(&Waiter::of(event)))
    }

    fn push(&mut self, record: Record, bytes: usize) {
        self.bytes += bytes;
        if let Some(of) = &mut self.on_trial {
            of.insert(Waiter::of(record.event()));
        }
        self.records.push(record);
    }
}

impl Pipeline {
    /// The next batch for the lane; none when nothing may be sent now. The caller has tested that
    /// the local deadline leaves time to publish.
    pub fn take_batch(&mut self, now: Moment) -> Option<Vec<Record>> {
        let state = self.breaker.state(now);
        let is_open = matches!(state, BreakerState::Open { .. });
        if !self.lane.is_open() || self.paused || is_open {
            return None;
        }
        let probing = state == BreakerState::HalfOpen;
        let has_suspects = self.waiting.has_suspects();
        let is_busy = self.lane.in_flight() > 0;
        if !is_busy {
            self.trials.nothing_in_flight();
        } else if probing || self.trials.is_under_way() {
            return None;
        }
        if !has_suspects {
            self.trials.end();
        }
        let on_trial = has_suspects && !probing && self.suspects_have_their_turn(now);
        if on_trial && is_busy {
            return None;
        }
        if probing {
            let events = if has_suspects { 1 } else { PROBE_EVENTS };
            self.lane.limit(events);
        }
        if self.waiting.places_turn(now) {
            self.send_passed_over();
        }
        let mut batch = self.gathering();
        if on_trial {
            self.gather_suspects(&mut batch, now);
        }
        if batch.is_empty() {
            self.gather_others(&mut batch, probing, now);
        }
        if batch.is_empty() && self.waiting.has_refused() {
            // An answer about one of them shows that the destination is there.
            self.gather_refused(&mut batch, now);
        }
        if batch.is_empty() && self.lane.in_flight() == 0 && self.trials.may_begin(now) {
            self.gather_suspects(&mut batch, now);
        }
        if batch.is_empty() {
            return None;
        }
        self.reports.counts.repeated += batch.repeated;
        self.lane.submitted(batch.records.len(), now);
        if left_out(Rule::CursorWaitsForAnswers) {
            self.take_for_accepted(&batch.records, now);
        }
        Some(batch.records)
    }

    fn gathering(&self) -> Gathering {
        let (limits, info) = (&self.limits, &self.info);
        let in_flight_max = match self.refusals.is_broken() {
            true => info.in_flight_events_max.min(REFUSED_AT_ONCE),
            false => info.in_flight_events_max,
        };
        let room = self.lane.room(in_flight_max);
        Gathering {
            number: self.lane.next_batch(),
            records: Vec::new(),
            bytes: 0,
            events_max: limits.batch_events.min(info.batch_events_max).min(room),
            repeated: 0,
            on_trial: None,
            bytes_max: limits.batch_bytes.min(info.batch_bytes_max),
        }
    }

    /// Gathers the events of these that are ready.
    fn gather(&mut self, batch: &mut Gathering, retries_max: usize, of: Of) {
        if self.stop_behind.is_none() {
            self.gather_retries(batch, retries_max, of);
            self.gather_side(batch, of);
        }
        self.gather_main(batch, of);
    }

    /// All but suspects. Beside these they begin at another part of the window after each failure:
    /// events that end lanes may stand in a row.
    fn gather_others(&mut self, batch: &mut Gathering, probing: bool, now: Moment) {
        let beside_suspects = self.waiting.has_suspects();
        let events_max = batch.events_max;
        if beside_suspects {
            let begin = self.trials.others_begin();
            if let Some(failed) = begin {
                self.send_passed_over();
                self.main.pass_over_part(failed);
            }
            if !probing {
                let spare = self.spare_witnesses(events_max, now);
                batch.events_max = spare.max(begin.is_some().into()).min(events_max);
            }
        }
        let retries_max = match (probing, beside_suspects) {
            (false, _) => usize::MAX,
            (true, false) => PROBE_RETRIES,
            // Only where nothing else is left: a single one must reach others, too.
            (true, true) => 0,
        };
        self.gather(batch, retries_max, Of::Others);
        if batch.is_empty() && self.main.has_passed_part() {
            self.send_passed_over();
            self.gather(batch, retries_max, Of::Others);
        }
        if probing && batch.is_empty() {
            self.gather(batch, usize::MAX, Of::Others);
        }
        batch.events_max = events_max;
    }

    /// How many events, as far as is known not at fault, may be sent beyond those that are kept;
    /// counted up to so many.
    fn spare_witnesses(&mut self, most: usize, now: Moment) -> usize {
        if !self.trials.keep_witnesses(now) {
            return usize::MAX;
        }
        let most = most.saturating_add(WITNESSES);
        self.witnesses(most).saturating_sub(WITNESSES)
    }

    /// How many events in memory are, as far as is known, not at fault; counted up to so many of
    /// suspects, and of others.
    pub(super) fn witnesses(&mut self, most: usize) -> usize {
        let Self {
            main,
            waiting,
            router,
            ..
        } = self;
        let is_turn = |event: &StoredEvent| {
            !waiting.is_parked(event) && waiting.has_turn(Of::Others, event, router)
        };
        waiting.untried_suspects(most) + main.ready_up_to(most, is_turn)
    }

    /// Where only witnesses are left, the answer of one is enough for a trial.
    fn suspects_have_their_turn(&mut self, now: Moment) -> bool {
        if self.trials.is_answered(self.answers()) && self.spare_witnesses(1, now) == 0 {
            self.trials.others_have_had_their_turn(now);
        }
        self.trials.have_their_turn(now)
    }

    /// The next suspects of which an event is ready, and nothing else.
    fn gather_suspects(&mut self, batch: &mut Gathering, now: Moment) {
        if !self.waiting.has_suspects() {
            return;
        }
        let spare = self.spare_witnesses(batch.events_max, now);
        let at_once = self
            .trials
            .at_once()
            .min(batch.events_max)
            .min(spare.max(1));
        if at_once == 0 {
            return;
        }
        let in_doubt = spare == 0 && self.trials.is_answered(self.answers());
        let others_max = std::mem::replace(&mut batch.events_max, at_once);
        batch.on_trial = Some(HashSet::new());
        let next = self
            .waiting
            .next_suspects(self.trials.last(), at_once, in_doubt);
        if let Some((first, last)) = next {
            self.gather_passed_over(batch, usize::MAX, Of::Suspects(first, last));
            if !batch.is_empty() {
                return self.trials.sent(batch.records.len(), next, now);
            }
            self.waiting.clear_suspects((first, last));
        }
        // Of many nothing may be ready. All are looked through once.
        batch.events_max = 1;
        if let Some((first, last)) = self.waiting.all_suspects() {
            self.gather_passed_over(batch, 1, Of::Suspects(first, last));
            if !batch.is_empty() {
                return self.trials.sent(batch.records.len(), None, now);
            }
            self.waiting.clear_suspects((first, last));
        }
        batch.on_trial = None;
        batch.events_max = others_max;
    }

    /// Events that were refused, once nothing else is ready: those that may be parked now, and from
    /// time to time a few of all.
    fn gather_refused(&mut self, batch: &mut Gathering, now: Moment) {
        let may_send = batch.events_max;
        if may_send == 0 {
            return;
        }
        let room = self.refusals.room(now);
        if room > 0 && self.may_block_more() {
            batch.events_max = may_send.min(room);
            self.gather_passed_over(batch, 1, Of::Refused);
            if batch.is_empty() {
                self.refusals.look_later(now);
            }
        }
        if !batch.is_empty() || !self.refusals.probe(now) {
            return;
        }
        batch.events_max = may_send.min(PROBE_EVENTS);
        self.gather_passed_over(batch, 1, Of::Probes);
        if batch.is_empty() {
            // All had their turn.
            self.waiting.forget_probes();
            self.gather_passed_over(batch, 1, Of::Probes);
        }
        if batch.is_empty() {
            // Nothing is left of them: they were answered otherwise.
            self.waiting.forget_refusals();
        }
    }

    fn gather_passed_over(&mut self, batch: &mut Gathering, retries_max: usize, of: Of) {
        self.send_passed_over();
        self.gather(batch, retries_max, of);
        // All that were passed over.
        self.send_passed_over();
    }

    pub(super) fn send_passed_over(&mut self) {
        self.main.send_passed_over();
        self.side.window().send_passed_over();
    }

    fn take_for_accepted(&mut self, records: &[Record], now: Moment) {
        let verdict = |record: &Record| Verdict {
            ticket: record.ticket(),
            outcome: Outcome::accepted(),
        };
        self.verdicts(records.iter().map(verdict).collect(), now, 0.5);
    }

    fn gather_retries(&mut self, batch: &mut Gathering, limit: usize, of: Of) {
        while batch.fits(0) && batch.records.len() < limit {
            let Self {
                retries,
                waiting,
                router,
                ..
            } = self;
            let is_turn = |event: &StoredEvent| waiting.has_turn(of, event, router);
            let Some((ticket, copy)) = Retries::take(retries, batch.number, is_turn) else {
                return;
            };
            let event = copy.event.clone();
            if copy.never_tried && !matches!(self.router.decide(&event), RouteDecision::Take(_)) {
                self.not_ours(ticket);
                continue;
            }
            let bytes = event.footprint();
            match self.router.record(ticket.name(), event) {
                Ok(record) => {
                    self.waiting.sends(record.event(), ticket, &self.router);
                    batch.push(record, bytes);
                }
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
    fn not_ours(&mut self, ticket: Ticket) {
        if let Some(Sent { retry, .. }) = self.retries.answered(ticket) {
            let settlement = Settlement::Failed {
                kind: "not_routed",
                reason: "no route takes it to this destination".to_owned(),
                next: AfterFailure::Skip,
            };
            self.retries.settle(ticket, retry.copy.id, settlement);
        }
    }

    fn gather_main(&mut self, batch: &mut Gathering, of: Of) {
        if let Some(limit) = self.stop_behind {
            self.main.drop_ready_from(limit);
        }
        loop {
            let Self {
                main,
                router,
                waiting,
                lane,
                ..
            } = self;
            let turn = |waiting: &Waiting, event: &StoredEvent| {
                if waiting.is_parked(event) {
                    Turn::Pass
                } else if !waiting.has_turn(of, event, router) {
                    Turn::Wait
                } else {
                    Turn::Send
                }
            };
            let sent = |number| lane.sends(number);
            let to = (&*router, waiting);
            let Some((number, rejection)) = gather(Group::Main, main, batch, to, turn, sent) else {
                return;
            };
            self.fail(Group::Main.ticket(number), rejection);
        }
    }

    fn gather_side(&mut self, batch: &mut Gathering, of: Of) {
        loop {
            let Self {
                side,
                router,
                waiting,
                ..
            } = self;
            let (window, keys) = side.gathered();
            let turn = |waiting: &Waiting, event: &StoredEvent| {
                if !has_key(keys, event) {
                    Turn::Pass
                } else if !waiting.has_turn(of, event, router) {
                    Turn::Wait
                } else {
                    Turn::Send
                }
            };
            let to = (&*router, waiting);
            let Some((number, rejection)) = gather(Group::Side, window, batch, to, turn, |_| {})
            else {
                return;
            };
            self.fail(Group::Side.ticket(number), rejection);
        }
    }
}

/// The fate of a ready event in this gathering.
enum Turn {
    Send,
    /// The group leaves it out: the other one sends it, or a later side read. Its key is parked, or
    /// has left this one.
    Pass,
    /// Others go first.
    Wait,
}

/// Moves ready events of a window into the batch, in order, while they fit. Ends early at an event
/// that cannot be made into a record, and answers it.
fn gather(
    group: Group,
    window: &mut Window,
    batch: &mut Gathering,
    (router, waiting): (&Router, &mut Waiting),
    turn: impl Fn(&Waiting, &StoredEvent) -> Turn,
    mut sent: impl FnMut(u64),
) -> Option<(u64, Rejection)> {
    while let Some((number, entry)) = window.peek_ready() {
        match turn(waiting, &entry.event) {
            Turn::Pass => {
                window.pop_ready();
                window.finish(number, false);
                continue;
            }
            Turn::Send if batch.tries(&entry.event) => {
                window.pass_over();
                continue;
            }
            Turn::Send => {}
            Turn::Wait => {
                window.pass_over();
                continue;
            }
        }
        let bytes = entry.bytes();
        if !batch.fits(bytes) {
            break;
        }
        let ticket = group.ticket(number);
        let record = router.record(ticket.name(), entry.event.clone());
        window.pop_ready();
        match record {
            Ok(record) => {
                waiting.sends(record.event(), ticket, router);
                batch.push(record, bytes);
                batch.repeated += u64::from(window.sent(number, batch.number));
                sent(number);
            }
            Err(rejection) => return Some((number, rejection)),
        }
    }
    None
}
