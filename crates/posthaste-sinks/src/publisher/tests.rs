//! One verdict for each record, whatever a publisher answers when, however its lane ends.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    time::Duration,
};

use bolero::{TypeGenerator, check};
use posthaste_engine::{Cause, Decision, Lane, Outcome, RejectionKind, Unavailability, Verdict};
use posthaste_testkit::{
    fuzz::iterations,
    sink_suite::{SuiteEvent, poll_once, records},
};

use super::{InPlaceLane, InPlacePublisher, Publisher, RecordsOf, WorkerLane};

/// One turn of a publisher.
#[derive(Debug, Clone, Copy, TypeGenerator)]
enum Turn {
    Send(u8),
    Answer(u8, bool),
    AnswerTwice(u8),
    AnswerAll(bool),
    End,
    BreakDown,
}

/// A call of the engine.
#[derive(Debug, Clone, Copy, TypeGenerator)]
enum Call {
    Submit(u8),
    Outcomes,
}

/// How a lane ends.
#[derive(Debug, Clone, Copy, TypeGenerator)]
enum Ending {
    Abort,
    CloseAtOnce,
    Close,
}

/// Does what it is told, turn by turn; then it sends and accepts everything, unless it hangs.
struct Scripted {
    turns: VecDeque<Turn>,
    slots: Vec<usize>,
    hangs: bool,
}

impl Scripted {
    fn new(turns: &[Turn], hangs: bool) -> Self {
        Self {
            turns: turns.iter().copied().collect(),
            slots: Vec::new(),
            hangs,
        }
    }

    fn slot(&self, choice: u8) -> Option<usize> {
        let at = usize::from(choice).checked_rem(self.slots.len())?;
        Some(self.slots[at])
    }
}

fn outcome(accepted: bool) -> Outcome {
    match accepted {
        true => Outcome::accepted(),
        false => Outcome::rejected(RejectionKind::Other, "no"),
    }
}

impl Publisher for Scripted {
    type InFlight = u64;
    type Note = ();

    fn advance(&mut self, records: &mut RecordsOf<Self>) {
        let slots = &mut self.slots;
        let mut send = |limit: usize| {
            let mut left = limit;
            records.decide(|item, next| {
                if left == 0 {
                    return Decision::WaitAll;
                }
                left -= 1;
                slots.push(next.slot);
                Decision::Sent(item.record.ticket())
            });
        };
        match self.turns.pop_front() {
            Some(Turn::Send(count)) => send(usize::from(count % 8)),
            Some(Turn::Answer(choice, accepted)) => {
                if let Some(slot) = self.slot(choice) {
                    records.answer(slot, outcome(accepted));
                }
            }
            Some(Turn::AnswerTwice(choice)) => {
                if let Some(slot) = self.slot(choice) {
                    records.accept(slot);
                    assert_eq!(records.accept(slot), None);
                }
            }
            Some(Turn::AnswerAll(accepted)) => drop(records.answer_all(&outcome(accepted))),
            Some(Turn::End) => {
                drop(records.end(Unavailability::new(Cause::Connection, "gone")));
            }
            Some(Turn::BreakDown) => panic!("a publisher that breaks down"),
            None if self.hangs => send(usize::MAX),
            None => {
                send(usize::MAX);
                records.answer_all(&outcome(true));
            }
        }
    }

    async fn changed(&mut self) {
        match self.turns.is_empty() {
            true => pending().await,
            false => tokio::task::yield_now().await,
        }
    }
}

impl InPlacePublisher for Scripted {
    fn end(&mut self, records: &mut RecordsOf<Self>, fault: Unavailability) {
        records.end(fault);
    }

    async fn abort(self, _records: RecordsOf<Self>) {}
}

/// Verdicts by ticket.
#[derive(Default)]
struct Answered(HashMap<u64, Outcome>);

impl Answered {
    fn take(&mut self, verdicts: Vec<Verdict>, submitted: u64) {
        for Verdict { ticket, outcome } in verdicts {
            assert!(ticket < submitted, "{ticket} was never submitted");
            let former = self.0.insert(ticket, outcome);
            assert_eq!(former, None, "{ticket} has two verdicts");
        }
    }
}

/// Makes the calls, and ends the lane.
async fn drive(mut lane: Box<dyn Lane>, calls: &[Call], ending: Ending) {
    let (mut answered, mut submitted) = (Answered::default(), 0);
    for call in calls {
        match call {
            Call::Submit(count) => {
                let events: Vec<_> = (0..count % 5)
                    .map(|at| SuiteEvent::new((at % 2 == 0).then_some("k"), "v"))
                    .collect();
                lane.submit(records(&events, submitted)).await;
                submitted += events.len() as u64;
            }
            Call::Outcomes => {
                // A worker has its turn.
                tokio::task::yield_now().await;
                if let Some(verdicts) = poll_once(lane.outcomes()).await {
                    answered.take(verdicts, submitted);
                }
            }
        }
    }
    let limit = match ending {
        Ending::Abort => return lane.abort().await,
        Ending::CloseAtOnce => Duration::ZERO,
        Ending::Close => Duration::from_millis(20),
    };
    answered.take(lane.close(limit).await, submitted);
    assert_eq!(answered.0.len() as u64, submitted, "every record has one");
}

type Input = (Vec<Turn>, bool, Vec<Call>, Ending);

#[test]
fn each_record_of_a_worker_has_one_verdict() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    check!()
        .with_iterations(iterations(400))
        .with_type::<Input>()
        .for_each(|(turns, hangs, calls, ending)| {
            runtime.block_on(async {
                let lane = WorkerLane::spawn(Scripted::new(turns, *hangs));
                drive(Box::new(lane), calls, *ending).await;
            });
        });
}

#[test]
fn each_record_of_a_lane_in_place_has_one_verdict() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    check!()
        .with_iterations(iterations(400))
        .with_type::<Input>()
        .for_each(|(turns, hangs, calls, ending)| {
            // A publisher in place is the relay's own code: if it breaks down, so does the relay.
            let is_sound = |turn: &&Turn| !matches!(turn, Turn::BreakDown);
            let turns: Vec<_> = turns.iter().filter(is_sound).copied().collect();
            runtime.block_on(async {
                let lane = InPlaceLane::new(Scripted::new(&turns, *hangs));
                drive(Box::new(lane), calls, *ending).await;
            });
        });
}

#[tokio::test]
async fn a_worker_that_breaks_down_leaves_no_record_without_a_verdict() {
    let mut lane = WorkerLane::spawn(Scripted::new(&[Turn::Send(0), Turn::BreakDown], false));
    let event = SuiteEvent::new(None, "v");
    for ticket in 0..2 {
        lane.submit(records(std::slice::from_ref(&event), ticket))
            .await;
        let verdicts = lane.outcomes().await;
        assert_eq!(verdicts.len(), 1);
        assert!(
            matches!(
                &verdicts[0].outcome,
                Outcome::Unavailable(why) if why.cause == Cause::Unknown
            ),
            "{verdicts:?}"
        );
    }
}
