//! Runs one claim: does what the pipeline asks, and tells it what came of it.

mod calls;
mod inputs;
mod lane;
mod reports;

use std::{collections::HashSet, future::pending, sync::Arc, time::Duration};

use posthaste_engine::{
    Claim, ClaimMarkers, Claimed, Counts, DestinationState, Lane, LaneScope, Moment, Page,
    Pipeline, ShareStep, Shares, SideRead, SinkError, StoreError, Verdict, Want,
};
use tracing::info;

use crate::{
    Clock,
    across_claims::AcrossClaims,
    call::{Call, StoreCall},
    lease::{self, Lease},
    order::Order,
    task::DestinationTask,
    watch,
};

use calls::{Changed, SideAnswer, make, read, side_step};

/// The step after a claim.
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
    /// When operators are told of places again.
    places_at: Moment,
    across: &'a mut AcrossClaims,
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
    /// The step once nothing is in flight.
    next: Option<Next>,
    /// When a share is to change: from then on answers are not waited for any longer.
    stop_by: Option<Moment>,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        task: &'a DestinationTask,
        claim: &'a Claim,
        claimed: Arc<dyn Claimed>,
        mut pipeline: Pipeline,
        across: &'a mut AcrossClaims,
    ) -> Self {
        if pipeline.pause(claim.wanted.state != DestinationState::Active) {
            info!(destination = %claim.destination, "paused by an operator");
        }
        let paused = &claim.wanted.paused_places;
        if pipeline.pause_places(paused, task.clock.now()) {
            info!(destination = %claim.destination, places = ?paused, "paused by an operator");
        }
        Self {
            claim,
            claimed,
            pipeline,
            counted: Counts::default(),
            places_at: Moment::default(),
            across,
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

    /// Runs until stopped, or until a call to the store fails; then the lane is gone too, and only
    /// a new claim may go on.
    pub(crate) async fn run(mut self) -> Result<Next, StoreError> {
        let next = self.turns().await;
        let in_flight = self.pipeline.in_flight() > 0;
        self.across.clean = match &next {
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
            self.follow_orders(now)?;
            self.watch_share(now);
            self.watch_lane(now).await;
            self.tell_the_lane();
            self.submit(now).await;
            self.start_calls(now);
            self.count();
            self.report_idle(now);
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

    /// Events in flight are answered and stored before the share changes, so that none is repeated;
    /// but not for ever.
    fn stop_for_another_share(&mut self, next: Next, now: Moment) {
        self.stop_by = Some(now.after(self.task.settings.publish_timeout));
        self.stop(next);
    }

    fn watch_share(&mut self, now: Moment) {
        let news = {
            let lease = self.lease.borrow();
            let ours = lease.destinations.get(&self.claim.destination);
            ours.map(|(_, shares)| (shares.clone(), lease.renewed))
        };
        if let Some((shares, asked)) = news.filter(|(_, asked)| self.across.share.is_news(*asked)) {
            self.across.share.saw(shares, asked, now);
        }
        if self.next.is_some() {
            return;
        }
        match self.across.share.take_step() {
            ShareStep::Stay => {
                let (store, name) = (Arc::clone(&self.task.store), &self.claim.destination);
                self.across.share.look(store, name, now);
            }
            ShareStep::Revoke => {
                let revocation = self.task.revocation();
                self.across.share.revoke(&self.task.store, revocation, now);
            }
            ShareStep::Claim(want) => self.stop_for_another_share(Next::Claim(want), now),
            ShareStep::Withdraw => self.stop_for_another_share(Next::Withdraw, now),
        }
    }

    /// Follows the orders of operators and of the relay itself.
    fn follow_orders(&mut self, now: Moment) -> Result<(), StoreError> {
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
        let wanted = lease.destinations.get(&self.claim.destination);
        let wanted = wanted.map_or(&self.claim.wanted, |(wanted, _)| wanted);
        let paused = wanted.state != DestinationState::Active;
        self.paused = paused;
        if self.pipeline.pause(paused) {
            let now = if paused { "paused" } else { "resumed" };
            info!(destination = %self.claim.destination, "{now} by an operator");
        }
        if self.pipeline.pause_places(&wanted.paused_places, now) {
            let places = &wanted.paused_places;
            info!(
                destination = %self.claim.destination, ?places,
                "an operator wants just these places to be paused"
            );
        }
        if self.lane.is_some() && lease.deadline <= lease::by_its_clock(&*self.task.clock, now) {
            self.pipeline
                .fail_lane("the lease ran out", now, self.task.settings.jitter.draw());
        }
        Ok(())
    }

    fn start_calls(&mut self, now: Moment) {
        // The side read before the others, since it may hold the main group; and after them, since
        // the main group may stand only then.
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
            let markers: Arc<dyn ClaimMarkers> = self.claimed.clone();
            self.side_step.start(side_step(markers, side, step));
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
            shares = self.across.share.answer() => {
                let (asked, shares) = shares?;
                Ok(Input::Shares(asked, shares))
            }
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
        let look = self.across.share.look_at();
        let wake = [own, deadline, late, look, self.stop_by]
            .into_iter()
            .flatten()
            .filter(|&due| due > now)
            .min();
        wake.map_or(Duration::from_secs(1), |wake| now.until(wake))
    }
}
