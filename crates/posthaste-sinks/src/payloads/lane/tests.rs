//! One verdict for each record, and no gap in a key, whatever the lane inside answers when.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use bolero::{TypeGenerator, check};
use posthaste_engine::{Outcome, RejectionKind};
use posthaste_testkit::{
    fuzz::iterations,
    sink_suite::{SuiteEvent, poll_once, records},
};

use super::*;
use crate::payloads::{Compression, compressing::Compressing, jobs, packing::Packing};

/// A call of the engine.
#[derive(Debug, Clone, TypeGenerator)]
enum Call {
    Submit(Vec<Sent>),
    Outcomes,
    /// Threads have their turn.
    Wait,
}

/// An event by its key and its size.
#[derive(Debug, Clone, Copy, TypeGenerator)]
enum Sent {
    Small(u8),
    Large(u8),
    Growing(u8),
}

/// The receiver's answer to the next record.
#[derive(Debug, Clone, Copy, TypeGenerator)]
enum Answer {
    Accept,
    Reject,
    Later,
}

/// A receiver that refuses everything behind a failure, as a file does.
struct Receiver {
    records: LaneRecords<Instant, u64>,
    answers: Vec<Answer>,
    accepted: Arc<Mutex<Vec<u64>>>,
    batches: usize,
}

