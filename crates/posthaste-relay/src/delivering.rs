//! One destination: claim a share of it, run it, and claim it anew when the share is to change or
//! something goes wrong.

mod standing_by;

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Claim, ClaimMarkers, ClaimOutcome, ClaimRequest, Marker, Moment, Pipeline, PipelineLimits,
    StoreError, Want,
};
use tracing::{info, warn};

use crate::{
    across_claims::{AGAIN, AcrossClaims},
    order::Order,
    runner::{Next, Runner},
    task::DestinationTask,
};

/// How a destination's task ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// As [`AcrossClaims::clean`].
    pub(crate) clean: bool,
    /// It is drained, as was asked for.
    pub(crate) drained: bool,
    /// The store refuses the first claim, and waiting does not mend that
    /// ([`DestinationTask::may_refuse`]).
    pub(crate) refused: Option<StoreError>,
    /// For how long bytes of an aborted lane may still arrive.
    pub(crate) unsettled: Duration,
}

/// Markers that one statement of a claim reads: a megabyte where keys are as long as they may be.
const MARKERS_A_PAGE: usize = 1_000;

impl DestinationTask {
    pub(crate) async fn run(self) -> Ended {
        let mut across = self.before_any_claim();
        let mut want = self.enlist();
        let mut refused = None;
        let drained = loop {
            let claim = match self.claimed(want, &mut across).await {
                Some(Ok(claim)) => claim,
                Some(Err(error)) => {
                    refused = Some(error);
                    break false;
                }
                None => break false,
            };
            match self.run_claim(&claim, &mut across).await {
                Ok(Next::Claim(next)) => want = next,
                Ok(Next::Withdraw) => {
                    if self.stay_away(&mut across).await.is_none() {
                        break false;
                    }
                    want = self.enlist();
                }
                Ok(Next::End { drained }) => {
                    // Nothing is asked of it any more.
                    let for_good = Moment(Duration::MAX);
                    self.destination.counters.progressed(for_good);
                    break drained;
                }
                Err(error) => {
                    across.repeats = true;
                    want = match self.owns_together() {
                        true => Want::All,
                        false => Want::AtMost(claim.partitions.len()),
                    };
                    let over = self.unless_over(self.failed(&error, &mut across));
                    if over.await.is_none() {
                        break false;
                    }
                }
            }
        };
        across.refused_events.say_rest(&self.destination.name);
        let unsettled = across.unsettled(self.clock.now());
        if across.share.is_shared() && !self.lease_state.borrow().fenced {
            // The others need not wait for this relay's other destinations.
            self.withdraw(unsettled).await;
        }
        Ended {
            clean: across.clean,
            drained,
            refused,
            unsettled,
        }
    }

    fn before_any_claim(&self) -> AcrossClaims {
        let (relay, lease) = (self.registered, self.settings.lease);
        AcrossClaims::new(relay, lease, self.owns_together())
    }

    /// Whether all partitions go to one relay. A relay that is to say that everything is drained
    /// has to own everything.
    fn owns_together(&self) -> bool {
        self.destination.sink.info().single_lane
            || !self.store.info().shares_out
            || self.settings.until_drained
    }

    /// The first claim: who shares a destination has to see the others before it knows its part.
    fn enlist(&self) -> Want {
        match self.owns_together() {
            true => Want::All,
            false => Want::AtMost(0),
        }
    }

    /// Waits, unless the relay stops first or is fenced: this registration never comes back.
    async fn unless_over<T>(&self, done: impl Future<Output = T>) -> Option<T> {
        let (mut order, mut lease) = (self.order.clone(), self.lease_state.subscribe());
        tokio::select! {
            biased;
            () = order.wait_for(|order| *order == Order::Stop) => None,
            () = lease.wait_for(|lease| lease.fenced) => None,
            done = done => Some(done),
        }
    }

    /// A claim of something, once it is ours and its settle time is over.
    async fn claimed(
        &self,
        want: Want,
        across: &mut AcrossClaims,
    ) -> Option<Result<Claim, StoreError>> {
        self.unless_over(self.claim(want, across)).await
    }

