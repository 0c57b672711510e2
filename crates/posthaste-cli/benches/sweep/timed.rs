//! A sink whose verdicts are timed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, Lane, LaneSpec, Outcome, Record, Sink, SinkError, SinkInfo, StoredProgress,
    Verdict,
};
use uuid::Uuid;

/// When each event was accepted.
pub(crate) type Accepted = Arc<Mutex<HashMap<Uuid, Instant>>>;

/// Another sink, whose verdicts are timed.
pub(crate) struct Timed {
    pub(crate) inner: Arc<dyn Sink>,
    pub(crate) accepted: Accepted,
}

struct TimedLane {
    inner: Box<dyn Lane>,
    open: HashMap<u64, Uuid>,
    accepted: Accepted,
}

#[async_trait]
impl Sink for Timed {
    fn info(&self) -> SinkInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        self.inner.check().await
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        Ok(Box::new(TimedLane {
            inner: self.inner.open_lane(spec).await?,
            open: HashMap::new(),
            accepted: Arc::clone(&self.accepted),
        }))
    }
}

#[async_trait]
impl Lane for TimedLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        let known = batch.iter().map(|r| (r.ticket(), r.event().id()));
        self.open.extend(known);
        self.inner.submit(batch).await;
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        let verdicts = self.inner.outcomes().await;
        let now = Instant::now();
        let mut accepted = self.accepted.lock().expect("the times");
        for verdict in &verdicts {
            let id = self.open.remove(&verdict.ticket);
            if let (Some(id), Outcome::Accepted(_)) = (id, &verdict.outcome) {
                accepted.insert(id, now);
            }
        }
        verdicts
    }

    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        self.inner.take_over().await
    }

    fn progressed(&mut self, progress: StoredProgress) {
        self.inner.progressed(progress);
    }

    async fn abort(self: Box<Self>) {
        self.inner.abort().await;
    }

    async fn close(self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.inner.close(limit).await
    }
}
