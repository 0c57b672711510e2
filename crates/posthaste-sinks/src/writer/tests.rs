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
