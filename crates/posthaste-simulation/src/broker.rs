//! Simulated brokers, each with the weaknesses that its kind's documents admit, behind a network
//! that takes its time: what was handed to it arrives late, an aborted lane's and a dead relay's
//! bytes too.

mod kind;
mod lane;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, EventRef, FenceKind, KeyOrder, Lane, LaneScope, LaneSpec, OrderBy, Partitions,
    Record, Sink, SinkError, SinkInfo,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    faults::{Injection, Reached},
    observed::cells,
    payload,
    seen::{DestinationIndex, Seen},
    trace::Trace,
};
pub(crate) use kind::BadKey;
pub use kind::Kind;
use lane::NetworkLane;

/// Bytes handed to the network arrive or are gone within this: less than the settle time.
pub const NETWORK: Duration = Duration::from_millis(900);
/// A forgetful broker flushes after this time.
const UNFLUSHED: Duration = Duration::from_millis(400);

/// One broker, as all relays see it.
#[derive(Clone)]
pub(crate) struct Broker {
    pub(crate) kind: Kind,
    pub(crate) place: DestinationIndex,
    /// The order that its destination keeps.
    pub(crate) order_by: OrderBy,
    pub(crate) trace: Trace,
    /// Bytes are long under way, of so many events at once.
    slow: Option<usize>,
    /// It keeps no order within a batch (SQS, Kinesis).
    scatters: bool,
    state: Arc<Mutex<BrokerState>>,
}

#[derive(Default)]
struct BrokerState {
    away: bool,
    /// How often it has crashed: connections of an earlier life are broken.
    life: u64,
    /// Poison is refused, and messages alone at random.
    fussy: bool,
    /// The queue of the topic [`FULL`](crate::writers::FULL), or some of its partitions, take
    /// nothing.
    full: bool,
    /// It answers nothing either, and takes some of what it got once it has room again.
    silent: bool,
    /// These: in the order in which they came, before all that comes then.
    unanswered: Vec<Record>,
    bad_key: Option<(String, BadKey)>,
    /// The first event of the key, if it is one alone that is bad.
    bad_event: Option<Uuid>,
    /// How often each poison event was refused.
    refused: HashMap<Uuid, u64>,
    /// The token of the newest lane of each cell: a partition's number has another meaning once
    /// they are cut anew.
    tokens: BTreeMap<u16, (u64, u64)>,
    /// The producer epoch of each relay's transactional id.
    producers: BTreeMap<Uuid, u64>,
    /// Events that were accepted and may be sent again, with their slots.
    progress: BTreeMap<EventRef, u16>,
    /// The greatest number accepted of each eighth of the slots: by which nothing may be
    /// suppressed.
    positions: BTreeMap<u16, i64>,
    /// The holder of the file's lock.
    lock: Option<(Uuid, u64)>,
    unflushed: VecDeque<(Instant, Uuid)>,
    /// The ids of a de-duplication window.
    recent: BTreeSet<Uuid>,
}

impl Broker {
    pub(crate) fn new(
        kind: Kind,
        place: DestinationIndex,
        order_by: OrderBy,
        trace: Trace,
    ) -> Self {
        let state = BrokerState {
            fussy: true,
            ..BrokerState::default()
        };
        Self {
            kind,
            place,
            order_by,
            trace,
            slow: None,
            scatters: false,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Bytes are long under way, of so many events at once.
    pub(crate) fn slow(self, in_flight: usize) -> Self {
        Self {
            slow: Some(in_flight),
            ..self
        }
    }

    /// It keeps no order within a batch, where its kind may do so.
    pub(crate) fn scattering(self) -> Self {
        Self {
            scatters: self.kind.key_order() == KeyOrder::OneAtATime,
            ..self
        }
    }

    fn lock(&self) -> MutexGuard<'_, BrokerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.lock().away = away;
    }

    pub(crate) fn is_away(&self) -> bool {
        self.lock().away
    }

    /// Nothing is refused for its own sake any more.
    pub(crate) fn be_content(&self) {
        let mut state = self.lock();
        (state.fussy, state.full, state.bad_key) = (false, false, None);
    }

    pub(crate) fn set_full(&self, full: bool) {
        let mut state = self.lock();
        state.full = full;
        state.silent = full && self.kind == Kind::RabbitMq && self.trace.one_in(2);
    }

    pub(crate) fn set_bad_key(&self, bad: Option<(String, BadKey)>) {
        let mut state = self.lock();
        (state.bad_key, state.bad_event) = (bad, None);
    }

    /// Connections break; what was acknowledged and not flushed is gone.
    pub(crate) fn crash(&self) {
        let mut state = self.lock();
        state.life += 1;
        let now = Instant::now();
        let unflushed = std::mem::take(&mut state.unflushed);
        let lost = unflushed
            .into_iter()
            .filter(|(at, _)| now - *at < UNFLUSHED);
        let lost: Vec<Uuid> = lost.map(|(_, id)| id).collect();
        state.recent.clear();
        drop(state);
        if self.kind == Kind::Forgetful {
            // It goes on suppressing what came after the crash, in the midst of a replay.
            self.trace.see(&Seen::RepeatsMayShuffle);
            for id in lost {
                let place = self.place;
                self.trace.see(&Seen::ForgottenByTheBroker { place, id });
            }
        }
    }

    fn unavailable(&self, reason: &str) -> SinkError {
        SinkError::Unavailable {
            target: format!("d{}", self.place),
            reason: reason.to_owned(),
        }
    }

    /// How long bytes are under way: mostly short, sometimes as long as the network allows.
    fn travel(&self) -> Duration {
        match self.kind {
            Kind::File => Duration::ZERO,
            _ if self.slow.is_some() && self.trace.is_quiet() => Duration::ZERO,
            _ if self.slow.is_some() => NETWORK.mul_f64(0.3 + 0.7 * self.trace.share()),
            _ => NETWORK.mul_f64(self.trace.share().powi(6)),
        }
    }

    /// Takes what a fence by token, producer or lock compares.
    fn enlist(&self, spec: &LaneSpec) -> Result<u64, SinkError> {
        let mut state = self.lock();
        match self.kind {
            Kind::File => {
                if state.lock.is_some() {
                    return Err(self.unavailable("another process holds the lock"));
                }
                state.lock = Some((spec.scope.registration, spec.number));
            }
            Kind::Token => {
                for cell in cells(&spec.scope.partitions) {
                    let newest = state.tokens.entry(cell).or_default();
                    *newest = spec.token().max(*newest);
                }
            }
            Kind::KafkaTransactional => {
                let producer = state.producers.entry(spec.scope.registration);
                let epoch = producer.or_default();
                *epoch += 1;
                return Ok(*epoch);
            }
            Kind::KafkaIdempotent | Kind::RabbitMq | Kind::Forgetful => {}
        }
        Ok(0)
    }
}

impl BrokerState {
    /// Whether whoever opened the lane has lost its right by what the broker compares.
    fn is_fenced(&self, kind: Kind, spec: &LaneSpec, producer: u64) -> bool {
        match kind {
            Kind::Token => {
                let newer = |cell: &u16| self.tokens.get(cell) > Some(&spec.token());
                cells(&spec.scope.partitions).iter().any(newer)
            }
            Kind::KafkaTransactional => {
                self.producers.get(&spec.scope.registration) != Some(&producer)
            }
            _ => false,
        }
    }

