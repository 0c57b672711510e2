//! Verdicts: the consequences of each.

use std::time::Duration;

use super::{
    Pipeline,
    evidence::FAILS_ALONE_MAX,
    retries::{Retry, Sent},
    sending::PROBE_EVENTS,
    ticket::{Group, Ticket},
    trials::{Failed, OTHERS_MIN, Tells},
    window::State,
};
use crate::{
    Cause, Moment, Outcome, ParkedCopy, Postponement, Rejection, RejectionKind, Settlement,
    StoredEvent, Unavailability, Verdict,
    rule::{Rule, left_out},
};

/// Whether the destination may have taken an event that ended so.
fn is_fate_unknown(cause: Cause) -> bool {
    matches!(cause, Cause::Connection | Cause::Unknown | Cause::LaneEnded)
}

/// Whether such a failure may be the event's own fault. The rest of a lane that ended, and a wish
/// to go slower, are no event's.
fn is_evidence(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::LaneEnded | Cause::Throttled | Cause::BehindFailure
    )
}

impl Pipeline {
    /// Verdicts of the lane.
    pub fn verdicts(&mut self, verdicts: Vec<Verdict>, now: Moment, random: f64) {
        let (mut accepted, mut duplicates) = (0, 0);
        for verdict in &verdicts {
            if let Outcome::Accepted(acceptance) = &verdict.outcome {
                accepted += 1;
                duplicates += u64::from(acceptance.is_duplicate);
            }
        }
        if accepted > 0 {
            self.reports.counts.accepted += accepted;
            self.reports.counts.duplicates += duplicates;
            self.breaker.accepted();
            if self.refusals.accepted(accepted, now) {
                self.send_passed_over();
            }
            self.lane.ramp_up(accepted, self.info.in_flight_events_max);
        }
        for Verdict { ticket, outcome } in verdicts {
            let Some(ticket) = Ticket::named(ticket) else {
                continue;
            };
            let took = matches!(outcome, Outcome::Accepted(_));
            if took
                && self
                    .waiting
                    .place_took(ticket, self.info.in_flight_events_max, now)
            {
                self.send_passed_over();
            }
            if !matches!(outcome, Outcome::Unavailable(_)) {
                self.clear_of_suspicion(ticket);
            }
            match ticket.group() {
                Group::Main | Group::Side => self.window_verdict(ticket, outcome, now, random),
                Group::Retries => self.retry_verdict(ticket, outcome, now, random),
            }
        }
    }

    /// The destination answered about this event.
    fn clear_of_suspicion(&mut self, ticket: Ticket) {
        if !self.waiting.has_suspects() {
            return;
        }
        let event = match self.window_of(ticket.group()) {
            Some(window) => window.entry_mut(ticket.number()).map(|entry| &entry.event),
            None => self.retries.sent(ticket),
        };
        if let Some(event) = event.cloned() {
            self.waiting.clear(&event);
        }
    }

    /// The event's place refused it for now. Others flow, unless too many places do.
    fn put_off(
        &mut self,
        event: &StoredEvent,
        ticket: Ticket,
        why: &Postponement,
        now: Moment,
        random: f64,
    ) {
        self.reports.counts.later += 1;
        let Self {
            waiting,
            router,
            limits,
            ..
        } = self;
        if !waiting.put_off((event, ticket), why, router, limits.probe, now, random) {
            let reason = format!("too many topics take nothing: {}", why.reason);
            self.breaker.unavailable(reason, why.wait, now, random);
        }
    }

