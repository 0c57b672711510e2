//! A sink whose lanes change payloads.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{CheckReport, Lane, LaneSpec, Sink, SinkError, SinkInfo};

use super::{compressing::Compressing, inside::Inside, lane::PayloadLane};

pub(super) struct PayloadSink {
    inner: Arc<dyn Sink>,
    compressing: Compressing,
}

impl PayloadSink {
    pub(super) fn new(inner: Arc<dyn Sink>, compressing: Compressing) -> Self {
        Self { inner, compressing }
    }
}

#[async_trait]
impl Sink for PayloadSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            // The limit of the sink is one of compressed payloads.
            event_bytes_max: None,
            ..self.inner.info()
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        self.inner.check().await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let lane = self.inner.open_lane(spec).await?;
        let inside = Inside::new(lane, &self.inner.info());
        Ok(Box::new(PayloadLane::new(inside, self.compressing)))
    }
}
