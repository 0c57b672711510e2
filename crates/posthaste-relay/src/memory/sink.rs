use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, CheckReport, Decision, FenceKind, KeyOrder, Lane, LaneRecords, LaneSpec, Outcome,
    Record, RejectionKind, Sink, SinkError, SinkInfo, Unavailability, Verdict,
};
use uuid::Uuid;

/// The treatment of the records that a memory sink gets from now on.
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
    /// Puts off the records of one topic, as a queue that is full.
    FullTopic(String),
}

/// By partition, epoch and number of a lane.
type Tokens = HashMap<u16, (u64, u64)>;

#[derive(Debug, Default)]
struct Shared {
    accepted: Vec<Record>,
    fault: MemorySinkFault,
    /// By store and destination, the token of the newest lane of each partition: an older one is
    /// fenced.
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

    /// The records accepted so far, in order.
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
            event_bytes_max: None,
            requests_max: None,
            deduplication: None,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: self.single_lane,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        match self.lock().fault {
            MemorySinkFault::Away => Err(away()),
            _ => Ok(CheckReport::default()),
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
        Ok(Box::new(MemoryLane {
            sink: self.clone(),
            spec,
            records: LaneRecords::default(),
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

    /// Why the lane has ended, if it has.
    fn ends(&self, spec: &LaneSpec) -> Option<Unavailability> {
        if self.fault == MemorySinkFault::Away {
            return Some(Unavailability::new(Cause::Connection, "the sink is away"));
        }
        self.is_fenced(spec)
            .then(|| Unavailability::new(Cause::LaneEnded, "a newer lane was opened"))
    }

    fn take(&mut self, record: &Record) -> Outcome {
        match &self.fault {
            MemorySinkFault::RejectLarger(max)
                if record.value().is_some_and(|value| value.len() > *max) =>
            {
                Outcome::rejected(RejectionKind::TooLarge, format!("over {max} bytes"))
            }
            MemorySinkFault::RejectKey(key) if record.key() == Some(key.as_bytes()) => {
                Outcome::rejected(RejectionKind::Other, "this key is refused")
            }
            MemorySinkFault::FullTopic(topic) if record.topic() == topic => {
                Outcome::later("the queue is full")
            }
            _ => {
                self.accepted.push(record.clone());
                Outcome::accepted()
            }
        }
    }
}

fn away() -> SinkError {
    SinkError::Unavailable {
        target: "memory".into(),
        reason: "the sink is away".into(),
    }
}

/// Answers within `submit`.
struct MemoryLane {
    sink: MemorySink,
    spec: LaneSpec,
    records: LaneRecords<()>,
}

#[async_trait]
impl Lane for MemoryLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        self.records.submit(batch, ());
        let mut shared = self.sink.lock();
        match shared.ends(&self.spec) {
            Some(fault) if !self.records.has_ended() => {
                self.records.decide(|_, _| Decision::Sent(()));
                self.records.end(fault);
            }
            _ => self
                .records
                .decide(|item, _| Decision::Answered(shared.take(&item.record))),
        }
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        let verdicts = self.records.hand_out();
        if verdicts.is_empty() {
            return std::future::pending().await;
        }
        verdicts
    }

    async fn abort(self: Box<Self>) {}

    async fn close(mut self: Box<Self>, _limit: Duration) -> Vec<Verdict> {
        self.records.hand_out()
    }
}
