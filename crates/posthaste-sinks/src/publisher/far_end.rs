//! A worker's end of a lane.

use std::{future::pending, time::Instant};

use posthaste_engine::{LaneRecords, Record, VerdictBatch};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError};

/// A batch on its way to the worker.
pub(super) struct Submission {
    pub(super) batch: Vec<Record>,
    /// Failures that the engine knew when it submitted the batch.
    pub(super) known: u64,
}

/// A worker's end of its lane: batches come in, verdicts go out. While it exists, the relay's end
/// waits for verdicts.
pub struct FarEnd<F = (), N = ()> {
    /// The records of the lane.
    pub records: LaneRecords<Instant, F, N>,
    submissions: UnboundedReceiver<Submission>,
    verdicts: UnboundedSender<VerdictBatch>,
    is_closed: bool,
}

impl<F, N: Default> FarEnd<F, N> {
    pub(super) fn new(
        submissions: UnboundedReceiver<Submission>,
        verdicts: UnboundedSender<VerdictBatch>,
    ) -> Self {
        Self {
            records: LaneRecords::default(),
            submissions,
            verdicts,
            is_closed: false,
        }
    }

    /// Waits for a batch, and takes it in; for ever once no more will come. Cancel safe.
    pub(super) async fn receive(&mut self) {
        if self.is_closed {
            pending::<()>().await;
        }
        let received = self.submissions.recv().await;
        self.take_in(received);
    }

    /// Waits for a batch on a thread, and takes it in. Answers false once no more will come.
    pub fn blocking_receive(&mut self) -> bool {
        let received = self.submissions.blocking_recv();
        self.take_in(received)
    }

    /// Takes in a batch that is there already. Answers whether there was one.
    pub fn try_receive(&mut self) -> bool {
        match self.submissions.try_recv() {
            Ok(submission) => self.take_in(Some(submission)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => false,
        }
    }

    fn take_in(&mut self, received: Option<Submission>) -> bool {
        match received {
            Some(Submission { batch, known }) => {
                self.records.submit_from(batch, known, Instant::now());
            }
            None => self.is_closed = true,
        }
        !self.is_closed
    }

    /// Whether no more batches will come, and everything has its verdict.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed && self.records.is_settled()
    }

    /// Hands out the verdicts since the last call.
    pub fn hand_out(&mut self) {
        let batch = self.records.take_verdicts();
        if !batch.verdicts.is_empty() {
            // A lane that is gone wants no answer.
            let _ = self.verdicts.send(batch);
        }
    }
}