    async fn claim(&self, mut want: Want, across: &mut AcrossClaims) -> Result<Claim, StoreError> {
        let name = &self.destination.name;
        loop {
            let asked = self.clock.now();
            let outcome = self.claim_once(want, across.unsettled(asked)).await;
            let is_first = !across.was_answered;
            across.was_answered |= outcome.is_ok();
            match outcome {
                Ok(ClaimOutcome::Owned(claim)) => {
                    info!(
                        destination = %name,
                        address = %self.destination.target(),
                        epoch = claim.epoch,
                        partitions = %format_args!(
                            "{} of {}",
                            claim.partitions.len(),
                            claim.partitions.count()
                        ),
                        settle = ?claim.settle,
                        "claimed"
                    );
                    across
                        .share
                        .saw(claim.shares.clone(), asked, self.clock.now());
                    tokio::time::sleep(claim.settle).await;
                    return Ok(claim);
                }
                Ok(ClaimOutcome::Held(shares)) => {
                    across.share.saw(shares, asked, self.clock.now());
                    want = self.stand_by(across).await;
                }
                Ok(ClaimOutcome::Elsewhere { address, shares }) => {
                    across.share.saw(shares, asked, self.clock.now());
                    self.stand_by_for_address(&address, across).await;
                    want = self.enlist();
                }
                Err(error) if is_first && self.may_refuse && error.needs_an_operator() => {
                    return Err(error);
                }
                Err(error) => self.failed(&error, across).await,
            }
        }
    }

    async fn claim_once(
        &self,
        want: Want,
        unsettled: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        let target = self.destination.target();
        let request = ClaimRequest {
            destination: &self.destination.name,
            address: &target,
            retarget: self.destination.retarget,
            start: self.destination.start,
            want,
            partitions_max: self.settings.partitions_max,
            settle: self.settle(),
            unsettled,
        };
        self.store.claim(self.registered, &request).await
    }

    /// Waits before the next try. Where only an operator can help, until the store finds nothing
    /// wrong any more: a claim would only raise the epoch.
    async fn failed(&self, error: &StoreError, across: &mut AcrossClaims) {
        self.note_failure(error, across);
        if !error.needs_an_operator() {
            return tokio::time::sleep(AGAIN).await;
        }
        loop {
            tokio::time::sleep(across.wait_after_refusal(self.clock.now())).await;
            match self.store.check().await {
                Ok(()) => return,
                Err(error) => self.note_failure(&error, across),
            }
        }
    }

    fn note_failure(&self, error: &StoreError, across: &mut AcrossClaims) {
        let now = self.clock.now();
        let counters = &self.destination.counters;
        counters.store_failed(now, &error.to_string());
        across.failed.warn(now, || {
            format!("destination `{}`: {error}", self.destination.name)
        });
    }

    async fn run_claim(
        &self,
        claim: &Claim,
        across: &mut AcrossClaims,
    ) -> Result<Next, StoreError> {
        let limits = PipelineLimits {
            retry: self.destination.retry,
            ..self.settings.limits.clone()
        };
        let claimed = self.store.open(claim).await?;
        let (markers, beyond) = markers(&*claimed, limits.blocked_keys_kept).await?;
        let info = self.destination.sink.info();
        let mut pipeline = Pipeline::new(limits, info, self.router.clone(), &markers);
        pipeline.blocked_beyond(beyond);
        let set_aside = claimed.set_aside().await?;
        pipeline.pass_over(set_aside.again);
        pipeline.put_off_before(set_aside.put_off_alone);
        pipeline.settle_until(across.settled_at);
        if claim.breaker_open {
            pipeline.begin_with_a_probe();
        }
        let ran = Runner::new(self, claim, Arc::clone(&claimed), pipeline, across)
            .run()
            .await;
        if let Err(error) = ran.as_ref()
            && error.needs_an_operator()
        {
            // For those who ask the store. The store's other troubles are said when it
            // is asked again.
            drop(claimed.report("half_open", Some(&error.to_string())).await);
        }
        ran
    }

    async fn withdraw(&self, unsettled: Duration) {
        let name = &self.destination.name;
        let withdraw = self.store.withdraw(self.registered, name, unsettled);
        match withdraw.await {
            // The relay leaves next, or its lease runs out: both free what it owned.
            Ok(()) | Err(StoreError::Fenced { .. }) => {}
            Err(error) => warn!("destination `{name}` was not given up: {error}"),
        }
    }
}

/// The markers to keep, and how many more there are.
async fn markers(
    claimed: &dyn ClaimMarkers,
    kept: usize,
) -> Result<(Vec<Marker>, usize), StoreError> {
    let (mut markers, mut beyond, mut after) = (Vec::new(), 0, None);
    loop {
        let mut page = claimed.markers(after.as_deref(), MARKERS_A_PAGE).await?;
        let is_last = page.len() < MARKERS_A_PAGE;
        after = page.last().map(|marker| marker.key.clone());
        let room = (kept - markers.len()).min(page.len());
        beyond += page.len() - room;
        markers.extend(page.drain(..room));
        if is_last {
            return Ok((markers, beyond));
        }
    }
}