    fn window_verdict(&mut self, ticket: Ticket, outcome: Outcome, now: Moment, random: f64) {
        let number = ticket.number();
        let is_news = self.waiting.looks_for_taken();
        let Some(window) = self.window_of(ticket.group()) else {
            return;
        };
        let Some(entry) = window.entry_mut(number) else {
            return;
        };
        let State::Sent { batch } = entry.state else {
            // A verdict of a lane that was aborted since: its event is sent again.
            return;
        };
        match outcome {
            Outcome::Accepted(_) => {
                let inserted_at = entry.event.inserted_at();
                let event = is_news.then(|| entry.event.clone());
                window.finish(number, true);
                self.reports.accepted(inserted_at);
                if let Some(event) = event {
                    self.took(&event);
                }
            }
            Outcome::Rejected(rejection) => self.window_rejected(ticket, *rejection, now),
            Outcome::Later(why) => {
                self.breaker.answered();
                self.window_later(ticket, *why, now, random);
            }
            Outcome::Unavailable(why) if why.cause == Cause::BehindFailure => {
                window.unsend(number, false);
            }
            Outcome::Unavailable(why) => self.window_unavailable(ticket, &why, now, random),
        }
        self.waiting.place_answered(ticket);
        self.lane.answered(batch);
    }

    fn window_later(&mut self, ticket: Ticket, why: Postponement, now: Moment, random: f64) {
        let window = self.window_of(ticket.group());
        let Some(entry) = window.and_then(|window| window.entry_mut(ticket.number())) else {
            return;
        };
        let event = entry.event.clone();
        if self.may_park(ticket.group())
            && let Some(rejection) = self.silent_alone(&event, &why)
        {
            return self.fail(ticket, rejection);
        }
        if let Some(window) = self.window_of(ticket.group()) {
            window.unsend(ticket.number(), why.is_silent);
        }
        self.put_off(&event, ticket, &why, now, random);
    }

    /// This event stayed unanswered, and others of its place did not: it leaves the window, and is
    /// at fault if it does so time and again.
    fn silent_alone(&mut self, event: &StoredEvent, why: &Postponement) -> Option<Rejection> {
        if !why.is_silent || left_out(Rule::SilentEventGoesAlone) {
            return None;
        }
        let silences = self.waiting.silent(event, &self.router)?;
        if silences >= FAILS_ALONE_MAX {
            return Some(self.fails_alone(event, &why.reason));
        }
        self.reports.counts.later += 1;
        Some(Rejection {
            kind: RejectionKind::NotNow,
            reason: why.reason.clone(),
        })
    }

    fn window_rejected(&mut self, ticket: Ticket, rejection: Rejection, now: Moment) {
        let (group, number) = (ticket.group(), ticket.number());
        let window = self.window_of(group);
        let entry = window.and_then(|window| window.entry_mut(number));
        let Some(event) = entry.map(|entry| entry.event.clone()) else {
            return;
        };
        self.refused(&event, &rejection, now);
        if !self.may_park(group) {
            let keys = self.limits.blocked_keys_max;
            self.refusals.too_many_keys(keys, &rejection.reason);
        } else if self.refusals.park() {
            self.waiting.forget_refusal(&event);
            return self.fail(ticket, rejection);
        }
        if let Some(window) = self.window_of(group) {
            window.unsend(number, false);
        }
        self.waiting.refuse(&event);
    }

    /// Whether an event of this group may be parked. The keys of the side read are blocked already.
    fn may_park(&mut self, group: Group) -> bool {
        group == Group::Side || self.may_block_more()
    }

    /// Whether another key may be blocked.
    pub(super) fn may_block_more(&mut self) -> bool {
        self.room_for_keys() > 0
    }

    /// How many more keys may be blocked. Released ones, which wait for their join, hold no room:
    /// it may have to wait until others are parked.
    pub(super) fn room_for_keys(&mut self) -> usize {
        let parked = self.waiting.parked_keys();
        let blocked = parked.saturating_sub(self.side.released_keys()) + self.failed_events();
        match left_out(Rule::BlockedKeysAreBounded) {
            true => usize::MAX,
            false => self.limits.blocked_keys_max.saturating_sub(blocked),
        }
    }

    /// Answers of the destination that tell of an event: it is there.
    pub(super) fn answers(&self) -> u64 {
        self.reports.counts.accepted + self.refusals.total()
    }

