//! A lane whose publisher runs in the relay's task.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_engine::{Cause, Lane, Record, SinkError, StoredProgress, Unavailability, Verdict};
use tokio::time::timeout;

use super::{Publisher, RecordsOf};

/// A publisher whose client goes on by itself while the relay does something else.
pub trait InPlacePublisher: Publisher {
    /// A batch is about to be submitted; the lane has not ended.
    fn submitting(&mut self, _batch: &[Record], _records: &mut RecordsOf<Self>) {}

    /// Ends the lane: sends nothing from here on, and ends `records` with this fault.
    fn end(&mut self, records: &mut RecordsOf<Self>, fault: Unavailability);

    /// As [`Lane::abort`].
    fn abort(self, records: RecordsOf<Self>) -> impl Future<Output = ()> + Send;

    /// As [`Lane::take_over`].
    ///
    /// # Errors
    /// As [`Lane::take_over`].
    fn take_over(&mut self) -> impl Future<Output = Result<Option<String>, SinkError>> + Send {
        async { Ok(None) }
    }

    /// As [`Lane::progressed`].
    fn progressed(&mut self, _progress: StoredProgress) {}
}

/// A lane whose publisher runs in the relay's task.
pub struct InPlaceLane<P: Publisher> {
    publisher: P,
    records: RecordsOf<P>,
}

impl<P: InPlacePublisher> InPlaceLane<P> {
    /// A lane of this publisher.
    pub fn new(publisher: P) -> Self {
        let mut records = RecordsOf::<P>::default();
        records.limit_values(publisher.value_bytes_max());
        Self { publisher, records }
    }
}

#[async_trait]
impl<P: InPlacePublisher> Lane for InPlaceLane<P> {
    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        if !self.records.has_ended() {
            self.publisher.submitting(&batch, &mut self.records);
        }
        self.records.submit(batch, Instant::now());
        if !self.records.has_ended() {
            self.publisher.advance(&mut self.records);
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        loop {
            self.publisher.advance(&mut self.records);
            let verdicts = self.records.hand_out();
            if !verdicts.is_empty() {
                return verdicts;
            }
            self.publisher.changed().await;
        }
    }

    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        self.publisher.take_over().await
    }

    fn progressed(&mut self, progress: StoredProgress) {
        self.publisher.progressed(progress);
    }

    async fn abort(self: Box<Self>) {
        self.publisher.abort(self.records).await;
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        // Running out of time is an end as good as the other: what is left is answered below.
        let _ = timeout(limit, async {
            while !self.records.is_settled() {
                verdicts.append(&mut self.outcomes().await);
            }
        })
        .await;
        if !self.records.is_settled() {
            let fault = Unavailability::new(Cause::LaneEnded, super::OUT_OF_TIME);
            self.publisher.end(&mut self.records, fault);
        }
        verdicts.append(&mut self.records.hand_out());
        verdicts
    }
}
