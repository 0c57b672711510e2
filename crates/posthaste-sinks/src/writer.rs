//! The lane of a sink that writes lines to one place: a thread of its own renders, writes and makes
//! durable, so that no task of the relay ever waits for a disk.
//!
//! What waits in the queue is written together, as one *group*: a slow disk makes larger groups, not
//! a longer queue. The first failure to write ends the lane: nothing later on it is accepted, and the
//! target is let go at once, so that a new lane can be opened.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, FailedKeys, Lane, Outcome, Record, RejectionKind, SinkError, Unavailability, Verdict,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::jsonl::{self, Unwritable};

/// When a group is written although more waits. Large enough to hide the cost of an fsync, small
/// beside the relay's memory budget.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Where lines go.
pub(crate) trait Target: Send + 'static {
    /// Takes over whole lines: once this answers `Ok`, they count as accepted.
    ///
    /// # Errors
    /// Why the lines did not, or not surely, arrive. The lane has ended.
    fn append(&mut self, lines: &[u8]) -> Result<(), Unavailability>;
}

/// Tells a lane's thread to write no more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A batch on its way to the thread.
struct Job {
    records: Vec<Record>,
    /// Failures whose verdicts had been handed out when the batch was submitted.
    seen: u64,
}

/// Verdicts on their way back, in the order of submission.
struct Answer {
    verdicts: Vec<Verdict>,
    /// Failures up to and with these verdicts.
    failures: u64,
}

/// The relay's end of the lane.
pub(crate) struct WriterLane {
    queue: Option<mpsc::Sender<Job>>,
    answers: UnboundedReceiver<Answer>,
    /// Tickets without a verdict. The thread answers in order, so the front is the oldest.
    in_flight: VecDeque<u64>,
    seen: u64,
    stop: Stop,
}

impl WriterLane {
    /// Starts the thread. `stop` is the flag that `target` watches too, if it can wait for long.
    pub(crate) fn start(
        name: &'static str,
        target: impl Target,
        stop: Stop,
        event_bytes_max: Option<u64>,
    ) -> Result<Self, SinkError> {
        // Unbounded, since the engine keeps to the sink's `in_flight_events_max`.
        let (queue, jobs) = mpsc::channel();
        let (answers_out, answers) = unbounded_channel();
        let writer = Writer {
            target: Some(target),
            jobs,
            stop: stop.clone(),
            event_bytes_max,
            failed: FailedKeys::default(),
            failures: 0,
            lines: Vec::new(),
            group: Vec::new(),
            answers: answers_out,
        };
        thread::Builder::new()
            .name(format!("posthaste-{name}"))
            .spawn(move || writer.run())
            .map_err(|error| SinkError::Unavailable {
                target: name.to_owned(),
                reason: format!("no thread could be started: {error}"),
            })?;
        Ok(Self {
            queue: Some(queue),
            answers,
            in_flight: VecDeque::new(),
            seen: 0,
            stop,
        })
    }

    fn take(&mut self, answer: Answer) -> Vec<Verdict> {
        self.in_flight.drain(..answer.verdicts.len());
        self.seen = answer.failures;
        answer.verdicts
    }

    /// Answers everything that has no verdict.
    fn give_up(&mut self, cause: Cause, reason: &str) -> Vec<Verdict> {
        let outcome = Outcome::unavailable(cause, reason);
        self.in_flight
            .drain(..)
            .map(|ticket| Verdict {
                ticket,
                outcome: outcome.clone(),
            })
            .collect()
    }
}

