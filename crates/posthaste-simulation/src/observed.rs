//! Notes what the calls of a relay make true: those of a store at the moment when their answers are
//! given, those of a lane where a relay hands its events over, before anything can befall them.

mod claim;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use posthaste_engine::{
    Claim, ClaimOutcome, Housekeeping, LaneSpec, Partitions, Record, Registered,
};
use posthaste_testkit::faulty::watch::{Answered, LaneWatch, SinkWatch, StoreWatch};
use uuid::Uuid;

use crate::{
    seen::{DestinationIndex, Seen},
    trace::Trace,
};
use claim::{Claimant, ObservedClaim};

/// The place of a destination's name: `d0`, `d1`.
pub(crate) fn place_of(destination: &str) -> DestinationIndex {
    destination
        .strip_prefix('d')
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

/// The most partitions that a run has.
const CELLS: u16 = 128;

/// Partitions as cells of the finest cut, so that those of another number of partitions can be
/// compared.
pub(crate) fn cells(partitions: &Partitions) -> Vec<u16> {
    let of_each = (CELLS / partitions.count()).max(1);
    let cells = |partition| (0..of_each).map(move |cell| partition * of_each + cell);
    partitions.iter().flat_map(cells).collect()
}

/// Counters that all relays' stores share.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) trace: Trace,
    /// How many crashes the database has seen.
    pub(crate) life: Arc<AtomicU64>,
    /// How many claims were granted.
    claims: Arc<AtomicU64>,
}

impl Observer {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            trace,
            life: Arc::default(),
            claims: Arc::default(),
        }
    }
}

/// Watches the store of one relay's process.
pub(crate) struct ObservedStore {
    pub(crate) observer: Observer,
    /// The registration that the process had last.
    pub(crate) registration: Arc<Mutex<Option<Uuid>>>,
}

impl ObservedStore {
    fn registration(&self) -> std::sync::MutexGuard<'_, Option<Uuid>> {
        let registration = self.registration.lock();
        registration.unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreWatch for ObservedStore {
    type Claim = ObservedClaim;

    fn register(&self) -> Answered<'_, Registered> {
        Box::new(move |answer| {
            if let Ok(registered) = answer {
                *self.registration() = Some(registered.registration);
            }
        })
    }

    fn claim(&self, relay: Registered) -> Answered<'_, ClaimOutcome> {
        let Observer {
            trace,
            life,
            claims,
        } = &self.observer;
        let (life, known) = (life.load(Relaxed), claims.load(Relaxed));
        Box::new(move |answer| {
            if let Ok(ClaimOutcome::Owned(claim)) = answer {
                claims.fetch_add(1, Relaxed);
                trace.see(&Seen::Claimed {
                    place: place_of(&claim.destination),
                    epoch: claim.epoch,
                    partitions: cells(&claim.partitions),
                    registration: relay.registration,
                    life,
                    claims: known,
                });
            }
        })
    }

    fn housekeep(&self) -> Answered<'_, Housekeeping> {
        Box::new(move |answer| {
            if let Ok(done) = answer
                && done.events > 0
            {
                let trace = &self.observer.trace;
                trace.note(format_args!("{} events removed", done.events));
            }
        })
    }

    fn open(&self, claim: &Claim) -> ObservedClaim {
        let registration = self.registration().unwrap_or_default();
        ObservedClaim::new(Claimant::new(self.observer.clone(), claim, registration))
    }
}

/// Watches a sink of one destination, as one relay has it.
pub(crate) struct ObservedSink {
    pub(crate) place: DestinationIndex,
    pub(crate) trace: Trace,
}

/// Watches a lane.
pub(crate) struct ObservedLane {
    place: DestinationIndex,
    trace: Trace,
    epoch: u64,
    registration: Uuid,
}

impl SinkWatch for ObservedSink {
    type Lane = ObservedLane;

    fn open_lane(&self, spec: &LaneSpec) -> ObservedLane {
        ObservedLane {
            place: self.place,
            trace: self.trace.clone(),
            epoch: spec.epoch,
            registration: spec.scope.registration,
        }
    }
}

impl LaneWatch for ObservedLane {
    fn submit(&self, batch: &[Record]) {
        for record in batch {
            self.trace.see(&Seen::Submitted {
                place: self.place,
                id: record.event().id(),
                epoch: self.epoch,
                registration: self.registration,
            });
        }
    }
}
