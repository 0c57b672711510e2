//! One destination: claim it, run it, and claim it anew after whatever goes wrong.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Claim, ClaimOutcome, Claimed, Holder, Marker, Moment, Pipeline, PipelineLimits, Registered,
    Router, Store, StoreError,
};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    Clock, Destination,
    builder::Settings,
    host,
    lease::Lease,
    relay::{Order, SaidOnce},
    runner::Runner,
};

/// How a destination's task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Stopped; nothing is in flight and all progress is stored.
    Clean,
    /// Stopped with something in flight, or with progress that is not stored.
    Unclean,
    /// Drained, as was asked for.
    Drained,
}

/// Wait after a failed call to the store. The store's own connecting has its time-outs; this only
/// keeps a loop from spinning.
const AGAIN: Duration = Duration::from_millis(250);

/// What outlives a claim.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The number of the newest lane: every lane gets a higher one.
    pub(crate) lane_number: u64,
    /// A lane was opened.
    pub(crate) began: bool,
    /// That the destination is away.
    pub(crate) away: SaidOnce,
    /// It was said, and that it is back was not.
    pub(crate) is_away: bool,
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
    pub(crate) async fn run(mut self) -> Ended {
        let mut said = SaidOnce::default();
        let (mut kept, mut ended) = (Kept::default(), Ended::Clean);
        loop {
            let Some(claim) = self.claimed(&mut said).await else {
                return ended;
            };
            match self.run_claim(&claim, &mut kept).await {
                Ok(ended) => {
                    // Nothing is asked of it any more.
                    let for_good = Moment(Duration::MAX);
                    self.destination.counters.progressed(for_good);
                    return ended;
                }
                Err(error) => {
                    ended = Ended::Unclean;
                    self.destination.counters.let_go(Some(&error.to_string()));
                    said.warn(self.clock.now(), || {
                        format!(
                            "destination `{}`: {error}; claiming it anew",
                            self.destination.name
                        )
                    });
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// The claim, once it is ours and its settle time is over; none when the relay stops first, or is
    /// fenced: this registration never comes back.
    async fn claimed(&mut self, said: &mut SaidOnce) -> Option<Claim> {
        let (mut order, mut lease) = (self.order.clone(), self.lease_state.subscribe());
        tokio::select! {
            biased;
            _ = order.wait_for(|order| *order == Order::Stop) => None,
            _ = lease.wait_for(|lease| lease.fenced) => None,
            claim = self.claim(said) => Some(claim),
        }
    }

    async fn claim(&self, said: &mut SaidOnce) -> Claim {
        let name = &self.destination.name;
        loop {
            let claim = self.store.claim(
                self.registered,
                name,
                &self.destination.address,
                self.destination.start,
                self.settings.settle,
            );
            let wait = match claim.await {
                Ok(ClaimOutcome::Owned(claim)) => {
                    info!(destination = %name, epoch = claim.epoch, settle = ?claim.settle, "claimed");
                    tokio::time::sleep(claim.settle).await;
                    return claim;
                }
                Ok(ClaimOutcome::Held(holder)) => self.held(&holder, said).await,
                Err(error) => {
                    self.destination.counters.let_go(Some(&error.to_string()));
                    said.warn(self.clock.now(), || {
                        format!("destination `{name}`: {error}")
                    });
                    AGAIN
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Fences a holder whose process is gone; else says for whom we wait. Answers how long.
    async fn held(&self, holder: &Holder, said: &mut SaidOnce) -> Duration {
        let name = &self.destination.name;
        if host::is_gone(&holder.host) {
            let why = "its process on this machine is gone";
            match self
                .store
                .fence(self.registered, holder.registration, why)
                .await
            {
                Ok(()) => info!(destination = %name, relay = %holder.name, "fenced: {why}"),
                Err(error) => {
                    said.warn(self.clock.now(), || {
                        format!("destination `{name}`: {error}")
                    });
                    return AGAIN;
                }
            }
            return Duration::ZERO;
        }
        said.warn(self.clock.now(), || {
            format!(
                "destination `{name}` is held by relay `{}` (process {}), whose lease lasts {:.1} s \
                 unless it is renewed; standing by",
                holder.name,
                holder.host.pid,
                holder.lease_left.as_secs_f64()
            )
        });
        // At the earliest end of the lease, or soon after a hand-over.
        let wait = holder
            .lease_left
            .clamp(Duration::from_millis(50), self.settings.lease / 15);
        let counters = &self.destination.counters;
        counters.let_go(None);
        counters.progressed(self.clock.now().after(wait));
        wait
    }

    async fn run_claim(&mut self, claim: &Claim, kept: &mut Kept) -> Result<Ended, StoreError> {
        let limits = PipelineLimits {
            retry: self.destination.retry,
            ..self.settings.limits.clone()
        };
        let claimed = self.store.open(claim).await?;
        let markers = self.markers(&*claimed, limits.blocked_keys_max).await?;
        let info = self.destination.sink.info();
        let mut pipeline = Pipeline::new(limits, info, self.router.clone(), &markers);
        if claim.breaker_open {
            pipeline.begin_with_a_probe();
        }
        Runner::new(self, claim, claimed, pipeline, kept)
            .run()
            .await
    }

    async fn markers(
        &self,
        claimed: &dyn Claimed,
        blocked_keys_max: usize,
    ) -> Result<Vec<Marker>, StoreError> {
        // Twice the bound: keys may have been blocked at once up to it, then a lower one configured.
        let limit = blocked_keys_max.saturating_mul(2).saturating_add(1);
        let markers = claimed.markers(limit).await?;
        if markers.len() >= limit {
            let reason = format!(
                "more than {} keys are blocked; release some with `posthaste dead`",
                limit - 1
            );
            warn!(destination = %self.destination.name, "{reason}");
            return Err(StoreError::Misconfigured {
                operation: "reading block markers",
                reason,
            });
        }
        Ok(markers)
    }
}