#[async_trait]
impl Lane for WriterLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        self.in_flight.extend(batch.iter().map(Record::ticket));
        let job = Job {
            records: batch,
            seen: self.seen,
        };
        if let Some(queue) = &self.queue {
            // A thread that is gone has closed `answers` too, and `outcomes` answers for it.
            let _ = queue.send(job);
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        if self.in_flight.is_empty() {
            pending::<()>().await;
        }
        let Some(answer) = self.answers.recv().await else {
            return self.give_up(Cause::Unknown, "the writing thread broke down (a bug)");
        };
        let mut verdicts = self.take(answer);
        while let Ok(answer) = self.answers.try_recv() {
            verdicts.append(&mut self.take(answer));
        }
        verdicts
    }

    async fn abort(mut self: Box<Self>) {
        self.stop.set();
        self.queue = None;
        // The thread lets go of the target before it closes this channel.
        while self.answers.recv().await.is_some() {}
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        self.queue = None;
        let mut verdicts = Vec::with_capacity(self.in_flight.len());
        let drained = tokio::time::timeout(limit, async {
            while let Some(answer) = self.answers.recv().await {
                verdicts.append(&mut self.take(answer));
            }
        })
        .await;
        self.stop.set();
        let (cause, reason) = match drained {
            Ok(()) => (Cause::Unknown, "the writing thread broke down (a bug)"),
            Err(_) => (Cause::LaneEnded, "not written within the time for closing"),
        };
        verdicts.append(&mut self.give_up(cause, reason));
        verdicts
    }
}

