//! The tools of a case: the fixture, its sink, and a running number of lanes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use posthaste_engine::{LaneScope, LaneSpec, Sink, SinkError};
use uuid::Uuid;

use super::{
    Expected, SuiteEvent, WireRecord, check_arrivals,
    event::{impatient, lane_spec, opened},
    flight::Flight,
};

/// A sink on a destination of its own, and hands on that destination.
///
/// A method with a default is called only when the sink's row says that the fixture has it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The sink.
    fn sink(&self) -> Arc<dyn Sink>;

    /// Everything about the destination that a consumer or an operator can see, in words that stay
    /// the same while nothing happens there.
    async fn trace(&self) -> String;

    /// All that has arrived up to now, in the order in which a consumer sees it: at least
    /// everything that was accepted before the call.
    async fn arrived(&self) -> Vec<SuiteEvent> {
        panic!("its row says that this sink is readable: implement Fixture::arrived")
    }

    /// The same as records, in the same order, but for what an earlier call of either took away.
    async fn arrived_records(&self) -> Vec<WireRecord> {
        panic!("its row says that this sink is readable: implement Fixture::arrived_records")
    }

    /// Takes the destination away, also from lanes that are open.
    async fn take_away(&self) {
        panic!("its row says that this destination can be away: implement Fixture::take_away")
    }

    /// Brings it back, with all that had arrived.
    async fn bring_back(&self) {
        panic!("its row says that this destination can be away: implement Fixture::bring_back")
    }

    /// Keeps the destination from taking more than about a mebibyte, without breaking it.
    async fn stall(&self) {
        panic!("its row says that this destination can stall: implement Fixture::stall")
    }

    /// Lets it go on.
    async fn resume(&self) {
        panic!("its row says that this destination can stall: implement Fixture::resume")
    }

    /// Changes an event into one that the destination rejects. Its id and key stay.
    fn spoil(&self, _event: SuiteEvent) -> SuiteEvent {
        panic!("its row says that this sink rejects events: implement Fixture::spoil")
    }
}

pub(super) struct Bench {
    pub(super) fixture: Box<dyn Fixture>,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) expected: Expected,
    /// One registration for all lanes of a case.
    scope: Arc<LaneScope>,
    lanes: AtomicU64,
}

impl Bench {
    pub(super) fn new(fixture: Box<dyn Fixture>, expected: Expected) -> Self {
        let sink = fixture.sink();
        Self {
            fixture,
            sink,
            expected,
            scope: lane_spec(0).scope,
            lanes: AtomicU64::new(0),
        }
    }

    /// Tries to open a lane, with a higher number than any before it, and a relay's default times.
    pub(super) async fn try_lane(&self) -> Result<Flight, SinkError> {
        self.try_lane_of(impatient(lane_spec(self.next()))).await
    }

    async fn try_lane_of(&self, spec: LaneSpec) -> Result<Flight, SinkError> {
        let scope = Arc::clone(&self.scope);
        let mut lane = self.sink.open_lane(LaneSpec { scope, ..spec }).await?;
        match lane.take_over().await {
            Ok(_) => Ok(Flight::new(lane)),
            Err(error) => {
                lane.abort().await;
                Err(error)
            }
        }
    }

    fn next(&self) -> u64 {
        1 + self.lanes.fetch_add(1, Ordering::Relaxed)
    }

    /// A lane on which a busy machine may be silent for long, as soon as one is given: an earlier
    /// one that ended without being awaited may still have to let go of the destination.
    pub(super) async fn lane(&self) -> Flight {
        let open = || {
            let spec = lane_spec(self.next());
            let lease = 3 * spec.publish_timeout;
            self.try_lane_of(LaneSpec { lease, ..spec })
        };
        opened(open).await
    }

    /// A lane that soon gives up a destination that is away, or stalls.
    pub(super) async fn impatient_lane(&self) -> Flight {
        opened(|| self.try_lane()).await
    }

    /// Checks what arrived, where it can be read. `sent` is in the order of all submissions.
    pub(super) async fn expect_arrivals(&self, sent: &[SuiteEvent], accepted: &BTreeSet<Uuid>) {
        if !self.expected.readable {
            return;
        }
        let mut arrived = self.fixture.arrived().await;
        let mut sent = sent.to_vec();
        if !self.expected.headers_in_order {
            for event in arrived.iter_mut().chain(&mut sent) {
                event.headers.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
        }
        if let Err(fault) = check_arrivals(&sent, accepted, &arrived) {
            panic!("{fault}");
        }
    }
}
