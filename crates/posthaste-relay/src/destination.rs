//! One destination: claim a share of it, run it, and claim it anew when the share is to change or something
//! goes wrong.

mod standing_by;

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Claim, ClaimOutcome, ClaimRequest, Claimed, FenceKind, Marker, Moment, Pipeline,
    PipelineLimits, Registered, Router, Store, StoreError, Want,
};
use tracing::{info, warn};

use crate::{
    Clock, Destination,
    builder::Settings,
    lease::Lease,
    relay::{Order, SaidOnce},
    runner::{Deaths, Next, Runner},
    share::Share,
    watch,
};

/// How a destination's task ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// As [`Kept::clean`].
    pub(crate) clean: bool,
    /// It is drained, as was asked for.
    pub(crate) drained: bool,
    /// The store refuses the first claim, and waiting does not mend that
    /// ([`DestinationTask::may_refuse`]).
    pub(crate) refused: Option<StoreError>,
    /// For how long bytes of an aborted lane may still arrive.
    pub(crate) unsettled: Duration,
}

/// Wait after a failed call to the store. The store's own connecting has its time-outs; this only
/// keeps a loop from spinning.
const AGAIN: Duration = Duration::from_millis(250);
/// What only an operator can mend is asked for less and less often, at last every half a minute: the
/// store is not to be kept busy with it, and delivery is to go on soon after the mend.
const REFUSED_MAX: Duration = Duration::from_secs(30);
/// Who does not reach a broker that others reach stays away from it for two leases, then for twice as long each
/// time: what it takes back it may have to give up again.
const AWAY_MAX: Duration = Duration::from_secs(300);
/// Markers that one statement of a claim reads: a megabyte where keys are as long as they may be.
const MARKERS_A_PAGE: usize = 1_000;
/// What a receiver that fences exactly leaves to be settled: no time, but the next owner is to take the fence.
const UNFENCED: Duration = Duration::from_micros(1);

/// What outlives a claim.
pub(crate) struct Kept {
    /// The number of the newest lane: every lane gets a higher one.
    pub(crate) lane_number: u64,
    /// The store took a claim.
    was_answered: bool,
    /// A lane was opened.
    pub(crate) began: bool,
    /// A claim was lost and nothing has been stored since: what is accepted may be the same again and again.
    pub(crate) repeats: bool,
    /// Nothing of the last claim was left in flight, or what was is theirs to whom the destination was left.
    pub(crate) clean: bool,
    /// That the destination is away.
    pub(crate) away: SaidOnce,
    /// It was said, and that it is back was not.
    pub(crate) is_away: bool,
    pub(crate) deaths: Deaths,
    /// Until then bytes of an aborted lane may still arrive.
    pub(crate) settled_at: Moment,
    /// A lane was aborted, and none has taken over since.
    pub(crate) unfenced: bool,
    pub(crate) share: Share,
    /// How long to stay away from the destination when others reach it and we do not.
    away_for: Duration,
    refusals: Refusals,
}

/// The wait after the next refusal of the store. A minute without any, and it is short again.
struct Refusals {
    wait: Duration,
    last: Moment,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            wait: AGAIN,
            last: Moment::default(),
        }
    }
}

impl Refusals {
    fn next_wait(&mut self, now: Moment) -> Duration {
        if self.last.until(now) > self.wait + REFUSED_MAX * 2 {
            self.wait = AGAIN;
        }
        self.last = now;
        let wait = self.wait;
        self.wait = (wait * 2).min(REFUSED_MAX);
        wait
    }
}

impl Kept {
    /// Nothing of earlier lanes can arrive any more where the receiver fences, and the destination is reached.
    pub(crate) fn lane_has_taken_over(&mut self, lease: Duration) {
        self.unfenced = false;
        self.away_for = lease * 2;
    }

    fn unsettled(&self, now: Moment) -> Duration {
        let rest = now.until(self.settled_at);
        match self.unfenced {
            true => rest.max(UNFENCED),
            false => rest,
        }
    }
}

pub(crate) struct DestinationTask {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) destination: Arc<Destination>,
    pub(crate) router: Router,
    pub(crate) registered: Registered,
    pub(crate) lease_state: watch::Sender<Lease>,
    pub(crate) order: watch::Receiver<Order>,
    /// A refusal of the first claim ends the relay: somebody is looking, and nothing else is
    /// delivered.
    pub(crate) may_refuse: bool,
}

