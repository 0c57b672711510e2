//! Watches of the calls of a store or of a lane. A store is watched behind the faults, where the
//! call is made; a lane before them, where a relay hands its events over.

use posthaste_engine::{
    AdvanceOutcome, Claim, ClaimOutcome, Cursor, Due, Housekeeping, LaneSpec, Page, Parking,
    PutOff, Record, Registered, Settlement, StoreError,
};

/// Takes the answer to a call. A method of a watch returns it before the call is made.
pub type Answered<'a, T> = Box<dyn FnOnce(&Result<T, StoreError>) + Send + 'a>;

fn ignored<'a, T>() -> Answered<'a, T> {
    Box::new(|_| ())
}

/// Watches a store. Each method is named as the call.
pub trait StoreWatch: Send + Sync {
    /// Watches the claims that are opened.
    type Claim: ClaimWatch + 'static;

    /// `Leases::register`.
    fn register(&self) -> Answered<'_, Registered> {
        ignored()
    }

    /// `Ownership::claim`.
    fn claim(&self, relay: Registered) -> Answered<'_, ClaimOutcome> {
        let _ = relay;
        ignored()
    }

    /// `Retention::housekeep`.
    fn housekeep(&self) -> Answered<'_, Housekeeping> {
        ignored()
    }

    /// `Store::open`.
    fn open(&self, claim: &Claim) -> Self::Claim;
}

/// Watches a claim. Each method is named as the call.
pub trait ClaimWatch: Send + Sync {
    /// Watches the side reads that are begun.
    type Side: SideWatch + 'static;

    /// `ClaimReader::next`.
    fn next(&self) -> Answered<'_, Page> {
        ignored()
    }

    /// `ClaimProgress::advance`.
    fn advance<'a>(
        &'a self,
        up_to: &'a Cursor,
        finished: &'a [i64],
    ) -> Answered<'a, AdvanceOutcome> {
        let _ = (up_to, finished);
        ignored()
    }

    /// `ClaimParking::park`.
    fn park<'a>(&'a self, events: &'a [Parking]) -> Answered<'a, ()> {
        let _ = events;
        ignored()
    }

    /// `ClaimParking::due`.
    fn due(&self) -> Answered<'_, Due> {
        ignored()
    }

    /// `ClaimParking::put_off`.
    fn put_off(&self) -> Answered<'_, Vec<PutOff>> {
        ignored()
    }

    /// `ClaimParking::settle`.
    fn settle<'a>(&'a self, id: i64, settlement: &'a Settlement) -> Answered<'a, ()> {
        let _ = (id, settlement);
        ignored()
    }

    /// `ClaimMarkers::join`.
    fn join(&self) -> Answered<'_, ()> {
        ignored()
    }

    /// `ClaimMarkers::side_read`.
    fn side_read(&self) -> Self::Side;
}

/// Watches a side read.
pub trait SideWatch: Send + Sync {
    /// `SideRead::next` has brought this.
    fn page(&mut self, page: &Page) {
        let _ = page;
    }

    /// `SideRead::advance`.
    fn advance<'a>(&'a self, finished: &'a [i64]) -> Answered<'a, ()> {
        let _ = finished;
        ignored()
    }
}

/// Watches a sink.
pub trait SinkWatch: Send + Sync {
    /// Watches the lanes that are opened.
    type Lane: LaneWatch + 'static;

    /// `Sink::open_lane`.
    fn open_lane(&self, spec: &LaneSpec) -> Self::Lane;
}

/// Watches a lane.
pub trait LaneWatch: Send + Sync {
    /// `Lane::submit`.
    fn submit(&self, batch: &[Record]) {
        let _ = batch;
    }
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl StoreWatch for Unwatched {
    type Claim = Self;

    fn open(&self, _: &Claim) -> Self {
        Self
    }
}

impl ClaimWatch for Unwatched {
    type Side = Self;

    fn side_read(&self) -> Self {
        Self
    }
}

impl SideWatch for Unwatched {}

impl SinkWatch for Unwatched {
    type Lane = Self;

    fn open_lane(&self, _: &LaneSpec) -> Self {
        Self
    }
}

impl LaneWatch for Unwatched {}
