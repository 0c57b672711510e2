//! The lane: opened, handed batches, told, watched and aborted.

use std::sync::Arc;

use posthaste_engine::{
    Lane, LaneSpec, Moment, StoreError, StoredProgress,
    rule::{Rule, left_out},
};

use super::{Runner, calls::open_lane};
use crate::lease;

impl Runner<'_> {
    /// Aborts a lane that answers late or has failed, and opens the next one.
    pub(super) async fn watch_lane(&mut self, now: Moment) {
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
            self.across.lane_number += 1;
            let spec = LaneSpec {
                scope: Arc::clone(&self.scope),
                epoch: self.claim.epoch,
                number: self.across.lane_number,
                publish_timeout: self.task.settings.publish_timeout,
                lease: self.task.settings.lease,
            };
            let sink = Arc::clone(&self.task.destination.sink);
            let (confirm, claimed) = (self.confirm_lease(), Arc::clone(&self.claimed));
            self.opening.start(open_lane(sink, spec, confirm, claimed));
        }
    }

    /// Ends a lane that may have bytes under way: until they have arrived or are gone, neither this
    /// relay nor the next owner may send anything else.
    pub(super) async fn abort(&mut self, lane: Option<Box<dyn Lane>>) {
        // One that is being opened may have taken a fence, and sends nothing.
        let Some(lane) = lane else { return };
        lane.abort().await;
        self.across.unfenced = true;
        if left_out(Rule::AbortEndsConnection) {
            return;
        }
        let settled_at = self.clock().now().after(self.task.settle());
        self.across.settled_at = self.across.settled_at.max(settled_at);
    }

    /// A fence that compares no number (a file's lock) is taken first; then the lease is confirmed
    /// in the database; then sending begins.
    fn confirm_lease(&self) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let (store, clock) = (Arc::clone(&self.task.store), Arc::clone(&self.task.clock));
        let (relay, lease) = (self.task.registered, self.task.settings.lease);
        let lease_state = self.task.lease_state.clone();
        async move {
            let told = lease_state.borrow().told.clone();
            lease::renew(&*store, &*clock, relay, (lease, told), &lease_state).await
        }
    }

    /// Events behind the store will not be submitted again; a lane that keeps progress may forget
    /// them.
    pub(super) fn tell_the_lane(&mut self) {
        let caught_up = self.pipeline.take_caught_up();
        let stored = self.pipeline.take_behind_the_store();
        let Some(lane) = &mut self.lane else { return };
        stored.for_each(|tickets| lane.progressed(StoredProgress::Finished(tickets)));
        if caught_up {
            lane.progressed(StoredProgress::CaughtUp);
        }
    }

    /// Nothing is handed over unless there is time to publish it within the lease.
    pub(super) async fn submit(&mut self, now: Moment) {
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
}
