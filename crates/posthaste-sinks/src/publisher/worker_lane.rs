//! The relay's end of a lane whose work is done elsewhere.

use std::{
    collections::HashSet,
    future::pending,
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{Cause, Lane, Outcome, Record, Verdict, VerdictBatch};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::timeout,
};

use super::{
    Publisher,
    far_end::{FarEnd, Submission},
};

const BROKEN: &str = "the lane's worker broke down (a bug)";

/// Tells a lane's thread to write no more.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the lane was aborted, or closed and out of time.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The relay's end of a lane. A task or a thread of its own does the work.
pub struct WorkerLane {
    submissions: Option<UnboundedSender<Submission>>,
    verdicts: UnboundedReceiver<VerdictBatch>,
    /// Tickets without a verdict.
    owed: HashSet<u64>,
    /// Failures whose verdicts the engine has.
    known: u64,
    worker: Worker,
}

enum Worker {
    Task(JoinHandle<()>),
    Thread(Stop),
}

impl WorkerLane {
    /// Runs the publisher in a task, until the lane is closed and everything answered. A lane that
    /// is aborted drops it.
    pub fn spawn<P: Publisher>(publisher: P) -> Self {
        let (submissions, verdicts, far_end) = channels();
        let task = tokio::spawn(run(far_end, publisher));
        Self::new(submissions, verdicts, Worker::Task(task))
    }

    /// Starts a thread that does `work` until no more batches come. It must return soon once `stop`
    /// is set, and let go of its destination before it drops its [`FarEnd`].
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn start_thread<F: Send + 'static, N: Default + Send + 'static>(
        name: String,
        stop: Stop,
        work: impl FnOnce(FarEnd<F, N>) + Send + 'static,
    ) -> io::Result<Self> {
        let (submissions, verdicts, far_end) = channels();
        thread::Builder::new()
            .name(name)
            .spawn(move || work(far_end))?;
        Ok(Self::new(submissions, verdicts, Worker::Thread(stop)))
    }

    fn new(
        submissions: UnboundedSender<Submission>,
        verdicts: UnboundedReceiver<VerdictBatch>,
        worker: Worker,
    ) -> Self {
        Self {
            submissions: Some(submissions),
            verdicts,
            owed: HashSet::new(),
            known: 0,
            worker,
        }
    }

    fn take(&mut self, batch: VerdictBatch) -> Vec<Verdict> {
        self.known = batch.failures;
        for verdict in &batch.verdicts {
            self.owed.remove(&verdict.ticket);
        }
        batch.verdicts
    }

    /// Answers everything that has no verdict.
    fn give_up(&mut self, cause: Cause, reason: &str) -> Vec<Verdict> {
        let outcome = Outcome::unavailable(cause, reason);
        let mut tickets: Vec<u64> = mem::take(&mut self.owed).into_iter().collect();
        tickets.sort_unstable();
        tickets
            .into_iter()
            .map(|ticket| Verdict {
                ticket,
                outcome: outcome.clone(),
            })
            .collect()
    }

    /// Tells the worker to end, and drops what a task holds.
    async fn end_worker(&mut self) {
        match &mut self.worker {
            Worker::Task(task) => {
                task.abort();
                // It answers that it was cancelled, or has ended by itself.
                let _ = task.await;
            }
            Worker::Thread(stop) => stop.set(),
        }
    }
}

/// The relay's ends of the channels, and the worker's. The channels are unbounded, since the engine
/// keeps to the sink's `in_flight_events_max`.
fn channels<F, N: Default>() -> (
    UnboundedSender<Submission>,
    UnboundedReceiver<VerdictBatch>,
    FarEnd<F, N>,
) {
    let (submissions, submitted) = unbounded_channel();
    let (given, verdicts) = unbounded_channel();
    (submissions, verdicts, FarEnd::new(submitted, given))
}

async fn run<P: Publisher>(mut far_end: FarEnd<P::InFlight, P::Note>, mut publisher: P) {
    far_end.records.limit_values(publisher.value_bytes_max());
    loop {
        publisher.advance(&mut far_end.records);
        far_end.hand_out();
        if far_end.is_done() {
            break;
        }
        tokio::select! {
            () = publisher.changed() => {}
            () = far_end.receive() => {}
        }
    }
    publisher.goodbye().await;
}

#[async_trait]
impl Lane for WorkerLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        self.owed.extend(batch.iter().map(Record::ticket));
        let known = self.known;
        if let Some(submissions) = &self.submissions {
            // A worker that is gone has closed `verdicts` too, and `outcomes` answers for it.
            let _ = submissions.send(Submission { batch, known });
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        if self.owed.is_empty() {
            pending::<()>().await;
        }
        let Some(batch) = self.verdicts.recv().await else {
            return self.give_up(Cause::Unknown, BROKEN);
        };
        let mut all = self.take(batch);
        while let Ok(batch) = self.verdicts.try_recv() {
            all.append(&mut self.take(batch));
        }
        all
    }

    async fn abort(mut self: Box<Self>) {
        self.submissions = None;
        self.end_worker().await;
        // A thread lets go of its destination before it closes this channel.
        while self.verdicts.recv().await.is_some() {}
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.submissions = None;
        let mut all = Vec::with_capacity(self.owed.len());
        let drained = timeout(limit, async {
            while let Some(batch) = self.verdicts.recv().await {
                all.append(&mut self.take(batch));
            }
        })
        .await;
        self.end_worker().await;
        let (cause, reason) = match drained {
            Ok(()) => (Cause::Unknown, BROKEN),
            Err(_) => (Cause::LaneEnded, super::OUT_OF_TIME),
        };
        all.append(&mut self.give_up(cause, reason));
        all
    }
}

impl Drop for WorkerLane {
    /// A lane that is dropped is aborted, as far as this can be without waiting.
    fn drop(&mut self) {
        match &self.worker {
            Worker::Task(task) => task.abort(),
            Worker::Thread(stop) => stop.set(),
        }
    }
}
