//! What verdicts and the store's answers mean.

use std::time::Duration;

use super::{LaneState, MAIN, Pipeline, SIDE, UnderWay, sending::Group};
use crate::{
    Cause, DeliveryPolicy, Due, Moment, OnDead, Outcome, ParkedCopy, Parking, Rejection,
    RejectionKind, Settlement, StoredEvent, Unavailability, Verdict,
    retries::{Retry, Sent},
    rule::{Rule, left_out},
    suspects::{FAILS_ALONE_MAX, turn_name},
    window::State,
};

/// Whether the destination may have taken an event that ended so.
fn is_fate_unknown(cause: Cause) -> bool {
    matches!(cause, Cause::Connection | Cause::Unknown | Cause::LaneEnded)
}

/// Whether such a failure may be the event's own fault. The rest of a lane that ended, and a wish to go
/// slower, are nobody's.
fn is_evidence(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::LaneEnded | Cause::Throttled | Cause::BehindFailure
    )
}

impl Pipeline {
    /// Verdicts of the lane.
    pub fn verdicts(&mut self, verdicts: Vec<Verdict>, now: Moment, random: f64) {
        let accepted = verdicts
            .iter()
            .filter(|v| matches!(v.outcome, Outcome::Accepted(_)))
            .count() as u64;
        if accepted > 0 {
            self.counts.accepted += accepted;
            self.breaker.accepted(accepted, now);
            self.ramp_up(accepted);
        }
        for Verdict { ticket, outcome } in verdicts {
            if matches!(outcome, Outcome::Accepted(_) | Outcome::Rejected(_)) {
                self.clear_of_suspicion(ticket);
            }
            match self.window_of(ticket).is_some() {
                true => self.window_verdict(ticket, outcome, now, random),
                false => self.retry_verdict(ticket, outcome, now, random),
            }
        }
    }

    /// The destination answered about this event.
    fn clear_of_suspicion(&mut self, ticket: u64) {
        if self.suspects.is_empty() && self.throttled.is_empty() {
            return;
        }
        let window = self.window_of(ticket);
        let entry = window.and_then(|window| window.entry_mut(ticket));
        let event = match entry {
            Some(entry) => Some(entry.event.clone()),
            None => self.retries.sent(ticket).cloned(),
        };
        if let Some(event) = event {
            self.suspects.remove(&event);
            // A lane that failed still answers for records that were under way beside the refused
            // one: these answers say nothing of the topic now.
            if self.lane == LaneState::Open && self.turns().is_held_back(&event) {
                self.probed.extend(self.throttled.end());
                self.send_passed_over();
            }
        }
    }

    /// The destination refused an event for now, and it was the first of its lane to fail.
    fn note_throttled(
        &mut self,
        event: &StoredEvent,
        why: &Unavailability,
        now: Moment,
        random: f64,
    ) {
        if self.lane == LaneState::Open && why.cause == Cause::Throttled {
            let (topic, turn) = (self.turns().held_back_with(event), turn_name(event));
            let probe = self.limits.probe;
            self.throttled
                .refused(topic, turn, why.wait, probe, now, random);
        }
    }

