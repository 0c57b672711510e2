//! A sink whose lanes are watched where a relay hands its events over, before anything can befall
//! them.

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{Lane, LaneSpec, Record, Sink, SinkError, SinkInfo, Verdict};
use uuid::Uuid;

use crate::{
    seen::{DestinationIndex, Seen},
    trace::Trace,
};

/// Of one destination, as one relay has it.
pub(crate) struct ObservedSink {
    pub(crate) inner: Arc<dyn Sink>,
    pub(crate) place: DestinationIndex,
    pub(crate) trace: Trace,
}

struct ObservedLane {
    inner: Box<dyn Lane>,
    place: DestinationIndex,
    trace: Trace,
    epoch: u64,
    registration: Uuid,
}

#[async_trait]
impl Sink for ObservedSink {
    fn info(&self) -> SinkInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.inner.check().await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let (epoch, registration) = (spec.epoch, spec.scope.registration);
        Ok(Box::new(ObservedLane {
            inner: self.inner.open_lane(spec).await?,
            place: self.place,
            trace: self.trace.clone(),
            epoch,
            registration,
        }))
    }
}

#[async_trait]
impl Lane for ObservedLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        for record in &batch {
            self.trace.see(&Seen::Submitted {
                place: self.place,
                id: record.event().id(),
                epoch: self.epoch,
                registration: self.registration,
            });
        }
        self.inner.submit(batch).await;
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        self.inner.outcomes().await
    }

    async fn take_over(&mut self) -> Result<(), SinkError> {
        self.inner.take_over().await
    }

    fn stored(&mut self, tickets: Range<u64>) {
        self.inner.stored(tickets);
    }

    fn caught_up(&mut self) {
        self.inner.caught_up();
    }

    async fn abort(self: Box<Self>) {
        self.inner.abort().await;
    }

    async fn close(self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.inner.close(limit).await
    }
}
