use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, FailedKeys, FenceKind, KeyOrder, Lane, LaneSpec, Outcome, Record, RejectionKind, Sink,
    SinkError, SinkInfo, Verdict,
};
use uuid::Uuid;

/// What a memory sink does to the records that come now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MemorySinkFault {
    /// Accepts.
    #[default]
    None,
    /// Is away: refuses lanes, and ends those that are open.
    Away,
    /// Rejects values larger than so many bytes.
    RejectLarger(usize),
    /// Rejects the records of one key.
    RejectKey(String),
}

/// By partition, epoch and number of a lane.
type Tokens = HashMap<u16, (u64, u64)>;

#[derive(Debug, Default)]
struct Shared {
    accepted: Vec<Record>,
    fault: MemorySinkFault,
    /// By store and destination, the token of the newest lane of each partition: an older one is fenced.
    newest: HashMap<Uuid, HashMap<String, Tokens>>,
}

/// A sink that keeps what it accepts. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemorySink {
    shared: Arc<Mutex<Shared>>,
    single_lane: bool,
}

impl MemorySink {
    /// An empty sink.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same sink, with one lane for a destination: its partitions are owned together.
    #[must_use]
    pub fn with_single_lane(mut self) -> Self {
        self.single_lane = true;
        self
    }

    /// What was accepted so far, in order.
    #[must_use]
    pub fn accepted(&self) -> Vec<Record> {
        self.lock().accepted.clone()
    }

    /// From now on, this.
    pub fn set_fault(&self, fault: MemorySinkFault) {
        self.lock().fault = fault;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "memory",
            batch_events_max: 1_000,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: 10_000,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: self.single_lane,
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        match self.lock().fault {
            MemorySinkFault::Away => Err(away()),
            _ => Ok(()),
        }
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let mut shared = self.lock();
        if shared.fault == MemorySinkFault::Away {
            return Err(away());
        }
        let of_store = shared.newest.entry(spec.scope.store_id).or_default();
        let destination = spec.scope.destination.clone();
        let newest = of_store.entry(destination).or_default();
        for partition in spec.scope.partitions.iter() {
            let newest = newest.entry(partition).or_default();
            *newest = token(&spec).max(*newest);
        }
        let (sink, failed) = (self.clone(), FailedKeys::default());
        Ok(Box::new(MemoryLane {
            sink,
            spec,
            failed,
            seen: 0,
            verdicts: VecDeque::new(),
            broken: false,
        }))
    }
}

fn token(spec: &LaneSpec) -> (u64, u64) {
    (spec.epoch, spec.number)
}

impl Shared {
    /// Whether a newer lane has one of its partitions.
    fn is_fenced(&self, spec: &LaneSpec) -> bool {
        let of_store = self.newest.get(&spec.scope.store_id);
        let newest = of_store.and_then(|of_store| of_store.get(&spec.scope.destination));
        let is_newer =
            |partition| newest.and_then(|newest| newest.get(&partition)) > Some(&token(spec));
        spec.scope.partitions.iter().any(is_newer)
    }
}

fn away() -> SinkError {
    SinkError::Unavailable {
        target: "memory".into(),
        reason: "the sink is away".into(),
    }
}

struct MemoryLane {
    sink: MemorySink,
    spec: LaneSpec,
    failed: FailedKeys,
    /// Failures that the engine has been told.
    seen: u64,
    verdicts: VecDeque<(Verdict, u64)>,
    /// The sink was away once: this lane is over.
    broken: bool,
}

impl MemoryLane {
    fn verdict(&mut self, record: Record) {
        let ticket = record.ticket();
        let (outcome, failure) = match self.outcome(record) {
            Ok(()) => (Outcome::Accepted(None), 0),
            Err(failed) => failed,
        };
        self.verdicts
            .push_back((Verdict { ticket, outcome }, failure));
    }

    /// Accepts the record, or says why not and under which number of failure.
    fn outcome(&mut self, record: Record) -> Result<(), (Outcome, u64)> {
        let mut shared = self
            .sink
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let order_key = record.order_key();
        self.broken |= shared.fault == MemorySinkFault::Away;
        let outcome = if shared.fault == MemorySinkFault::Away {
            Outcome::unavailable(Cause::Connection, "the sink is away")
        } else if self.broken || shared.is_fenced(&self.spec) {
            Outcome::unavailable(
                Cause::LaneEnded,
                "the sink was away, or a newer lane was opened",
            )
        } else if self.failed.refuses(order_key, self.seen) {
            Outcome::unavailable(Cause::BehindFailure, "an earlier event of the key failed")
        } else {
            match &shared.fault {
                MemorySinkFault::RejectLarger(max)
                    if record.value().is_some_and(|value| value.len() > *max) =>
                {
                    Outcome::rejected(RejectionKind::TooLarge, format!("over {max} bytes"))
                }
                MemorySinkFault::RejectKey(key) if record.key() == Some(key) => {
                    Outcome::rejected(RejectionKind::Other, "this key is refused")
                }
                _ => {
                    shared.accepted.push(record);
                    return Ok(());
                }
            }
        };
        Err((outcome, self.failed.note(order_key)))
    }
}

#[async_trait]
impl Lane for MemoryLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        for record in batch {
            self.verdict(record);
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        if self.verdicts.is_empty() {
            return std::future::pending().await;
        }
        let told = self.verdicts.drain(..);
        let verdicts = told.map(|(verdict, failure)| {
            self.seen = self.seen.max(failure);
            verdict
        });
        let verdicts = verdicts.collect();
        self.failed.forget(self.seen);
        verdicts
    }

    async fn abort(self: Box<Self>) {}

    async fn close(self: Box<Self>, _limit: Duration) -> Vec<Verdict> {
        self.verdicts
            .into_iter()
            .map(|(verdict, _)| verdict)
            .collect()
    }
}