    fn window_verdict(&mut self, ticket: u64, outcome: Outcome, now: Moment, random: f64) {
        let Some(window) = self.window_of(ticket) else {
            return;
        };
        let Some(State::Sent { batch }) = window.entry_mut(ticket).map(|entry| entry.state.clone())
        else {
            // A verdict of a lane that was aborted since: its event is sent again.
            return;
        };
        match outcome {
            Outcome::Accepted(_) => {
                let inserted_at = window
                    .entry_mut(ticket)
                    .map(|entry| entry.event.inserted_at());
                window.finish(ticket, true);
                self.accepted_inserted_at.extend(inserted_at);
            }
            Outcome::Rejected(rejection) => {
                self.counts.rejected += 1;
                self.window_rejected(ticket, *rejection, now, random);
            }
            Outcome::Unavailable(why) if why.cause == Cause::BehindFailure => {
                window.unsend(ticket, false);
            }
            Outcome::Unavailable(why) => self.window_unavailable(ticket, &why, now, random),
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.batches.answered(batch);
    }

    fn window_rejected(&mut self, ticket: u64, rejection: Rejection, now: Moment, random: f64) {
        let event = self
            .window_of(ticket)
            .and_then(|window| window.entry_mut(ticket));
        let event = event.map(|entry| entry.event.clone());
        let topic = event.map_or(0, |event| self.router.topic_hash(&event));
        let Rejection { kind, reason } = &rejection;
        let mut broken = self.breaker.rejected(*kind, topic, reason, now, random);
        let blocked = self.blocked.len() + self.failed;
        if !broken && blocked >= self.limits.blocked_keys_max {
            let reason = format!(
                "{blocked} keys are blocked, {} at the most before a destination counts as broken; release some with \
                 `posthaste dead`: {}",
                self.limits.blocked_keys_max, rejection.reason
            );
            self.breaker.unavailable(reason, None, now, random);
            broken = true;
        }
        match self.window_of(ticket) {
            Some(window) if broken => {
                window.unsend(ticket, false);
                self.had_its_turn(ticket);
            }
            _ => self.fail(ticket, rejection),
        }
    }

    pub(super) fn fail(&mut self, ticket: u64, rejection: Rejection) {
        let window = self.window_of(ticket);
        self.failed += usize::from(window.is_some_and(|window| window.fail(ticket, rejection)));
    }

    fn window_unavailable(&mut self, ticket: u64, why: &Unavailability, now: Moment, random: f64) {
        let accepted = self.counts.accepted;
        let is_suspect = self.makes_suspect(why.cause);
        let Some(window) = self.window_of(ticket) else {
            return;
        };
        let Some(entry) = window.entry_mut(ticket) else {
            return;
        };
        let event = entry.event.clone();
        if is_suspect && entry.evidence.failed(accepted) {
            let rejection = self.fails_alone(&event, why);
            self.fail(ticket, rejection);
        } else if left_out(Rule::OutageBurnsNoAttempt) {
            let (kind, reason) = (RejectionKind::Other, why.reason.clone());
            self.fail(ticket, Rejection { kind, reason });
        } else {
            window.unsend(ticket, is_fate_unknown(why.cause));
            if is_suspect {
                self.suspects.add(&event);
            }
        }
        self.note_throttled(&event, why, now, random);
        self.destination_failed(why, now, random);
    }

    /// Whether an event that fails so now may be the one at fault. What fails behind the first of a lane may
    /// have been in the same write: a device that is nearly full takes a probe and refuses a batch, again and
    /// again, and none of the batch is at fault.
    fn makes_suspect(&self, cause: Cause) -> bool {
        self.lane == LaneState::Open && is_evidence(cause)
    }

    /// The event is the one at fault.
    fn fails_alone(&mut self, event: &StoredEvent, why: &Unavailability) -> Rejection {
        self.counts.rejected += 1;
        self.suspects.remove(event);
        Rejection {
            kind: RejectionKind::FailsAlone,
            reason: format!("failed alone {FAILS_ALONE_MAX} times: {}", why.reason),
        }
    }

    fn destination_failed(&mut self, why: &Unavailability, now: Moment, random: f64) {
        self.counts.unavailable += 1;
        if self.lane == LaneState::Open {
            self.lane = LaneState::Failed;
            if is_evidence(why.cause) {
                // Of those in flight, the first one to fail need not be the one at fault, and these were before.
                for event in self.retries.all_sent() {
                    self.suspects.add(event);
                }
            }
            self.breaker
                .unavailable(why.to_string(), why.wait, now, random);
        }
    }

    fn retry_verdict(&mut self, ticket: u64, outcome: Outcome, now: Moment, random: f64) {
        let Some(Sent { batch, retry }) = self.retries.answered(ticket) else {
            return;
        };
        match outcome {
            Outcome::Accepted(_) => {
                self.retries
                    .settle(ticket, retry.copy.id, Settlement::Delivered)
            }
            Outcome::Rejected(rejection) => {
                self.counts.rejected += 1;
                let topic = self.router.topic_hash(&retry.copy.event);
                let Rejection { kind, reason } = &*rejection;
                if self.breaker.rejected(*kind, topic, reason, now, random) {
                    self.retries.again(retry);
                } else {
                    self.retry_rejected(ticket, &retry.copy, *rejection, random);
                }
            }
            Outcome::Unavailable(why) if why.cause == Cause::BehindFailure => {
                self.retries.again(retry);
            }
            Outcome::Unavailable(why) => self.retry_unavailable(ticket, retry, &why, now, random),
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.batches.answered(batch);
    }

    fn retry_unavailable(
        &mut self,
        ticket: u64,
        mut retry: Retry,
        why: &Unavailability,
        now: Moment,
        random: f64,
    ) {
        self.note_throttled(&retry.copy.event, why, now, random);
        let is_suspect = self.makes_suspect(why.cause);
        if is_suspect && retry.evidence.failed(self.counts.accepted) {
            let rejection = self.fails_alone(&retry.copy.event, why);
            self.retry_rejected(ticket, &retry.copy, rejection, random);
        } else {
            if is_suspect {
                self.suspects.add(&retry.copy.event);
            }
            self.retries.again(retry);
        }
        self.destination_failed(why, now, random);
    }

    /// An answer is late: the lane has to go, as if it had failed over the first event that waits for one.
    pub fn answer_is_late(&mut self, reason: String, now: Moment, random: f64) {
        let why = Unavailability {
            cause: Cause::Unknown,
            reason,
            wait: None,
        };
        let main = self.main.first_sent();
        if let Some(ticket) = main.or_else(|| self.side.window.first_sent()) {
            self.window_unavailable(ticket, &why, now, random);
        } else if let Some((ticket, Sent { retry, .. })) = self.retries.first_sent() {
            self.retry_unavailable(ticket, retry, &why, now, random);
        }
    }

    pub(super) fn retry_rejected(
        &mut self,
        ticket: u64,
        copy: &ParkedCopy,
        rejection: Rejection,
        random: f64,
    ) {
        let policy = self.router.policy(&copy.event);
        let (retry_in, skip) =
            self.after_attempt(copy.attempts.saturating_add(1), policy, &rejection, random);
        if retry_in.is_none() {
            // The key of one that was skipped before has gone on.
            let key_waits = !skip && self.blocked.has(&copy.event);
            self.note_died(&copy.event, &rejection, key_waits);
        }
        let (kind, reason) = (rejection.kind.as_str(), rejection.reason);
        self.retries.settle(
            ticket,
            copy.id,
            Settlement::Failed {
                kind,
                reason,
                retry_in,
                skip,
            },
        );
    }

    /// When an event is tried again after so many attempts, or never; and then, whether its key goes on
    /// without it.
    fn after_attempt(
        &self,
        attempts: u32,
        policy: DeliveryPolicy,
        rejection: &Rejection,
        random: f64,
    ) -> (Option<Duration>, bool) {
        let retry_in = (attempts < policy.attempts_when(rejection.kind))
            .then(|| self.limits.retry.delay(attempts, random));
        (
            retry_in,
            retry_in.is_none() && policy.on_dead == OnDead::Skip,
        )
    }

    /// Rejected events that may be parked now: each becomes a copy and, unless its key goes on without
    /// it, a marker. A later one of a key that is blocked by then is left to the side read.
    pub(super) fn parkings(&mut self, random: f64) -> Vec<Parking> {
        if self.failed == 0 {
            return Vec::new();
        }
        let mut parkings = Vec::new();
        let mut tickets = Vec::new();
        let candidates = [self.main.parkable(), self.side.window.parkable()];
        for ticket in candidates.concat() {
            let Some(window) = self.window_of(ticket) else {
                continue;
            };
            let Some(at) = window.cursor_at(ticket) else {
                continue;
            };
            let Some(entry) = window.entry_mut(ticket) else {
                continue;
            };
            let State::Failed(rejection) = std::mem::replace(&mut entry.state, State::Parking)
            else {
                continue;
            };
            let event = entry.event.clone();
            self.failed -= 1;
            let group = Group::of(ticket);
            if group.leaves_out(&event, &self.blocked, &self.side.keys) {
                if let Some(window) = self.window_of(ticket) {
                    window.finish(ticket, false);
                }
                continue;
            }
            let (retry_in, skip) =
                self.after_attempt(1, self.router.policy(&event), &rejection, random);
            if retry_in.is_none() {
                let key_waits = event.key().is_some() && !skip;
                self.note_died(&event, &rejection, key_waits);
            }
            if let (Some(key), false) = (event.key(), skip) {
                self.blocked.insert(key, ticket >= SIDE);
                if ticket >= SIDE {
                    self.side.leave(key);
                }
            }
            tickets.push((ticket, skip));
            parkings.push(Parking {
                event,
                at,
                attempts: 1,
                kind: rejection.kind.as_str(),
                reason: rejection.reason,
                retry_in,
                skip,
            });
        }
        if !tickets.is_empty() {
            self.change = Some(UnderWay::Park(tickets));
        }
        parkings
    }

    /// The change under way was made, durably. `due` is the answer of [`crate::Change::Due`].
    pub fn change_done(&mut self, due: Option<Due>, wants_advance: bool, now: Moment) {
        match self.change.take() {
            Some(UnderWay::Park(tickets)) => self.parked(tickets, now),
            Some(UnderWay::Advance { events, bytes }) => {
                self.stored += events as u64;
                self.unstored.0 = self.unstored.0.saturating_sub(events);
                self.unstored.1 = self.unstored.1.saturating_sub(bytes);
                self.behind_the_store(MAIN..self.main.first());
                if wants_advance {
                    self.pacer.hurry(now);
                }
            }
            // What a settlement released or left due is seen by the next look.
            Some(UnderWay::Settle(ticket)) => {
                self.behind_the_store(ticket..ticket + 1);
                self.due_at = now;
            }
            Some(UnderWay::Due) => self.due_answered(due.unwrap_or_default(), now),
            Some(UnderWay::Report) | None => {}
        }
    }

    fn parked(&mut self, tickets: Vec<(u64, bool)>, now: Moment) {
        self.counts.parked += tickets.len() as u64;
        for (ticket, skip) in tickets {
            let Some(window) = self.window_of(ticket) else {
                continue;
            };
            let key = window
                .entry_mut(ticket)
                .and_then(|e| e.event.key().map(str::to_owned));
            window.finish(ticket, true);
            if let Some(key) = key.filter(|_| ticket >= SIDE && !skip) {
                self.side.parked(&key);
            }
        }
        self.due_at = now;
    }

    fn due_answered(&mut self, due: Due, now: Moment) {
        self.due_seen = true;
        self.none_is_due = due.events.is_empty();
        let wait = match due.next_in {
            Some(next_in) if due.events.is_empty() => next_in.min(self.limits.due_every),
            _ if due.events.is_empty() => self.limits.due_every,
            // More may be due: look again when these are settled.
            _ => Duration::ZERO,
        };
        self.due_at = now.after(wait);
        self.retries.push(due.events);
        self.side.release(due.released);
    }
}
