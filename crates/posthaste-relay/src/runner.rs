//! Runs one claim: does what the pipeline asks, and tells it what came of it.

mod calls;
mod deaths;

use std::{collections::HashSet, future::pending, sync::Arc, time::Duration};

use posthaste_engine::{
    BreakerState, Claim, Claimed, Counts, DestinationState, Lane, LaneScope, LaneSpec, Moment,
    Page, Pipeline, ShareStep, Shares, SideRead, SinkError, StoreError, Verdict, Want,
    rule::{Rule, left_out},
};
use tracing::{info, warn};

use crate::{
    Clock,
    call::{Call, StoreCall},
    destination::{DestinationTask, Kept},
    lease::{self, Lease},
    relay::Order,
    watch,
};
pub(crate) use deaths::Deaths;

use calls::{Changed, SideAnswer, make, open_lane, read, side_step};

/// What follows a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The relay stops, or is drained as was asked for.
    End { drained: bool },
    /// Another share of the destination is to be claimed.
    Claim(Want),
    /// The destination is to be left to others.
    Withdraw,
}

enum Input {
    Page(Page, HashSet<String>),
    Changed(Changed),
    Side(SideAnswer),
    Lane(Result<Box<dyn Lane>, SinkError>),
    Verdicts(Vec<Verdict>),
    Shares(Moment, Shares),
    Hint,
    Nothing,
}