impl Drop for WriterLane {
    /// A lane that is dropped is aborted, as far as this can be without waiting.
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// The thread's end. Fields drop in this order: whoever sees `answers` closed finds the target free.
struct Writer<T> {
    target: Option<T>,
    jobs: mpsc::Receiver<Job>,
    stop: Stop,
    event_bytes_max: Option<u64>,
    failed: FailedKeys,
    failures: u64,
    /// The group's lines and verdicts, reused from group to group.
    lines: Vec<u8>,
    group: Vec<Verdict>,
    answers: UnboundedSender<Answer>,
}

impl<T: Target> Writer<T> {
    fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            self.render(job);
            while self.lines.len() < GROUP_BYTES_MAX
                && let Ok(job) = self.jobs.try_recv()
            {
                self.render(job);
            }
            if self.stop.is_set() {
                return;
            }
            let Some(target) = &mut self.target else {
                return;
            };
            let appended = if self.lines.is_empty() {
                Ok(())
            } else {
                target.append(&self.lines)
            };
            match appended {
                Ok(()) => self.answer(),
                Err(fault) => return self.end(fault),
            }
        }
    }

    fn render(&mut self, job: Job) {
        self.failed.forget(job.seen);
        self.group.reserve(job.records.len());
        for record in job.records {
            let outcome = if self.failed.refuses(record.order_key(), job.seen) {
                Outcome::unavailable(
                    Cause::BehindFailure,
                    "not tried: an earlier event of its key was not accepted",
                )
            } else {
                self.render_record(&record)
            };
            if !matches!(outcome, Outcome::Accepted(_)) {
                self.failures = self.failed.note(record.order_key());
            }
            self.group.push(Verdict {
                ticket: record.ticket(),
                outcome,
            });
        }
    }

    /// *Accepted* is what the record will be once its group is written.
    fn render_record(&mut self, record: &Record) -> Outcome {
        let size = record.value().map_or(0, <[u8]>::len) as u64;
        if let Some(limit) = self.event_bytes_max
            && size > limit
        {
            return Outcome::rejected(
                RejectionKind::TooLarge,
                format!(
                    "payload of {size} bytes, over max_event_bytes={limit} of this destination"
                ),
            );
        }
        match jsonl::write_line(&mut self.lines, record) {
            Ok(()) => Outcome::Accepted(None),
            Err(fault @ (Unwritable::OccurredAt(_) | Unwritable::Memory(_))) => {
                Outcome::rejected(RejectionKind::Invalid, fault.to_string())
            }
        }
    }

    fn answer(&mut self) {
        self.lines.clear();
        // One huge event must not pin its size for the life of the lane.
        self.lines.shrink_to(4 * GROUP_BYTES_MAX);
        // A lane that is gone wants no answer.
        let _ = self.answers.send(Answer {
            verdicts: std::mem::take(&mut self.group),
            failures: self.failures,
        });
    }

    /// Lets go of the target, then answers this group and all that still comes.
    fn end(mut self, fault: Unavailability) {
        self.target = None;
        let later = format!("not tried: the lane had ended: {}", fault.reason);
        let later = Outcome::unavailable(Cause::LaneEnded, later);
        let fault = Outcome::Unavailable(Arc::new(fault));
        self.fail_group(&fault);
        while let Ok(job) = self.jobs.recv() {
            self.group.extend(job.records.iter().map(|record| Verdict {
                ticket: record.ticket(),
                outcome: later.clone(),
            }));
            self.answer();
        }
    }

    /// What was rejected, or refused behind that, stays so.
    fn fail_group(&mut self, fault: &Outcome) {
        for verdict in &mut self.group {
            if matches!(verdict.outcome, Outcome::Accepted(_)) {
                verdict.outcome = fault.clone();
            }
        }
        self.answer();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use posthaste_testkit::sink_suite::{SuiteEvent, poll_once, records};

    use super::*;

    /// Each append says that it has begun, then waits to be told how to end.
    struct Gate {
        begun: UnboundedSender<usize>,
        endings: mpsc::Receiver<Result<(), Unavailability>>,
        lines: Arc<Mutex<Vec<u8>>>,
    }

    impl Target for Gate {
        fn append(&mut self, lines: &[u8]) -> Result<(), Unavailability> {
            let count = lines.iter().filter(|&&byte| byte == b'\n').count();
            self.begun.send(count).unwrap();
            self.endings.recv().unwrap()?;
            self.lines.lock().unwrap().extend_from_slice(lines);
            Ok(())
        }
    }

    struct Handles {
        begun: UnboundedReceiver<usize>,
        endings: mpsc::Sender<Result<(), Unavailability>>,
        lines: Arc<Mutex<Vec<u8>>>,
        next_ticket: u64,
    }

    impl Handles {
        async fn submit(&mut self, lane: &mut WriterLane, count: usize) {
            let events: Vec<_> = (0..count)
                .map(|_| SuiteEvent::new(Some("k"), "v"))
                .collect();
            self.submit_events(lane, &events).await;
        }

        async fn submit_events(&mut self, lane: &mut WriterLane, events: &[SuiteEvent]) {
            lane.submit(records(events, self.next_ticket)).await;
            self.next_ticket += events.len() as u64;
        }

        fn written(&self) -> usize {
            self.lines
                .lock()
                .unwrap()
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count()
        }
    }

    fn gated() -> (Box<WriterLane>, Handles) {
        let (begun_out, begun) = unbounded_channel();
        let (endings, endings_in) = mpsc::channel();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let gate = Gate {
            begun: begun_out,
            endings: endings_in,
            lines: Arc::clone(&lines),
        };
        let lane = WriterLane::start("test", gate, Stop::default(), None).unwrap();
        let handles = Handles {
            begun,
            endings,
            lines,
            next_ticket: 0,
        };
        (Box::new(lane), handles)
    }

    fn causes(verdicts: &[Verdict]) -> Vec<Option<Cause>> {
        verdicts
            .iter()
            .map(|verdict| match &verdict.outcome {
                Outcome::Unavailable(why) => Some(why.cause),
                _ => None,
            })
            .collect()
    }

    fn fault() -> Unavailability {
        Unavailability {
            cause: Cause::Connection,
            reason: "full".to_owned(),
            wait: None,
        }
    }

    #[tokio::test]
    async fn nothing_is_accepted_before_it_is_durable() {
        let (mut lane, mut handles) = gated();
        handles.submit(&mut lane, 2).await;
        handles.begun.recv().await.unwrap();
        assert!(poll_once(lane.outcomes()).await.is_none());
        handles.endings.send(Ok(())).unwrap();
        assert_eq!(causes(&lane.outcomes().await), [None, None]);
    }

    #[tokio::test]
    async fn what_waits_shares_one_append() {
        let (mut lane, mut handles) = gated();
        handles.submit(&mut lane, 1).await;
        assert_eq!(handles.begun.recv().await, Some(1));
        for _ in 0..5 {
            handles.submit(&mut lane, 2).await;
        }
        handles.endings.send(Ok(())).unwrap();
        assert_eq!(handles.begun.recv().await, Some(10));
        handles.endings.send(Ok(())).unwrap();
        assert_eq!(lane.close(Duration::from_secs(60)).await.len(), 11);
        assert_eq!(handles.written(), 11);
    }

    #[tokio::test]
    async fn abort_waits_for_the_write_and_purges_the_rest() {
        let (mut lane, mut handles) = gated();
        handles.submit(&mut lane, 1).await;
        handles.begun.recv().await.unwrap();
        handles.submit(&mut lane, 1).await;
        let mut aborting = lane.abort();
        assert!(poll_once(&mut aborting).await.is_none());
        handles.endings.send(Ok(())).unwrap();
        aborting.await;
        assert_eq!(handles.begun.recv().await, None);
        assert_eq!(handles.written(), 1);
    }

    #[tokio::test]
    async fn a_fault_ends_the_lane() {
        let (mut lane, mut handles) = gated();
        handles.submit(&mut lane, 1).await;
        handles.begun.recv().await.unwrap();
        handles.submit(&mut lane, 1).await;
        handles.endings.send(Err(fault())).unwrap();
        let mut verdicts = lane.outcomes().await;
        // The target is gone by now: nothing can be written any more.
        assert_eq!(handles.begun.recv().await, None);
        handles.submit(&mut lane, 1).await;
        while verdicts.len() < 3 {
            verdicts.append(&mut lane.outcomes().await);
        }
        assert_eq!(
            causes(&verdicts),
            [
                Some(Cause::Connection),
                Some(Cause::LaneEnded),
                Some(Cause::LaneEnded)
            ]
        );
    }

    /// The sender knows of the first failure, but not yet that its follower was refused.
    #[tokio::test]
    async fn nothing_overtakes_a_refused_follower() {
        let (mut lane, mut handles) = gated();
        let other = SuiteEvent::new(Some("other"), "v");
        let mut bad = SuiteEvent::new(Some("k"), "v");
        bad.occurred_at = i64::MAX;
        let follower = || SuiteEvent::new(Some("k"), "v");
        handles
            .submit_events(&mut lane, &[bad, other.clone()])
            .await;
        handles.begun.recv().await.unwrap();
        let first = [follower(), other.clone()];
        handles.submit_events(&mut lane, &first).await;
        handles.endings.send(Ok(())).unwrap();
        assert!(matches!(
            lane.outcomes().await[0].outcome,
            Outcome::Rejected(_)
        ));
        handles.begun.recv().await.unwrap();
        handles.submit_events(&mut lane, &[follower(), other]).await;
        handles.endings.send(Ok(())).unwrap();
        handles.endings.send(Ok(())).unwrap();
        let mut verdicts = lane.outcomes().await;
        while verdicts.len() < 4 {
            verdicts.append(&mut lane.outcomes().await);
        }
        let behind = Some(Cause::BehindFailure);
        assert_eq!(causes(&verdicts), [behind, None, behind, None]);
        handles.submit_events(&mut lane, &[follower()]).await;
        handles.endings.send(Ok(())).unwrap();
        assert_eq!(causes(&lane.outcomes().await), [None]);
    }

    #[tokio::test]
    async fn close_answers_for_a_write_that_hangs() {
        let (mut lane, mut handles) = gated();
        handles.submit(&mut lane, 1).await;
        handles.begun.recv().await.unwrap();
        handles.submit(&mut lane, 1).await;
        let verdicts = lane.close(Duration::ZERO).await;
        assert_eq!(causes(&verdicts), [Some(Cause::LaneEnded); 2]);
        // The hanging write may still end; nothing follows it.
        handles.endings.send(Ok(())).unwrap();
        assert_eq!(handles.begun.recv().await, None);
    }

    #[tokio::test]
    async fn a_broken_thread_leaves_no_record_without_a_verdict() {
        let (mut lane, mut handles) = gated();
        handles.submit(&mut lane, 2).await;
        // The gate panics without its other end.
        drop(handles.endings);
        assert_eq!(causes(&lane.outcomes().await), [Some(Cause::Unknown); 2]);
        lane.submit(records(&[SuiteEvent::new(None, "v")], 2)).await;
        assert_eq!(causes(&lane.outcomes().await), [Some(Cause::Unknown)]);
    }
}
