//! The worker of a sink that writes lines to one place: a thread of its own renders, writes and
//! makes durable, so that no task of the relay ever waits for a disk.
//!
//! Records that wait are written together, as one *group*: a slow disk makes larger groups, not a
//! longer queue. The first failure to write ends the lane: nothing later on it is accepted, and the
//! target is let go at once, so that a new lane can be opened.

use posthaste_engine::{Decision, Outcome, Record, RejectionKind, SinkError, Unavailability};

use crate::{
    jsonl::{self, Unwritable},
    publisher::{FarEnd, Stop, WorkerLane},
};

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

/// Starts the thread of a lane. `stop` is the flag that `target` watches too, if it can wait for
/// long.
pub(crate) fn start(
    name: &'static str,
    target: impl Target,
    stop: Stop,
    event_bytes_max: Option<u64>,
) -> Result<WorkerLane, SinkError> {
    let watched = stop.clone();
    let work = move |far_end| {
        let writer = LineWriter {
            target,
            stop: watched,
            event_bytes_max,
            lines: Vec::new(),
            far_end,
        };
        writer.run();
    };
    WorkerLane::start_thread(format!("posthaste-{name}"), stop, work).map_err(|error| {
        SinkError::Unavailable {
            target: name.to_owned(),
            reason: format!("no thread could be started: {error}"),
        }
    })
}

/// Fields drop in this order: the target is free when the lane learns that its thread has ended.
struct LineWriter<T> {
    target: T,
    stop: Stop,
    event_bytes_max: Option<u64>,
    /// The group's lines, reused from group to group.
    lines: Vec<u8>,
    /// Its records in flight are those of `lines`.
    far_end: FarEnd,
}

impl<T: Target> LineWriter<T> {
    fn run(mut self) {
        while self.far_end.blocking_receive() {
            self.render();
            while self.lines.len() < GROUP_BYTES_MAX && self.far_end.try_receive() {
                self.render();
            }
            if self.stop.is_set() {
                return;
            }
            let appended = match self.lines.is_empty() {
                true => Ok(()),
                false => self.target.append(&self.lines),
            };
            if let Err(fault) = appended {
                return self.end(fault);
            }
            self.far_end.records.answer_all(&Outcome::Accepted(None));
            self.far_end.hand_out();
            self.lines.clear();
            // One huge event must not pin its size for the life of the lane.
            self.lines.shrink_to(4 * GROUP_BYTES_MAX);
        }
    }

    /// Adds the lines of all that waits to the group.
    fn render(&mut self) {
        let (lines, event_bytes_max) = (&mut self.lines, self.event_bytes_max);
        self.far_end.records.decide(|item, _| {
            match render_record(lines, &item.record, event_bytes_max) {
                Ok(()) => Decision::Sent(()),
                Err(outcome) => Decision::Answered(outcome),
            }
        });
    }

    /// Lets go of the target, then answers the group and all that still comes.
    fn end(self, fault: Unavailability) {
        let Self {
            target,
            mut far_end,
            ..
        } = self;
        drop(target);
        far_end.records.end(fault);
        far_end.hand_out();
        while far_end.blocking_receive() {
            far_end.hand_out();
        }
    }
}

/// Appends the record's line.
///
/// # Errors
/// The outcome of a record that has none.
fn render_record(
    lines: &mut Vec<u8>,
    record: &Record,
    event_bytes_max: Option<u64>,
) -> Result<(), Outcome> {
    let size = record.value().map_or(0, <[u8]>::len) as u64;
    if let Some(limit) = event_bytes_max
        && size > limit
    {
        return Err(Outcome::rejected(
            RejectionKind::TooLarge,
            format!("payload of {size} bytes, over max_event_bytes={limit} of this destination"),
        ));
    }
    jsonl::write_line(lines, record).map_err(
        |fault @ (Unwritable::OccurredAt(_) | Unwritable::Memory(_))| {
            Outcome::rejected(RejectionKind::Invalid, fault.to_string())
        },
    )
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex, mpsc},
        time::Duration,
    };

    use posthaste_engine::{Cause, Lane, Verdict};
    use posthaste_testkit::sink_suite::{SuiteEvent, poll_once, records};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

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
        async fn submit(&mut self, lane: &mut WorkerLane, count: usize) {
            let events: Vec<_> = (0..count)
                .map(|_| SuiteEvent::new(Some("k"), "v"))
                .collect();
            self.submit_events(lane, &events).await;
        }

        async fn submit_events(&mut self, lane: &mut WorkerLane, events: &[SuiteEvent]) {
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

    fn gated() -> (Box<WorkerLane>, Handles) {
        let (begun_out, begun) = unbounded_channel();
        let (endings, endings_in) = mpsc::channel();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let gate = Gate {
            begun: begun_out,
            endings: endings_in,
            lines: Arc::clone(&lines),
        };
        let lane = start("test", gate, Stop::default(), None).unwrap();
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
        Unavailability::new(Cause::Connection, "full")
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
