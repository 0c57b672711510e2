//! The lane inside a decorator's.

use std::{collections::VecDeque, mem, pin::Pin, time::Duration};

use posthaste_engine::{Lane, Record, SinkError, SinkInfo, StoredProgress, Verdict};

type Submission = Pin<Box<dyn Future<Output = Box<dyn Lane>> + Send>>;

/// A lane, and the records that it gets next. A batch that waits for room in its client is not lost
/// when the wait for it is given up.
pub(super) struct Inside {
    state: State,
    next: VecDeque<Record>,
    /// News that it is told once a batch is handed over.
    progress: Vec<StoredProgress>,
    batch_events_max: usize,
    batch_bytes_max: usize,
}

enum State {
    Idle(Box<dyn Lane>),
    Submitting(Submission),
    Gone,
}

impl Inside {
    pub(super) fn new(lane: Box<dyn Lane>, info: &SinkInfo) -> Self {
        Self {
            state: State::Idle(lane),
            next: VecDeque::new(),
            progress: Vec::new(),
            batch_events_max: info.batch_events_max.max(1),
            batch_bytes_max: info.batch_bytes_max,
        }
    }

    /// The record is handed over next, behind all that were given before it.
    pub(super) fn give(&mut self, record: Record) {
        self.next.push_back(record);
    }

    /// Hands over all records. Cancel safe.
    pub(super) async fn hand_over(&mut self) {
        loop {
            self.be_idle().await;
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            match mem::replace(&mut self.state, State::Gone) {
                State::Idle(mut lane) => {
                    self.state = State::Submitting(Box::pin(async move {
                        lane.submit(batch).await;
                        lane
                    }));
                }
                other => self.state = other,
            }
        }
    }

    /// Verdicts of records that were handed over. Nothing may wait to be handed over: the lane
    /// takes it for granted that whoever has its verdicts heeds them in what is submitted next.
    /// Cancel safe.
    pub(super) async fn outcomes(&mut self) -> Vec<Verdict> {
        debug_assert!(self.next.is_empty());
        match &mut self.state {
            State::Idle(lane) => lane.outcomes().await,
            State::Submitting(_) | State::Gone => std::future::pending().await,
        }
    }

    pub(super) async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        match &mut self.state {
            State::Idle(lane) => lane.take_over().await,
            State::Submitting(_) | State::Gone => Ok(None),
        }
    }

    pub(super) fn progressed(&mut self, progress: StoredProgress) {
        match &mut self.state {
            State::Idle(lane) => lane.progressed(progress),
            State::Submitting(_) | State::Gone => self.progress.push(progress),
        }
    }

    pub(super) async fn abort(mut self) {
        self.be_idle().await;
        if let State::Idle(lane) = self.state {
            lane.abort().await;
        }
    }

    /// Ends the lane. Records that were not handed over never will be.
    pub(super) async fn close(mut self, limit: Duration) -> Vec<Verdict> {
        self.be_idle().await;
        match self.state {
            State::Idle(lane) => lane.close(limit).await,
            State::Submitting(_) | State::Gone => Vec::new(),
        }
    }

    async fn be_idle(&mut self) {
        if let State::Submitting(submission) = &mut self.state {
            let mut lane = submission.await;
            for progress in self.progress.drain(..) {
                lane.progressed(progress);
            }
            self.state = State::Idle(lane);
        }
    }

    /// As many as the sink takes at once: records that waited for each other come all together.
    fn next_batch(&mut self) -> Vec<Record> {
        let (mut events, mut bytes) = (0, 0);
        for record in &self.next {
            bytes += weight(record);
            if events == self.batch_events_max || events > 0 && bytes > self.batch_bytes_max {
                break;
            }
            events += 1;
        }
        self.next.drain(..events).collect()
    }
}

/// Bytes of a record, as the engine counts those of a batch.
fn weight(record: &Record) -> usize {
    let own = record.event().payload().map_or(0, <[u8]>::len);
    let value = record.value().map_or(0, <[u8]>::len);
    record.event().footprint() - own + value
}