    /// Ends what former owners may have under way; answers the progress of the lane's partitions.
    fn take_over(&mut self, scope: &LaneScope) -> BTreeMap<EventRef, u16> {
        for former in &scope.former {
            *self.producers.entry(*former).or_default() += 1;
        }
        let ours = self.progress.iter();
        ours.filter(|(_, slot)| scope.partitions.contains_slot(**slot))
            .map(|(event, slot)| (*event, *slot))
            .collect()
    }

    /// Replaces the progress of these partitions.
    fn keep_progress(&mut self, partitions: &Partitions, accepted: &BTreeMap<EventRef, u16>) {
        self.progress
            .retain(|_, slot| !partitions.contains_slot(*slot));
        let accepted = accepted.iter().map(|(event, slot)| (*event, *slot));
        self.progress.extend(accepted);
    }

    /// The broker's answer to this event, if it is bad.
    fn bad(&mut self, record: &Record) -> Option<BadKey> {
        let (key, bad) = self.bad_key.as_ref()?;
        let id = record.event().id();
        let is_bad = record.event().key() == Some(key)
            && (*bad == BadKey::Refused || *self.bad_event.get_or_insert(id) == id);
        is_bad.then_some(*bad)
    }

    /// Whether this event is refused for its own sake.
    fn refuses(&mut self, record: &Record) -> bool {
        if self.bad(record) == Some(BadKey::Refused) {
            return true;
        }
        let poison = payload::poison(record.value());
        if !self.fussy || poison == 0 {
            return false;
        }
        let refused = self.refused.entry(record.event().id()).or_default();
        *refused += 1;
        *refused <= poison
    }
}

#[async_trait]
impl Sink for Broker {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "simulated",
            batch_events_max: 20,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: self.slow.unwrap_or(100),
            event_bytes_max: None,
            requests_max: None,
            deduplication: None,
            key_order: self.kind.key_order(),
            fence: match self.kind.is_exact() {
                true => FenceKind::Exact,
                false => FenceKind::Timing,
            },
            single_lane: self.kind == Kind::File,
            parts: self.kind.parts(),
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        match self.is_away() {
            true => Err(self.unavailable("the broker is away")),
            false => Ok(CheckReport::default()),
        }
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        self.check().await?;
        tokio::time::sleep(self.travel() / 4).await;
        self.check().await?;
        let producer = self.enlist(&spec)?;
        Ok(Box::new(NetworkLane::open(self.clone(), spec, producer)))
    }
}

impl Broker {
    /// Notes an event that consumers see from now on.
    fn deliver(&self, record: &Record) {
        self.trace.see(&Seen::Delivered {
            place: self.place,
            id: record.event().id(),
            key: record.event().key().map(Into::into),
            n: payload::number(record.value()),
        });
    }

    /// The events of a batch in the order in which it takes them.
    fn in_its_order<'a>(&self, batch: &'a [Record]) -> Vec<&'a Record> {
        let mut batch: Vec<&Record> = batch.iter().collect();
        if self.scatters && batch.len() > 1 {
            self.count(Injection::Scattered);
            for last in (1..batch.len()).rev() {
                let other = usize::try_from(self.trace.roll(last as u64 + 1));
                batch.swap(last, other.unwrap_or(last));
            }
        }
        batch
    }

    fn count_fenced(&self) {
        self.trace.reach(Reached::FencedBytes);
    }

    fn count(&self, injection: Injection) {
        self.trace.inject(injection);
    }
}