    /// The destination refused this event for its own sake.
    fn refused(&mut self, event: &StoredEvent, rejection: &Rejection, now: Moment) {
        let Rejection { kind, reason } = rejection;
        self.reports.counts.rejected += 1;
        self.breaker.answered();
        let topic = self.router.topic_hash(event);
        self.refusals.rejected(*kind, topic, reason, now);
    }

    /// The destination accepted this event. Where it had refused it, it was mended: all others may
    /// go.
    fn took(&mut self, event: &StoredEvent) {
        self.waiting.answered(event);
        self.waiting.clear_of_doubt(event, &self.router);
        if self.waiting.was_refused(event) {
            self.refusals.mended();
            self.waiting.forget_refusals();
            self.send_passed_over();
        }
    }

    fn window_unavailable(
        &mut self,
        ticket: Ticket,
        why: &Unavailability,
        now: Moment,
        random: f64,
    ) {
        let answers = self.answers();
        let is_suspect = self.makes_suspect(why.cause);
        let is_alone = self.lane.in_flight() == 1;
        let Some(window) = self.window_of(ticket.group()) else {
            return;
        };
        let Some(entry) = window.entry_mut(ticket.number()) else {
            return;
        };
        let event = entry.event.clone();
        let failed = is_suspect.then(|| entry.evidence.failed(is_alone, answers));
        if failed == Some(None) {
            let rejection = self.fails_alone(&event, &why.reason);
            self.fail(ticket, rejection);
        } else if left_out(Rule::OutageBurnsNoAttempt) {
            let (kind, reason) = (RejectionKind::Other, why.reason.clone());
            self.fail(ticket, Rejection { kind, reason });
        } else {
            window.unsend(ticket.number(), is_fate_unknown(why.cause));
            if let Some(Some(failed)) = failed {
                self.waiting.suspect(&event, failed);
            }
        }
        self.destination_failed(why, now, random);
    }

    /// Whether an event that fails so now may be the one at fault. Events that fail behind
    /// the first of a lane may have been in the same write: a device that is nearly full takes a
    /// probe and refuses a batch, again and again, and none of the batch is at fault.
    fn makes_suspect(&self, cause: Cause) -> bool {
        self.lane.is_open() && is_evidence(cause)
    }

    /// The event is the one at fault.
    fn fails_alone(&mut self, event: &StoredEvent, reason: &str) -> Rejection {
        self.reports.counts.rejected += 1;
        self.waiting.clear(event);
        self.waiting.answered(event);
        self.waiting.forget_refusal(event);
        Rejection {
            kind: RejectionKind::FailsAlone,
            reason: format!("failed alone {FAILS_ALONE_MAX} times: {reason}"),
        }
    }

    fn destination_failed(&mut self, why: &Unavailability, now: Moment, random: f64) {
        self.reports.counts.unavailable += 1;
        if !self.lane.fail() {
            return;
        }
        if is_evidence(why.cause) {
            self.suspect_all_in_flight();
            match self.trials.lane_failed(self.answers(), now) {
                // Another lane begins slowly, as after a probe.
                Tells::ItIsThere => return self.lane.limit(PROBE_EVENTS),
                Tells::OfTheseSuspects => {
                    let reason = why.to_string();
                    return self
                        .breaker
                        .open(reason, why.wait, now.after(OTHERS_MIN), now);
                }
                Tells::Nothing => {}
            }
        }
        self.breaker
            .unavailable(why.to_string(), why.wait, now, random);
    }

    /// The first one to fail need not be the one at fault.
    fn suspect_all_in_flight(&mut self) {
        let answers = self.answers();
        let Self {
            main,
            side,
            retries,
            waiting,
            ..
        } = self;
        for entry in main.all_sent().chain(side.window().all_sent()) {
            entry.evidence.failed_among_others(answers);
            waiting.suspect(&entry.event, Failed::AmongOthers);
        }
        for retry in retries.all_sent() {
            retry.evidence.failed_among_others(answers);
            waiting.suspect(&retry.copy.event, Failed::AmongOthers);
        }
    }