#[async_trait]
impl Lane for Receiver {
    async fn submit(&mut self, batch: Vec<Record>) {
        assert!((1..=BATCH).contains(&batch.len()));
        for record in &batch {
            let is_marked = record.own_headers().next().is_some();
            let is_other = record.value() != record.event().payload();
            assert_eq!(is_marked, is_other);
        }
        self.records.submit(batch, Instant::now());
        self.batches += 1;
        // Now and then it has no room at once.
        if self.batches.is_multiple_of(2) {
            tokio::task::yield_now().await;
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        self.records
            .decide(|item, _| Decision::Sent(item.record.ticket()));
        let (answers, accepted) = (Mutex::new(&mut self.answers), &self.accepted);
        self.records.answer_each(|ticket| {
            let answer = answers.lock().unwrap().pop();
            match answer.unwrap_or(Answer::Accept) {
                Answer::Accept => {
                    accepted.lock().unwrap().push(*ticket);
                    Outcome::accepted()
                }
                Answer::Reject => Outcome::rejected(RejectionKind::Other, "no"),
                Answer::Later => Outcome::later("not now"),
            }
        });
        let verdicts = self.records.hand_out();
        if verdicts.is_empty() {
            std::future::pending::<()>().await;
        }
        verdicts
    }

    async fn abort(self: Box<Self>) {}

    async fn close(mut self: Box<Self>, _limit: Duration) -> Vec<Verdict> {
        self.records
            .end(Unavailability::new(Cause::LaneEnded, "closed"));
        self.records.hand_out()
    }
}

const BATCH: usize = 3;
/// Bytes that are compressed at once: debug builds are slow.
const AT_ONCE: usize = 100;

type Lanes = (Box<PayloadLane<Packing>>, Arc<Mutex<Vec<u64>>>);

fn lane(answers: Vec<Answer>) -> Lanes {
    lane_of(answers, Duration::from_secs(3_600))
}

/// A lane that has to answer within this time.
fn lane_of(answers: Vec<Answer>, limit: Duration) -> Lanes {
    let accepted = Arc::default();
    let receiver = Receiver {
        records: LaneRecords::default(),
        answers,
        accepted: Arc::clone(&accepted),
        batches: 0,
    };
    let info = posthaste_engine::SinkInfo {
        batch_events_max: BATCH,
        ..crate::open("null:").unwrap().info()
    };
    let compressing = Compressing {
        compression: Compression::Gzip,
        bytes_min: 10,
    };
    let inside = Inside::new(Box::new(receiver), &info);
    let mut lane = PayloadLane::new(inside, Packing::new(Some(compressing), limit));
    lane.work.jobs.at_once_max = AT_ONCE;
    (Box::new(lane), accepted)
}

fn event(sent: Sent) -> SuiteEvent {
    let (key, payload) = match sent {
        Sent::Small(key) => (key, "x".to_owned()),
        Sent::Large(key) => (key, "x".repeat(AT_ONCE + 1)),
        Sent::Growing(key) => (key, "0123456789abcdef".to_owned()),
    };
    SuiteEvent::new(Some(&(key % 3).to_string()), payload)
}

/// The events with their verdicts.
#[derive(Default)]
struct Log {
    keys: Vec<String>,
    verdicts: HashMap<u64, Outcome>,
}

impl Log {
    fn take(&mut self, verdicts: Vec<Verdict>) {
        for Verdict { ticket, outcome } in verdicts {
            assert!(ticket < self.keys.len() as u64);
            let before = self.verdicts.insert(ticket, outcome);
            assert!(before.is_none(), "two verdicts of {ticket}");
        }
    }
}

async fn drive(calls: &[Call], answers: &[Answer], is_closed: bool) {
    let (mut lane, accepted) = lane(answers.to_vec());
    let mut log = Log::default();
    let mut last_accepted: HashMap<String, u64> = HashMap::new();
    for call in calls {
        match call {
            Call::Submit(sent) => {
                let events: Vec<_> = sent.iter().map(|sent| event(*sent)).collect();
                let first = log.keys.len() as u64;
                log.keys.extend(events.iter().filter_map(|e| e.key.clone()));
                lane.submit(records(&events, first)).await;
            }
            Call::Outcomes => {
                if let Some(verdicts) = poll_once(lane.outcomes()).await {
                    log.take(verdicts);
                }
            }
            Call::Wait => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    if !is_closed {
        while log.verdicts.len() < log.keys.len() {
            log.take(lane.outcomes().await);
        }
        // Of records that were answered without being sent.
        while lane.work.jobs.go_on().await {}
        assert_eq!(lane.work.jobs.bytes(), 0, "nothing is held any more");
        lane.abort().await;
    } else {
        log.take(lane.close(Duration::from_millis(1)).await);
        assert_eq!(log.verdicts.len(), log.keys.len(), "each has one");
    }
    // The receiver accepted the events of a key in order.
    for ticket in accepted.lock().unwrap().iter() {
        let key = log.keys[usize::try_from(*ticket).unwrap()].clone();
        let before = last_accepted.insert(key, *ticket);
        assert!(before.is_none_or(|before| before < *ticket));
    }
    let known: HashSet<u64> = accepted.lock().unwrap().iter().copied().collect();
    for (ticket, outcome) in &log.verdicts {
        if matches!(outcome, Outcome::Accepted(_)) {
            assert!(known.contains(ticket), "{ticket} was not accepted");
        }
    }
}

type Input = (Vec<Call>, Vec<Answer>, bool);

#[test]
fn each_record_has_one_verdict_and_keys_keep_their_order() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    check!()
        .with_iterations(iterations(400))
        .with_type::<Input>()
        .for_each(|(calls, answers, is_closed)| {
            runtime.block_on(drive(calls, answers, *is_closed));
        });
}

#[tokio::test]
async fn a_large_payload_holds_up_its_key_and_no_other() {
    let (mut lane, accepted) = lane(Vec::new());
    let large = |key: &str| SuiteEvent::new(Some(key), "x".repeat(4 << 20));
    let small = |key: &str| SuiteEvent::new(Some(key), "x");
    // Those of `c` have to wait until there is room again.
    let events = [
        large("a"),
        small("a"),
        small("b"),
        large("b"),
        large("c"),
        small("d"),
    ];
    lane.submit(records(&events, 0)).await;
    let mut log = Log {
        keys: events.iter().filter_map(|e| e.key.clone()).collect(),
        ..Log::default()
    };
    log.take(poll_once(lane.outcomes()).await.unwrap());
    assert_eq!(*accepted.lock().unwrap(), [2, 5]);
    while log.verdicts.len() < log.keys.len() {
        assert!(lane.work.jobs.bytes() <= jobs::BYTES_MAX);
        log.take(lane.outcomes().await);
    }
    let order = accepted.lock().unwrap().clone();
    let place = |ticket: u64| order.iter().position(|found| *found == ticket);
    assert!(place(0) < place(1) && place(2) < place(3));
    assert_eq!(lane.work.jobs.bytes(), 0);
}

#[tokio::test]
async fn a_payload_that_takes_too_long_to_compress_is_sent_as_it_is() {
    let (mut lane, accepted) = lane_of(Vec::new(), Duration::ZERO);
    let events = [SuiteEvent::new(Some("a"), "x".repeat(20 << 20))];
    lane.submit(records(&events, 0)).await;
    assert_eq!(lane.outcomes().await.len(), 1);
    assert_eq!(*accepted.lock().unwrap(), [0]);
    while lane.work.jobs.go_on().await {}
    assert_eq!(lane.work.jobs.bytes(), 0);
}

/// Each small one would fit beside those before it, and the large one beside none.
#[tokio::test]
async fn a_large_payload_is_not_passed_for_ever() {
    let (mut lane, accepted) = lane(Vec::new());
    let large = SuiteEvent::new(Some("large"), "x".repeat(9 << 20));
    let small = |n: u64| SuiteEvent::new(Some(&format!("key-{n}")), "x".repeat(1 << 20));
    lane.submit(records(&[small(0), large], 0)).await;
    for turn in 0..50 {
        lane.submit(records(&[small(turn)], turn + 2)).await;
        lane.outcomes().await;
        if accepted.lock().unwrap().contains(&1) {
            return;
        }
    }
    panic!("50 events have passed it");
}
