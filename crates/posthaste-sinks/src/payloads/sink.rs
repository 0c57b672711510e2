//! A sink whose lanes change payloads.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{CheckReport, Lane, LaneSpec, Sink, SinkError, SinkInfo};

#[cfg(feature = "claim-check")]
use super::{claim::ClaimCheck, claims::Claims, places::Places};
use super::{compressing::Compressing, inside::Inside, lane::PayloadLane, packing::Packing};

pub(super) struct PayloadSink {
    pub(super) inner: Arc<dyn Sink>,
    /// Payloads that are not stored elsewhere are compressed so.
    pub(super) compressing: Option<Compressing>,
    #[cfg(feature = "claim-check")]
    pub(super) claim_check: Option<Arc<ClaimCheck>>,
}

#[async_trait]
impl Sink for PayloadSink {
    fn info(&self) -> SinkInfo {
        let info = SinkInfo {
            // That of the sink is one of payloads as they are sent.
            event_bytes_max: None,
            ..self.inner.info()
        };
        #[cfg(feature = "claim-check")]
        if let Some(check) = &self.claim_check {
            let places = Places {
                inner: info.parts,
                bytes_max: check.bytes_max,
            };
            return SinkInfo {
                parts: Some(Arc::new(places)),
                ..info
            };
        }
        info
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        #[cfg_attr(not(feature = "claim-check"), allow(unused_mut))]
        let mut report = self.inner.check().await?;
        #[cfg(feature = "claim-check")]
        if let Some(check) = &self.claim_check {
            check.storage.check(&mut report, check.bytes_max).await;
        }
        Ok(report)
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let limit = spec.publish_timeout;
        #[cfg(feature = "claim-check")]
        let claims = self
            .claim_check
            .as_ref()
            .map(|check| Claims::new(Arc::clone(check), &spec.scope.destination, limit));
        let lane = self.inner.open_lane(spec).await?;
        let inside = Inside::new(lane, &self.inner.info());
        let packing = Packing::new(self.compressing, limit);
        #[cfg(feature = "claim-check")]
        let packing = packing.with_claims(claims);
        Ok(Box::new(PayloadLane::new(inside, packing)))
    }
}