    fn retry_verdict(&mut self, ticket: Ticket, outcome: Outcome, now: Moment, random: f64) {
        let Some(Sent { batch, retry }) = self.retries.answered(ticket) else {
            return;
        };
        match outcome {
            Outcome::Accepted(_) => {
                self.took(&retry.copy.event);
                self.waiting.took_copy(&retry.copy.event, &self.router, now);
                if retry.copy.event.key().is_none() {
                    self.put_off_alone = self.put_off_alone.saturating_sub(1);
                }
                self.retries
                    .settle(ticket, retry.copy.id, Settlement::Delivered);
            }
            Outcome::Rejected(rejection) => {
                let event = &retry.copy.event;
                self.refused(event, &rejection, now);
                if self.refusals.is_broken() {
                    // Seldom: there may be as many copies as keys may be blocked.
                    let wait = self.limits.retry.delay(u32::MAX, random);
                    self.postpone(ticket, &retry.copy, rejection.reason, wait);
                } else {
                    self.retry_rejected(ticket, &retry.copy, *rejection, random);
                }
            }
            Outcome::Later(why) => {
                self.breaker.answered();
                self.retry_later(ticket, retry, &why, now, random);
            }
            Outcome::Unavailable(why) if why.cause == Cause::BehindFailure => {
                self.retries.again(retry);
            }
            Outcome::Unavailable(why) => self.retry_unavailable(ticket, retry, &why, now, random),
        }
        self.waiting.place_answered(ticket);
        self.lane.answered(batch);
    }

    fn retry_later(
        &mut self,
        ticket: Ticket,
        retry: Retry,
        why: &Postponement,
        now: Moment,
        random: f64,
    ) {
        let Some(rejection) = self.silent_alone(&retry.copy.event, why) else {
            self.put_off(&retry.copy.event, ticket, why, now, random);
            return self.retries.again(retry);
        };
        if rejection.kind == RejectionKind::NotNow {
            let wait = self.limits.retry.delay(1, random);
            self.postpone(ticket, &retry.copy, rejection.reason, wait);
        } else {
            self.retry_rejected(ticket, &retry.copy, rejection, random);
        }
    }

    /// The attempt counts as none.
    fn postpone(&mut self, ticket: Ticket, copy: &ParkedCopy, reason: String, retry_in: Duration) {
        let settlement = Settlement::Postponed {
            kind: copy.kind_when_postponed(),
            reason,
            retry_in,
        };
        self.retries.settle(ticket, copy.id, settlement);
    }

    fn retry_unavailable(
        &mut self,
        ticket: Ticket,
        mut retry: Retry,
        why: &Unavailability,
        now: Moment,
        random: f64,
    ) {
        let is_suspect = self.makes_suspect(why.cause);
        let is_alone = self.lane.in_flight() == 1;
        let answers = self.answers();
        let failed = is_suspect.then(|| retry.evidence.failed(is_alone, answers));
        if failed == Some(None) {
            let rejection = self.fails_alone(&retry.copy.event, &why.reason);
            self.retry_rejected(ticket, &retry.copy, rejection, random);
        } else {
            if let Some(Some(failed)) = failed {
                self.waiting.suspect(&retry.copy.event, failed);
            }
            self.retries.again(retry);
        }
        self.destination_failed(why, now, random);
    }

    /// An answer is late: the lane has to go, as if it had failed over the first event that waits
    /// for one.
    pub fn answer_is_late(&mut self, reason: String, now: Moment, random: f64) {
        let why = Unavailability {
            cause: Cause::Unknown,
            reason,
            wait: None,
        };
        let main = self.main.first_sent();
        let first = main.map(|number| Group::Main.ticket(number)).or_else(|| {
            let side = self.side.window().first_sent();
            side.map(|number| Group::Side.ticket(number))
        });
        if let Some(ticket) = first {
            self.window_unavailable(ticket, &why, now, random);
        } else if let Some((ticket, Sent { retry, .. })) = self.retries.first_sent() {
            self.retry_unavailable(ticket, retry, &why, now, random);
        }
    }
}