impl DestinationTask {
    pub(crate) async fn run(self) -> Ended {
        let mut kept = self.keep();
        let mut said = SaidOnce::default();
        let mut want = self.enlist();
        let mut refused = None;
        let drained = loop {
            let claim = match self.claimed(want, &mut kept, &mut said).await {
                Some(Ok(claim)) => claim,
                Some(Err(error)) => {
                    refused = Some(error);
                    break false;
                }
                None => break false,
            };
            match self.run_claim(&claim, &mut kept).await {
                Ok(Next::Claim(next)) => want = next,
                Ok(Next::Withdraw) => {
                    if self.stay_away(&mut kept, &mut said).await.is_none() {
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
                    kept.repeats = true;
                    want = match self.owns_together() {
                        true => Want::All,
                        false => Want::AtMost(claim.partitions.len()),
                    };
                    let over = self.unless_over(self.failed(&error, &mut kept, &mut said));
                    if over.await.is_none() {
                        break false;
                    }
                }
            }
        };
        kept.deaths.say_rest(&self.destination.name);
        let unsettled = kept.unsettled(self.clock.now());
        if kept.share.is_shared() && !self.lease_state.borrow().fenced {
            // The others need not wait for this relay's other destinations.
            self.withdraw(unsettled).await;
        }
        Ended {
            clean: kept.clean,
            drained,
            refused,
            unsettled,
        }
    }

    fn keep(&self) -> Kept {
        let heartbeat = self.settings.lease / 3;
        Kept {
            lane_number: 0,
            was_answered: false,
            began: false,
            repeats: false,
            clean: true,
            away: SaidOnce::default(),
            is_away: false,
            deaths: Deaths::default(),
            settled_at: Moment::default(),
            unfenced: false,
            share: Share::new(self.registered, heartbeat, self.owns_together()),
            away_for: self.settings.lease * 2,
            refusals: Refusals::default(),
        }
    }

    /// Whether all partitions go to one relay. Who is to say that everything is drained has to own everything.
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

    /// How long bytes of another relay, or of our own aborted lane, may still arrive.
    pub(crate) fn settle(&self) -> Duration {
        match self.destination.sink.info().fence {
            FenceKind::Exact => Duration::ZERO,
            FenceKind::Timing => self.settings.settle,
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
        kept: &mut Kept,
        said: &mut SaidOnce,
    ) -> Option<Result<Claim, StoreError>> {
        self.unless_over(self.claim(want, kept, said)).await
    }

    async fn claim(
        &self,
        mut want: Want,
        kept: &mut Kept,
        said: &mut SaidOnce,
    ) -> Result<Claim, StoreError> {
        let name = &self.destination.name;
        loop {
            let asked = self.clock.now();
            let outcome = self.claim_once(want, kept.unsettled(asked)).await;
            let is_first = !kept.was_answered;
            kept.was_answered |= outcome.is_ok();
            match outcome {
                Ok(ClaimOutcome::Owned(claim)) => {
                    info!(destination = %name, address = %self.destination.address, epoch = claim.epoch, partitions = ?claim.partitions,
                        settle = ?claim.settle, "claimed");
                    kept.share
                        .saw(claim.shares.clone(), asked, self.clock.now());
                    tokio::time::sleep(claim.settle).await;
                    return Ok(claim);
                }
                Ok(ClaimOutcome::Held(shares)) => {
                    kept.share.saw(shares, asked, self.clock.now());
                    want = self.stand_by(kept, said).await;
                }
                Ok(ClaimOutcome::Elsewhere { address, shares }) => {
                    kept.share.saw(shares, asked, self.clock.now());
                    self.stand_by_for_address(&address, kept, said).await;
                    want = self.enlist();
                }
                Err(error) if is_first && self.may_refuse && error.needs_an_operator() => {
                    return Err(error);
                }
                Err(error) => self.failed(&error, kept, said).await,
            }
        }
    }

    async fn claim_once(
        &self,
        want: Want,
        unsettled: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        let request = ClaimRequest {
            destination: &self.destination.name,
            address: &self.destination.address,
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
    async fn failed(&self, error: &StoreError, kept: &mut Kept, said: &mut SaidOnce) {
        self.note_failure(error, said);
        if !error.needs_an_operator() {
            return tokio::time::sleep(AGAIN).await;
        }
        loop {
            tokio::time::sleep(kept.refusals.next_wait(self.clock.now())).await;
            match self.store.check().await {
                Ok(()) => return,
                Err(error) => self.note_failure(&error, said),
            }
        }
    }

    fn note_failure(&self, error: &StoreError, said: &mut SaidOnce) {
        self.destination.counters.let_go(Some(&error.to_string()));
        said.warn(self.clock.now(), || {
            format!("destination `{}`: {error}", self.destination.name)
        });
    }

    async fn run_claim(&self, claim: &Claim, kept: &mut Kept) -> Result<Next, StoreError> {
        let limits = PipelineLimits {
            retry: self.destination.retry,
            ..self.settings.limits.clone()
        };
        let claimed = self.store.open(claim).await?;
        let (markers, beyond) = markers(&*claimed, limits.blocked_keys_kept).await?;
        let info = self.destination.sink.info();
        let mut pipeline = Pipeline::new(limits, info, self.router.clone(), &markers);
        pipeline.blocked_beyond(beyond);
        pipeline.pass_over(claimed.set_aside().await?);
        pipeline.settle_until(kept.settled_at);
        if claim.breaker_open {
            pipeline.begin_with_a_probe();
        }
        let ran = Runner::new(self, claim, Arc::clone(&claimed), pipeline, kept)
            .run()
            .await;
        if let Err(error) = ran.as_ref()
            && error.needs_an_operator()
        {
            // For those who ask the store. What else is wrong with it is said when it is asked again.
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
async fn markers(claimed: &dyn Claimed, kept: usize) -> Result<(Vec<Marker>, usize), StoreError> {
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
