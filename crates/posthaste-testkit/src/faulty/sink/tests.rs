use crate::sink_suite::lane_spec;
use std::sync::Mutex;

use posthaste_engine::{CheckReport, FenceKind, KeyOrder, PageBuilder, StoredEvent, StoredFields};
use uuid::Uuid;

use super::*;

/// Accepts everything at once, and remembers it.
#[derive(Default)]
struct Accepts(Arc<Mutex<Vec<u64>>>);

struct AcceptingLane {
    accepted: Arc<Mutex<Vec<u64>>>,
    ready: Vec<Verdict>,
}

#[async_trait]
impl Sink for Accepts {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "accepts",
            batch_events_max: 10,
            batch_bytes_max: 1_000,
            in_flight_events_max: 100,
            event_bytes_max: None,
            requests_max: None,
            deduplication: None,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: false,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        Ok(CheckReport::default())
    }

    async fn open_lane(&self, _spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        Ok(Box::new(AcceptingLane {
            accepted: Arc::clone(&self.0),
            ready: Vec::new(),
        }))
    }
}

#[async_trait]
impl Lane for AcceptingLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        for record in batch {
            self.accepted.lock().unwrap().push(record.ticket());
            self.ready.push(Verdict {
                ticket: record.ticket(),
                outcome: Outcome::accepted(),
            });
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        if self.ready.is_empty() {
            std::future::pending::<()>().await;
        }
        std::mem::take(&mut self.ready)
    }

    async fn abort(self: Box<Self>) {}

    async fn close(self: Box<Self>, _limit: Duration) -> Vec<Verdict> {
        self.ready
    }
}

fn event() -> StoredEvent {
    let mut page = PageBuilder::default();
    let fields = StoredFields {
        seq: 1,
        id: Uuid::nil(),
        occurred_at: 0,
        inserted_at: 0,
        slot: 0,
        texts: [None; 9],
        payload: None,
    };
    page.push(&fields, std::iter::empty()).unwrap();
    page.finish().remove(0)
}

fn batch(tickets: std::ops::Range<u64>) -> Vec<Record> {
    tickets.map(|ticket| Record::new(ticket, event())).collect()
}

async fn lane(script: &Script) -> (Box<dyn Lane>, Arc<Mutex<Vec<u64>>>) {
    let sink = Accepts::default();
    let accepted = Arc::clone(&sink.0);
    let sink = Faulty::new(Arc::new(sink), script.clone());
    (sink.open_lane(lane_spec(1)).await.unwrap(), accepted)
}

fn causes(verdicts: Vec<Verdict>) -> Vec<(u64, Option<Cause>)> {
    verdicts
        .into_iter()
        .map(|verdict| match verdict.outcome {
            Outcome::Unavailable(why) => (verdict.ticket, Some(why.cause)),
            _ => (verdict.ticket, None),
        })
        .collect()
}

#[tokio::test]
async fn refused_is_not_done_and_breaks_the_lane() {
    let script = Script::default();
    let (mut lane, accepted) = lane(&script).await;
    script.once(Call::Submit, Fault::Refuse);
    lane.submit(batch(0..2)).await;
    lane.submit(batch(2..3)).await;
    let causes = causes(lane.outcomes().await);
    let expected = [
        (0, Some(Cause::Connection)),
        (1, Some(Cause::Connection)),
        (2, Some(Cause::LaneEnded)),
    ];
    assert_eq!(causes, expected);
    assert!(accepted.lock().unwrap().is_empty());
    script.met(Call::Submit, 1).await;
    assert_eq!(script.calls(Call::Submit), 2);
}

#[tokio::test]
async fn failed_after_is_done() {
    let script = Script::default();
    let (mut lane, accepted) = lane(&script).await;
    script.once(Call::Submit, Fault::FailAfter);
    lane.submit(batch(0..2)).await;
    let unknown = Some(Cause::Unknown);
    assert_eq!(causes(lane.outcomes().await), [(0, unknown), (1, unknown)]);
    assert_eq!(*accepted.lock().unwrap(), [0, 1]);
}

#[tokio::test]
async fn held_answers_wait_for_their_release_and_others_do_not() {
    let script = Script::default();
    let (mut lane, accepted) = lane(&script).await;
    script.release();
    script.once(Call::Submit, Fault::Hold);
    lane.submit(batch(0..2)).await;
    lane.submit(batch(2..3)).await;
    assert_eq!(causes(lane.outcomes().await), [(2, None)]);
    script.met(Call::Submit, 1).await;
    assert_eq!(accepted.lock().unwrap().len(), 3);
    script.release();
    assert_eq!(causes(lane.outcomes().await), [(0, None), (1, None)]);
}

#[tokio::test(start_paused = true)]
async fn slow_answers_come_later() {
    let script = Script::default();
    let (mut lane, _) = lane(&script).await;
    script.once(Call::Submit, Fault::Slow(Duration::from_secs(60)));
    lane.submit(batch(0..1)).await;
    let before = Instant::now();
    assert_eq!(causes(lane.outcomes().await), [(0, None)]);
    assert!(before.elapsed() >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_closed_lane_answers_for_everything() {
    let script = Script::default();
    let (mut lane, _) = lane(&script).await;
    script.once(Call::Submit, Fault::Hold);
    lane.submit(batch(0..1)).await;
    lane.submit(batch(1..2)).await;
    let closed = causes(lane.close(Duration::from_secs(1)).await);
    assert_eq!(closed, [(1, None), (0, Some(Cause::LaneEnded))]);
}
