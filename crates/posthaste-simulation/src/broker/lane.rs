//! A lane: what was submitted travels in order, is judged by the broker when it arrives, and the
//! answers come back.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, EventRef, FailedKeys, KeyOrder, Lane, LaneSpec, Outcome, Record, RejectionKind,
    SinkError, StoredProgress, Verdict,
    rule::{Rule, left_out},
};
use tokio::{sync::mpsc, time::Instant};

use super::{BadKey, Broker, BrokerState, Kind};
use crate::{
    faults::{Injection, Reached},
    seen::Seen,
    writers::FULL,
};

/// A verdict, and the number of its failure, 0 without one.
type Answer = (Verdict, u64);
/// When a batch was handed over, what the engine had been told by then, and the batch.
type Send = (Instant, u64, Vec<Record>);

/// The progress that the broker keeps, as a transactional lane knows it.
#[derive(Default)]
struct Progress {
    accepted: BTreeMap<EventRef, u16>,
    /// Learned when the lane took over, and not submitted since.
    learned: BTreeSet<EventRef>,
    tickets: HashMap<u64, EventRef>,
}

pub(super) struct NetworkLane {
    broker: Broker,
    spec: LaneSpec,
    sends: mpsc::UnboundedSender<Send>,
    answers: mpsc::UnboundedReceiver<Vec<Answer>>,
    /// The last failure that the engine has been told.
    told: u64,
    progress: Arc<Mutex<Progress>>,
    /// The relay has done with this lane, or is dead.
    gone: Arc<AtomicBool>,
}

/// The broker's end of a lane.
struct FarEnd {
    broker: Broker,
    spec: LaneSpec,
    producer: u64,
    life: u64,
    failed: FailedKeys,
    broken: bool,
    hangs: bool,
    progress: Arc<Mutex<Progress>>,
    gone: Arc<AtomicBool>,
}

fn unavailable(ticket: u64, cause: Cause, reason: &str) -> Verdict {
    Verdict {
        ticket,
        outcome: Outcome::unavailable(cause, reason),
    }
}

impl NetworkLane {
    pub(super) fn open(broker: Broker, spec: LaneSpec, producer: u64) -> Self {
        let (sends, sent) = mpsc::unbounded_channel();
        let (tell, answers) = mpsc::unbounded_channel();
        let (progress, gone) = (Arc::default(), Arc::default());
        let far = FarEnd {
            life: broker.lock().life,
            broker: broker.clone(),
            spec: spec.clone(),
            producer,
            failed: FailedKeys::default(),
            broken: false,
            hangs: false,
            progress: Arc::clone(&progress),
            gone: Arc::clone(&gone),
        };
        // Goes on when the lane is aborted, and when its relay dies: nobody calls bytes back.
        tokio::spawn(far.serve(sent, tell));
        Self {
            broker,
            spec,
            sends,
            answers,
            told: 0,
            progress,
            gone,
        }
    }