pub(crate) struct Runner<'a> {
    task: &'a DestinationTask,
    claim: &'a Claim,
    claimed: Arc<dyn Claimed>,
    pipeline: Pipeline,
    counted: Counts,
    kept: &'a mut Kept,
    scope: Arc<LaneScope>,
    lane: Option<Box<dyn Lane>>,
    opening: StoreCall<Result<Box<dyn Lane>, SinkError>>,
    reading: StoreCall<(Page, HashSet<String>)>,
    change: StoreCall<Changed>,
    side: Option<Box<dyn SideRead>>,
    side_step: StoreCall<SideAnswer>,
    order: watch::Receiver<Order>,
    lease: watch::Receiver<Lease>,
    paused: bool,
    /// What comes once nothing is in flight.
    next: Option<Next>,
    /// When a share is to change: what is in flight then is not waited for any longer.
    stop_by: Option<Moment>,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        task: &'a DestinationTask,
        claim: &'a Claim,
        claimed: Arc<dyn Claimed>,
        mut pipeline: Pipeline,
        kept: &'a mut Kept,
    ) -> Self {
        if pipeline.pause(claim.state != DestinationState::Active) {
            info!(destination = %claim.destination, "paused by an operator");
        }
        Self {
            claim,
            claimed,
            pipeline,
            counted: Counts::default(),
            kept,
            lane: None,
            opening: Call::none(),
            reading: Call::none(),
            change: Call::none(),
            side: None,
            side_step: Call::none(),
            order: task.order.clone(),
            lease: task.lease_state.subscribe(),
            paused: false,
            next: None,
            stop_by: None,
            scope: Arc::new(LaneScope {
                store_id: claim.store_id,
                destination: claim.destination.clone(),
                destination_id: claim.destination_id,
                registration: task.registered.registration,
                partitions: claim.partitions.clone(),
                former: claim.former.clone(),
            }),
            task,
        }
    }

    /// Runs until stopped, or until a call to the store fails; then the lane is gone too, and only a new
    /// claim may go on.
    pub(crate) async fn run(mut self) -> Result<Next, StoreError> {
        let next = self.turns().await;
        let in_flight = self.pipeline.in_flight() > 0;
        self.kept.clean = match &next {
            Ok(Next::Withdraw) => true,
            Ok(Next::Claim(_) | Next::End { .. }) => !in_flight,
            Err(_) => false,
        };
        match self.lane.take() {
            Some(lane) if next.is_ok() && !in_flight => drop(lane.close(Duration::ZERO).await),
            lane => self.abort(lane).await,
        }
        self.count();
        next
    }

    async fn turns(&mut self) -> Result<Next, StoreError> {
        loop {
            let now = self.clock().now();
            self.obey(now)?;
            self.mind_the_share(now);
            self.mind_the_lane(now).await;
            self.tell_the_lane();
            self.submit(now).await;
            self.start_calls(now);
            self.count();
            self.note_rest(now);
            if self.task.settings.until_drained && self.next.is_none() && self.pipeline.is_drained()
            {
                self.stop(Next::End { drained: true });
            }
            if let Some(next) = self.next
                && (self.pipeline.is_stopped(now) || self.stop_by.is_some_and(|by| by <= now))
            {
                return Ok(next);
            }
            let input = self.next_input(now).await?;
            self.take_in(input);
        }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.task.clock
    }

    fn stop(&mut self, next: Next) {
        if self.next.is_none() {
            self.pipeline.stop();
        }
        self.next = Some(next);
    }

    /// What is in flight is answered and stored before the share changes, so that nothing is repeated; but not
    /// for ever.
    fn stop_for_another_share(&mut self, next: Next, now: Moment) {
        self.stop_by = Some(now.after(self.task.settings.publish_timeout));
        self.stop(next);
    }

    fn mind_the_share(&mut self, now: Moment) {
        let news = {
            let lease = self.lease.borrow();
            let ours = lease.destinations.get(&self.claim.destination);
            ours.map(|(_, shares)| (shares.clone(), lease.renewed))
        };
        if let Some((shares, asked)) = news.filter(|(_, asked)| self.kept.share.is_news(*asked)) {
            self.kept.share.saw(shares, asked, now);
        }
        if self.next.is_some() {
            return;
        }
        match self.kept.share.take_step() {
            ShareStep::Stay => self
                .kept
                .share
                .look(&self.task.store, &self.claim.destination, now),
            ShareStep::Revoke => {
                let revocation = self.task.revocation();
                self.kept.share.revoke(&self.task.store, revocation, now);
            }
            ShareStep::Claim(want) => self.stop_for_another_share(Next::Claim(want), now),
            ShareStep::Withdraw => self.stop_for_another_share(Next::Withdraw, now),
        }
    }

    /// What operators and the relay itself want.
    fn obey(&mut self, now: Moment) -> Result<(), StoreError> {
        if *self.order.borrow_and_update() == Order::Stop {
            self.stop_by = None;
            self.stop(Next::End { drained: false });
        }
        let lease = self.lease.borrow_and_update();
        if lease.fenced {
            return Err(StoreError::Fenced {
                operation: "keeping the lease",
            });
        }
        let told = lease.destinations.get(&self.claim.destination);
        let wanted = told.map_or(self.claim.state, |(wanted, _)| *wanted);
        let paused = wanted != DestinationState::Active;
        self.paused = paused;
        if self.pipeline.pause(paused) {
            let now = if paused { "paused" } else { "resumed" };
            info!(destination = %self.claim.destination, "{now} by an operator");
        }
        if self.lane.is_some() && lease.deadline <= lease::by_its_clock(&*self.task.clock, now) {
            self.pipeline
                .fail_lane("the lease ran out", now, self.task.settings.jitter.draw());
        }
        Ok(())
    }

    async fn mind_the_lane(&mut self, now: Moment) {
        let late = |since: Moment| since.after(self.task.settings.publish_timeout) <= now;
        if self.lane.is_some() && self.pipeline.oldest_in_flight().is_some_and(late) {
            let reason = format!("no answer within {:?}", self.task.settings.publish_timeout);
            let random = self.task.settings.jitter.draw();
            self.pipeline.answer_is_late(reason, now, random);
        }
        if self.pipeline.wants_abort()
            && let Some(lane) = self.lane.take()
        {
            self.abort(Some(lane)).await;
            self.pipeline.lane_ended(self.clock().now());
        }
        if self.lane.is_none() && !self.opening.is_under_way() && self.pipeline.wants_lane(now) {
            self.kept.lane_number += 1;
            let spec = LaneSpec {
                scope: Arc::clone(&self.scope),
                epoch: self.claim.epoch,
                number: self.kept.lane_number,
                publish_timeout: self.task.settings.publish_timeout,
                lease: self.task.settings.lease,
            };
            let sink = Arc::clone(&self.task.destination.sink);
            let (confirm, claimed) = (self.confirm_lease(), Arc::clone(&self.claimed));
            self.opening.start(open_lane(sink, spec, confirm, claimed));
        }
    }

    /// Ends a lane that may have bytes under way: until they have arrived or are gone nothing else may be sent,
    /// by whoever comes next either.
    async fn abort(&mut self, lane: Option<Box<dyn Lane>>) {
        // One that is being opened may have taken a fence, and sends nothing.
        let Some(lane) = lane else { return };
        lane.abort().await;
        self.kept.unfenced = true;
        if left_out(Rule::AbortEndsConnection) {
            return;
        }
        let settled_at = self.clock().now().after(self.task.settle());
        self.kept.settled_at = self.kept.settled_at.max(settled_at);
    }

    /// A fence that compares no number (a file's lock) is taken first; then the lease is confirmed in
    /// the database; then sending begins.
    fn confirm_lease(&self) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let (store, clock) = (Arc::clone(&self.task.store), Arc::clone(&self.task.clock));
        let (relay, lease) = (self.task.registered, self.task.settings.lease);
        let lease_state = self.task.lease_state.clone();
        async move {
            let told = lease_state.borrow().rates.clone();
            lease::renew(&*store, &*clock, relay, (lease, told), &lease_state).await
        }
    }

    /// What is behind the store will not be submitted again; a lane that keeps progress may forget it.
    fn tell_the_lane(&mut self) {
        let caught_up = self.pipeline.take_caught_up();
        let stored = self.pipeline.take_behind_the_store();
        let Some(lane) = &mut self.lane else { return };
        stored.for_each(|tickets| lane.stored(tickets));
        if caught_up {
            lane.caught_up();
        }
    }

    /// Nothing is handed over unless there is time to publish it within the lease.
    async fn submit(&mut self, now: Moment) {
        let settings = &self.task.settings;
        let time = settings.publish_timeout + settings.margin;
        let latest = lease::by_its_clock(self.clock(), now).after(time);
        if self.lease.borrow().deadline <= latest {
            return;
        }
        let Some(lane) = &mut self.lane else { return };
        while let Some(batch) = self.pipeline.take_batch(now) {
            lane.submit(batch).await;
        }
    }

    fn start_calls(&mut self, now: Moment) {
        // The side read before the others, since it may hold the main group; and after them, since the
        // main group may stand only then.
        self.start_side_step();
        if !self.reading.is_under_way()
            && let Some(budget) = self.pipeline.next_read(now)
        {
            let (claimed, asks) = (Arc::clone(&self.claimed), self.pipeline.asks_for_markers());
            self.reading.start(read(claimed, budget, asks));
        }
        if !self.change.is_under_way()
            && let Some(change) = self
                .pipeline
                .next_change(now, self.task.settings.jitter.draw())
        {
            self.change.start(make(Arc::clone(&self.claimed), change));
        }
        self.start_side_step();
    }

    fn start_side_step(&mut self) {
        if !self.side_step.is_under_way()
            && let Some(step) = self.pipeline.next_side_step()
        {
            let side = self.side.take();
            self.side_step
                .start(side_step(Arc::clone(&self.claimed), side, step));
        }
    }

    /// Waits for whatever comes first.
    async fn next_input(&mut self, now: Moment) -> Result<Input, StoreError> {
        let wake = self.next_wake(now);
        let verdicts = async {
            match &mut self.lane {
                Some(lane) => lane.outcomes().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.order.changed() => Ok(Input::Nothing),
            verdicts = verdicts => Ok(Input::Verdicts(verdicts)),
            changed = self.change.answer() => Ok(Input::Changed(changed??)),
            page = self.reading.answer() => {
                let (page, marked) = page??;
                Ok(Input::Page(page, marked))
            }
            side = self.side_step.answer() => Ok(Input::Side(side??)),
            lane = self.opening.answer() => Ok(Input::Lane(lane??)),
            shares = self.kept.share.answer() => shares.map(|(asked, shares)| Input::Shares(asked, shares)),
            () = self.lease.changed() => Ok(Input::Nothing),
            () = self.claimed.hinted() => Ok(Input::Hint),
            () = tokio::time::sleep(wake) => Ok(Input::Nothing),
        }
    }

    fn next_wake(&mut self, now: Moment) -> Duration {
        let deadline = self.lane.is_some().then(|| self.lease.borrow().deadline);
        let late = self.pipeline.oldest_in_flight();
        let late = late.map(|since| since.after(self.task.settings.publish_timeout));
        let own = self.pipeline.next_wake(now);
        let look = self.kept.share.look_at();
        let wake = [own, deadline, late, look, self.stop_by]
            .into_iter()
            .flatten()
            .filter(|&due| due > now)
            .min();
        wake.map_or(Duration::from_secs(1), |wake| now.until(wake))
    }

    fn take_in(&mut self, input: Input) {
        let now = self.clock().now();
        match input {
            Input::Page(page, marked) => {
                self.kept.share.saw_version(page.shares_version, now);
                self.pipeline.read_marked(page, &marked, now);
            }
            Input::Shares(asked, shares) => self.kept.share.saw(shares, asked, now),
            Input::Verdicts(verdicts) => {
                self.pipeline
                    .verdicts(verdicts, now, self.task.settings.jitter.draw());
                self.measure();
            }
            Input::Changed(Changed::Done) => self.pipeline.change_done(None, false, now),
            Input::Changed(Changed::Advanced(advanced)) => {
                self.pipeline.change_done(None, advanced.wants_advance, now);
                self.kept.repeats = false;
                self.task.destination.counters.progressed(now);
            }
            Input::Changed(Changed::Due(due)) => self.pipeline.change_done(Some(due), false, now),
            Input::Side(answer) => self.side_answered(answer, now),
            Input::Lane(Ok(lane)) => {
                self.lane = Some(lane);
                self.pipeline.lane_opened();
                self.kept.lane_has_taken_over(self.task.settings.lease);
                let fenced = LaneScope {
                    former: Vec::new(),
                    ..(*self.scope).clone()
                };
                self.scope = Arc::new(fenced);
                if !std::mem::replace(&mut self.kept.began, true) {
                    info!(destination = %self.claim.destination, "delivering");
                }
            }
            Input::Lane(Err(error)) => {
                self.pipeline
                    .lane_refused(&error, now, self.task.settings.jitter.draw())
            }
            Input::Hint => self.pipeline.hint(now),
            Input::Nothing => {}
        }
    }

    fn side_answered(&mut self, answer: SideAnswer, now: Moment) {
        match answer {
            SideAnswer::Opened(side) => {
                self.side = Some(side);
                self.pipeline.side_opened();
            }
            SideAnswer::Read(side, page) => {
                self.side = Some(side);
                self.pipeline.side_read(page);
            }
            SideAnswer::Advanced(side) => {
                self.side = Some(side);
                self.pipeline.side_advanced();
                self.kept.repeats = false;
                self.task.destination.counters.progressed(now);
            }
            SideAnswer::Joined => {
                let keys = self.pipeline.side_joined(now);
                info!(destination = %self.claim.destination, keys, "blocked keys are released");
            }
        }
    }

    /// Notes that nothing is due before the next wake: an operator wants it so, or all that was read is
    /// finished. Without the lease neither is known.
    fn note_rest(&mut self, now: Moment) {
        if self.lease.borrow().deadline > now && (self.paused || self.is_idle()) {
            let wake = now.after(self.next_wake(now));
            self.task.destination.counters.progressed(wake);
        }
    }

    /// A read that hangs may be about to bring something.
    fn is_idle(&mut self) -> bool {
        !self.reading.is_under_way() && self.pipeline.is_idle()
    }

    fn measure(&mut self) {
        let now = self.task.clock.wall_micros();
        let counters = &self.task.destination.counters;
        for inserted_at in self.pipeline.take_accepted_inserted_at() {
            counters.latency(u64::try_from(now - inserted_at).unwrap_or_default());
        }
    }

    fn count(&mut self) {
        let (name, counters) = (&self.claim.destination, &self.task.destination.counters);
        let counts = self.pipeline.counts();
        if counts != self.counted {
            if counts.unrouted > self.counted.unrouted && self.counted.unrouted == 0 {
                warn!(
                    destination = %name,
                    "some events match no route; add a catch-all route or one that drops them"
                );
            }
            counters.add(self.counted, counts);
            let is_new = counts.accepted > self.counted.accepted && !self.kept.repeats;
            if is_new || counts.parked > self.counted.parked {
                counters.progressed(self.task.clock.now());
            }
            self.counted = counts;
        }
        counters.blocked_keys(self.pipeline.blocked_keys());
        let now = self.task.clock.now();
        self.kept.deaths.say(name, self.pipeline.take_died(), now);
        let (breaker, last_error) = self.pipeline.breaker(now);
        let changed = counters.breaker(breaker.as_str(), last_error);
        match (breaker, last_error) {
            (BreakerState::Open { .. }, Some(reason)) if changed => {
                self.kept.is_away |= self.kept.away.warn(now, || {
                    format!("destination `{name}` is unavailable: {reason}; trying again, and what it has not accepted is kept")
                });
            }
            (BreakerState::Closed, _) if self.kept.is_away => {
                info!(destination = %name, "delivering again");
                self.kept.is_away = false;
            }
            _ => {}
        }
    }
}
