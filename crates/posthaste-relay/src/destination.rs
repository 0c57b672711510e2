//! One destination: claim a share of it, run it, and claim it anew when the share is to change or something
//! goes wrong.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Claim, ClaimOutcome, ClaimRequest, Claimed, FenceKind, Marker, Moment, Pipeline,
    PipelineLimits, Registered, Router, ShareStep, Store, StoreError, Want,
};
use tracing::{info, warn};

use crate::{
    Clock, Destination,
    builder::Settings,
    lease::Lease,
    relay::{Order, SaidOnce},
    runner::{Deaths, Next, Runner},
    share::{Revocation, Share},
    watch,
};

/// How a destination's task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// As [`Kept::clean`].
    pub(crate) clean: bool,
    /// It is drained, as was asked for.
    pub(crate) drained: bool,
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
}

impl DestinationTask {
    pub(crate) async fn run(self) -> Ended {
        let mut kept = self.keep();
        let mut said = SaidOnce::default();
        let mut want = self.enlist();
        let drained = loop {
            let Some(claim) = self.claimed(want, &mut kept, &mut said).await else {
                break false;
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
            unsettled,
        }
    }

    fn keep(&self) -> Kept {
        let heartbeat = self.settings.lease / 3;
        Kept {
            lane_number: 0,
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
    async fn claimed(&self, want: Want, kept: &mut Kept, said: &mut SaidOnce) -> Option<Claim> {
        self.unless_over(self.claim(want, kept, said)).await
    }

    async fn claim(&self, mut want: Want, kept: &mut Kept, said: &mut SaidOnce) -> Claim {
        let name = &self.destination.name;
        loop {
            let asked = self.clock.now();
            match self.claim_once(want, kept.unsettled(asked)).await {
                Ok(ClaimOutcome::Owned(claim)) => {
                    info!(destination = %name, epoch = claim.epoch, partitions = ?claim.partitions,
                        settle = ?claim.settle, "claimed");
                    kept.share
                        .saw(claim.shares.clone(), asked, self.clock.now());
                    tokio::time::sleep(claim.settle).await;
                    return claim;
                }
                Ok(ClaimOutcome::Held(shares)) => {
                    kept.share.saw(shares, asked, self.clock.now());
                    want = self.stand_by(kept, said).await;
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

    /// We own nothing: waits until there is something to claim, and answers what.
    async fn stand_by(&self, kept: &mut Kept, said: &mut SaidOnce) -> Want {
        loop {
            let now = self.clock.now();
            match kept.share.take_step() {
                ShareStep::Claim(want) => return want,
                ShareStep::Revoke => self.revoke(kept, said).await,
                ShareStep::Stay | ShareStep::Withdraw => {
                    let wait = self.wait_for_a_share(kept, said, now);
                    tokio::time::sleep(wait).await;
                }
            }
            let asked = self.clock.now();
            match self.store.shares(&self.destination.name).await {
                Ok(shares) => kept.share.saw(shares, asked, self.clock.now()),
                Err(error) => self.failed(&error, kept, said).await,
            }
            let us = kept.share.shares().member(self.registered.registration);
            // Somebody removed the destination, or us from it; or we are said to own what we do not hold: a fail-over
            // brought back what had been given up. The claim enlists again.
            if us.is_none_or(|us| us.owned > 0) {
                return self.enlist();
            }
        }
    }

    pub(crate) fn revocation(&self) -> Revocation {
        Revocation {
            by: self.registered,
            destination: self.destination.name.clone(),
            settle: self.settle(),
        }
    }

    async fn revoke(&self, kept: &mut Kept, said: &mut SaidOnce) {
        let gone = kept.share.take_gone();
        if let Err(error) = self.revocation().make(&*self.store, gone).await {
            self.failed(&error, kept, said).await;
        }
    }

    /// Says for whom we wait, and answers how long before another look.
    fn wait_for_a_share(&self, kept: &Kept, said: &mut SaidOnce, now: Moment) -> Duration {
        let name = &self.destination.name;
        let shares = kept.share.shares();
        let me = self.registered.registration;
        let holders = shares
            .members
            .iter()
            .filter(|m| m.owned > 0 && m.registration != me);
        if let Some(holder) = holders.max_by_key(|member| member.owned) {
            said.warn(now, || {
                format!(
                    "destination `{name}` is held by relay `{}` (process {}), whose lease lasts {:.1} s \
                     unless it is renewed; standing by",
                    holder.name,
                    holder.host.pid,
                    holder.lease_left.as_secs_f64()
                )
            });
        }
        let look = kept.share.look_at().map(|at| now.until(at));
        let wait = look
            .unwrap_or(Duration::MAX)
            .min(self.settings.limits.poll_idle);
        let counters = &self.destination.counters;
        counters.let_go(None);
        counters.progressed(now.after(wait));
        wait.max(Duration::from_millis(1))
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

    /// Others reach the broker and we do not: theirs is our share, until we reach it too. None when the relay
    /// stops.
    async fn stay_away(&self, kept: &mut Kept, said: &mut SaidOnce) -> Option<()> {
        let name = &self.destination.name;
        self.withdraw(kept.unsettled(self.clock.now())).await;
        kept.share = self.keep().share;
        self.destination.counters.let_go(None);
        let sink = &self.destination.sink;
        loop {
            let wait = kept.away_for;
            kept.away_for = (wait * 2).min(AWAY_MAX);
            let now = self.clock.now();
            said.warn(now, || {
                format!(
                    "destination `{name}` is reached by other relays and not by this one: it is theirs for {wait:?}"
                )
            });
            self.destination.counters.progressed(now.after(wait));
            self.unless_over(tokio::time::sleep(wait)).await?;
            let limit = self.settings.publish_timeout;
            let check = self.unless_over(tokio::time::timeout(limit, sink.check()));
            if let Ok(Ok(())) = check.await? {
                return Some(());
            }
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