    fn take(&mut self, answers: Vec<Answer>) -> Vec<Verdict> {
        let take = |(verdict, failure): Answer| {
            self.told = self.told.max(failure);
            verdict
        };
        answers.into_iter().map(take).collect()
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NetworkLane {
    fn drop(&mut self) {
        self.gone.store(true, Relaxed);
        let mut state = self.broker.lock();
        let holder = Some((self.spec.scope.registration, self.spec.number));
        if state.lock == holder {
            state.lock = None;
        }
    }
}

impl FarEnd {
    async fn serve(
        mut self,
        mut sent: mpsc::UnboundedReceiver<Send>,
        tell: mpsc::UnboundedSender<Vec<Answer>>,
    ) {
        let mut arrives = Instant::now();
        let (forward, back) = mpsc::unbounded_channel();
        tokio::spawn(bring_back(self.broker.clone(), back, tell));
        while let Some((sent_at, told, batch)) = sent.recv().await {
            arrives = arrives.max(sent_at + self.broker.travel());
            tokio::time::sleep_until(arrives).await;
            if self.gone.load(Relaxed) {
                self.broker.trace.reach(Reached::LateBytes);
            }
            let answers = self.arrived(told, &batch);
            if !answers.is_empty() {
                // Nobody may be there to hear it.
                drop(forward.send(answers));
            }
        }
    }

    fn arrived(&mut self, told: u64, batch: &[Record]) -> Vec<Answer> {
        let broker = self.broker.clone();
        let mut state = broker.lock();
        if self.life != state.life || state.away {
            self.broken = true;
        }
        let fenced = state.is_fenced(broker.kind, &self.spec, self.producer);
        if fenced {
            broker.count_fenced();
        }
        self.failed.forget(told);
        let was_broken = self.broken;
        let progress = Arc::clone(&self.progress);
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answers = VecDeque::new();
        for record in broker.in_its_order(batch) {
            let serves = !self.broken && !fenced;
            self.hangs |= serves && state.bad(record) == Some(BadKey::HangsTheConnection);
            if self.hangs {
                break;
            }
            let outcome = match (self.broken, fenced) {
                (true, _) => Err((Cause::Connection, "the connection broke")),
                (_, true) => Err((Cause::LaneEnded, "a newer lane was opened")),
                _ => self.judge(&mut state, &mut progress, record, told),
            };
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err((cause, reason)) => unavailable(record.ticket(), cause, reason).outcome,
            };
            let failure = match outcome {
                Outcome::Accepted(_) => 0,
                _ => self.failed.note(record.order_key()),
            };
            let ticket = record.ticket();
            let answer = (Verdict { ticket, outcome }, failure);
            // Confirms come in any order where the protocol has them so.
            if broker.kind == Kind::RabbitMq && broker.trace.one_in(3) {
                answers.push_front(answer);
            } else {
                answers.push_back(answer);
            }
        }
        if broker.kind == Kind::KafkaTransactional && !was_broken && !fenced {
            state.keep_progress(&self.spec.scope.partitions, &progress.accepted);
        }
        answers.into()
    }

    fn judge(
        &mut self,
        state: &mut BrokerState,
        progress: &mut Progress,
        record: &Record,
        told: u64,
    ) -> Result<Outcome, (Cause, &'static str)> {
        let (broker, id) = (&self.broker, record.event().id());
        let pipelined = broker.kind.key_order() == KeyOrder::Pipelined;
        if pipelined && self.failed.refuses(record.order_key(), told) {
            return Err((Cause::BehindFailure, "an earlier event of the key failed"));
        }
        if state.bad(record) == Some(BadKey::EndsTheConnection) {
            self.broken = true;
            return Err((Cause::Connection, "the connection ended"));
        }
        if state.refuses(record) {
            broker.count(Injection::Rejected);
            let place = broker.place;
            broker.trace.see(&Seen::Refused { place, id });
            return Ok(Outcome::rejected(RejectionKind::Other, "poison"));
        }
        if record.topic() == FULL {
            let is_full = state.full && broker.kind.is_full_for(record);
            if is_full && state.silent {
                broker.count(Injection::QueueSilent);
                if broker.trace.one_in(2) {
                    state.unanswered.push(record.clone());
                }
                return Ok(Outcome::silent("no answer"));
            }
            if is_full {
                broker.count(Injection::QueueFull);
                return Ok(Outcome::later("the queue is full"));
            }
            for record in std::mem::take(&mut state.unanswered) {
                broker.deliver(&record);
            }
        }
        let alone = broker.kind == Kind::RabbitMq && state.fussy && !broker.trace.is_quiet();
        if alone && broker.trace.one_in(12) {
            if broker.trace.one_in(4) {
                broker.count(Injection::AckLost);
                broker.deliver(record);
                return Ok(Outcome::silent("no answer"));
            }
            broker.count(Injection::Nacked);
            return Ok(Outcome::later("the queue is full"));
        }
        if broker.kind == Kind::KafkaTransactional {
            let event = record.event().reference();
            progress.learned.remove(&event);
            progress.tickets.insert(record.ticket(), event);
            let (slot, seq) = (record.event().slot(), event.seq);
            let known = progress.accepted.insert(event, slot).is_some();
            let passed = state.positions.entry(slot >> 11).or_default();
            let is_passed = seq <= *passed;
            *passed = seq.max(*passed);
            let suppress = match left_out(Rule::RepeatsSuppressedById) {
                true => is_passed,
                false => known,
            };
            if suppress {
                broker.trace.reach(Reached::SuppressedRepeat);
                return Ok(Outcome::accepted());
            }
        }
        if broker.kind == Kind::Forgetful {
            if !state.recent.insert(id) {
                broker.trace.reach(Reached::SuppressedRepeat);
                return Ok(Outcome::accepted());
            }
            state.unflushed.push_back((Instant::now(), id));
        }
        broker.deliver(record);
        Ok(Outcome::accepted())
    }
}

/// The way back: answers come in the order in which the broker gave them, late now and then, or not
/// at all.
async fn bring_back(
    broker: Broker,
    mut back: mpsc::UnboundedReceiver<Vec<Answer>>,
    tell: mpsc::UnboundedSender<Vec<Answer>>,
) {
    while let Some(answers) = back.recv().await {
        if !broker.trace.is_quiet() && broker.trace.one_in(16) {
            if broker.trace.one_in(2) {
                broker.count(Injection::HalfOpen);
                // Open, so that nobody hears of an end either.
                tell.closed().await;
                return;
            }
            broker.count(Injection::AckSlow);
            tokio::time::sleep(broker.trace.millis(20, 1_500)).await;
        }
        if tell.send(answers).is_err() {
            return;
        }
    }
}

#[async_trait]
impl Lane for NetworkLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        // The other end goes on until this one is dropped.
        drop(self.sends.send((Instant::now(), self.told, batch)));
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        match self.answers.recv().await {
            Some(answers) => self.take(answers),
            None => std::future::pending().await,
        }
    }

    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        tokio::time::sleep(self.broker.travel() / 4).await;
        if self.broker.is_away() {
            return Err(self.broker.unavailable("the broker is away"));
        }
        if self.broker.kind == Kind::KafkaTransactional {
            let accepted = self.broker.lock().take_over(&self.spec.scope);
            let mut progress = self.progress();
            progress.learned = accepted.keys().copied().collect();
            progress.accepted = accepted;
        }
        Ok(None)
    }

    fn progressed(&mut self, progress: StoredProgress) {
        let mut kept = self.progress();
        let Progress {
            accepted,
            tickets: known,
            learned,
        } = &mut *kept;
        match progress {
            StoredProgress::Finished(tickets) => known.retain(|ticket, event| {
                let stored = tickets.contains(ticket);
                if stored {
                    accepted.remove(event);
                }
                !stored
            }),
            StoredProgress::CaughtUp => {
                for event in std::mem::take(learned) {
                    accepted.remove(&event);
                }
            }
        }
    }

    async fn abort(self: Box<Self>) {}

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        while let Ok(answers) = self.answers.try_recv() {
            verdicts.extend(self.take(answers));
        }
        // The engine closes a lane when nothing is in flight.
        let _ = limit;
        verdicts
    }
}
