//! A claim that is watched, and its side reads.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
};

use async_trait::async_trait;
use posthaste_engine::{
    AdvanceOutcome, Budget, Claim, ClaimMarkers, ClaimParking, ClaimProgress, ClaimReader,
    ClaimReports, Claimed, Cursor, Due, EventRef, Marker, Page, Parking, RejectionKind, Settlement,
    SideRead, StoreError,
};
use uuid::Uuid;

use super::{Observer, cells, place_of};
use crate::{
    faults::Reached,
    seen::{DestinationIndex, Seen},
};

/// Which claim did something.
#[derive(Clone)]
pub(super) struct Of {
    observer: Observer,
    place: DestinationIndex,
    epoch: u64,
    registration: Uuid,
    partitions: Vec<u16>,
    claimed_in: u64,
}

impl Of {
    /// A claim of this registration, made in this life of the database.
    pub(super) fn new(
        observer: Observer,
        claim: &Claim,
        registration: Uuid,
        claimed_in: u64,
    ) -> Self {
        Self {
            observer,
            place: place_of(&claim.destination),
            epoch: claim.epoch,
            registration,
            partitions: cells(&claim.partitions),
            claimed_in,
        }
    }

    fn see(&self, seen: &Seen) {
        self.observer.trace.see(seen);
    }

    /// A statement is about to be sent.
    fn sends(&self) -> Sent {
        Sent {
            life: self.observer.life.load(Relaxed),
            claims: self.observer.claims.load(Relaxed),
        }
    }

    fn may_leave_behind(&self, id: Uuid) {
        let place = self.place;
        self.see(&Seen::MayBeLeftBehind { place, id });
    }

    fn attempt_failed(&self, id: Uuid, kind: &str) {
        self.see(&Seen::AttemptFailed {
            place: self.place,
            id,
            alone: kind == RejectionKind::FailsAlone.as_str(),
        });
    }

    /// Notes that a statement changed something, or that it was refused.
    fn moved<T>(&self, sent: Sent, what: &'static str, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.see(&Seen::Moved {
                place: self.place,
                epoch: self.epoch,
                partitions: self.partitions.clone(),
                claimed_in: self.claimed_in,
                life: sent.life,
                claims: sent.claims,
                what,
            }),
            Err(StoreError::Fenced { .. }) => self.observer.trace.reach(Reached::FencedStatement),
            Err(StoreError::IncarnationChanged { .. }) => {
                self.observer.trace.reach(Reached::IncarnationChange);
            }
            Err(_) => {}
        }
    }

    fn stored(&self, ids: Vec<Uuid>, passed: u64) {
        self.see(&Seen::Stored {
            place: self.place,
            epoch: self.epoch,
            registration: self.registration,
            ids,
            passed,
        });
    }
}

/// The counts when a statement was sent. Its answer comes later than its effect, and others come in
/// between.
#[derive(Clone, Copy)]
struct Sent {
    life: u64,
    claims: u64,
}

pub(super) struct ObservedClaim {
    inner: Arc<dyn Claimed>,
    of: Of,
    /// Pages that were read and not stored, in the order of their reads.
    read: Mutex<VecDeque<ReadPage>>,
    /// The events of parked copies that were handed out.
    copies: Mutex<HashMap<i64, Uuid>>,
}

struct ReadPage {
    end: Cursor,
    events: VecDeque<(i64, Uuid)>,
}

/// Takes out what an advance to `up_to` has passed: whole pages, and the beginning of the last one.
fn passed(read: &mut VecDeque<ReadPage>, up_to: &Cursor) -> Vec<(i64, Uuid)> {
    let last = |page: &ReadPage| match up_to.seq() {
        None => page.end.is(up_to).then_some(page.events.len()),
        Some(seq) => {
            let at = page.events.iter().position(|(event, _)| *event == seq);
            at.map(|at| at + 1)
        }
    };
    let found = read.iter().enumerate();
    let mut found = found.filter_map(|(index, page)| last(page).map(|count| (index, count)));
    let Some((index, count)) = found.next() else {
        return Vec::new();
    };
    drop(found);
    let mut passed: Vec<_> = read.drain(..index).flat_map(|page| page.events).collect();
    match up_to.seq() {
        Some(_) => passed.extend(read[0].events.drain(..count)),
        None => passed.extend(read.pop_front().into_iter().flat_map(|page| page.events)),
    }
    passed
}

impl ObservedClaim {
    pub(super) fn new(inner: Arc<dyn Claimed>, of: Of) -> Self {
        Self {
            inner,
            of,
            read: Mutex::default(),
            copies: Mutex::default(),
        }
    }

    /// The event of which this is the copy.
    fn copy(&self, id: i64) -> Option<Uuid> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.get(&id).copied()
    }
}

#[async_trait]
impl ClaimReader for ObservedClaim {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        let page = self.inner.next(budget).await;
        if let Err(StoreError::IncarnationChanged { .. }) = &page {
            self.of.observer.trace.reach(Reached::IncarnationChange);
        }
        let page = page?;
        {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            let events = page.events.iter();
            read.push_back(ReadPage {
                end: page.end.clone(),
                events: events.map(|event| (event.seq(), event.id())).collect(),
            });
        }
        if !page.events.is_empty() {
            self.of.see(&Seen::Read {
                place: self.of.place,
                epoch: self.of.epoch,
                registration: self.of.registration,
                events: page.events.len() as u64,
            });
        }
        Ok(page)
    }

    async fn hinted(&self) {
        self.inner.hinted().await;
    }
}

#[async_trait]
impl ClaimProgress for ObservedClaim {
    async fn advance(
        &self,
        up_to: &Cursor,
        finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        let sent = self.of.sends();
        let answer = self.inner.advance(up_to, finished).await;
        self.of.moved(sent, "advance", &answer);
        let outcome = answer?;
        let (ids, passed) = {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            let passed = passed(&mut read, up_to);
            let ids = passed.iter().filter(|(seq, _)| finished.contains(seq));
            (ids.map(|(_, id)| *id).collect(), passed.len() as u64)
        };
        self.of.stored(ids, passed);
        Ok(outcome)
    }
}

#[async_trait]
impl ClaimParking for ObservedClaim {
    async fn set_aside(&self) -> Result<Vec<EventRef>, StoreError> {
        self.inner.set_aside().await
    }

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        let skipped = |parking: &Parking| parking.skip && parking.retry_in.is_none();
        for parking in events {
            self.of.attempt_failed(parking.event.id(), parking.kind);
        }
        for parking in events.iter().filter(|parking| skipped(parking)) {
            self.of.may_leave_behind(parking.event.id());
        }
        let sent = self.of.sends();
        let answer = self.inner.park(events).await;
        self.of.moved(sent, "park", &answer);
        answer?;
        for parking in events {
            self.of.see(&Seen::SetAside {
                place: self.of.place,
                id: parking.event.id(),
                key: parking.event.key().map(Into::into),
                skipped: skipped(parking),
            });
        }
        Ok(())
    }

    async fn due(&self, limit: usize) -> Result<Due, StoreError> {
        let due = self.inner.due(limit).await?;
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.extend(due.events.iter().map(|copy| (copy.id, copy.event.id())));
        Ok(due)
    }

    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError> {
        let event = self.copy(id);
        if let (Settlement::Failed { kind, .. }, Some(event)) = (settlement, event) {
            self.of.attempt_failed(event, kind);
        }
        let left = matches!(
            settlement,
            Settlement::Failed {
                retry_in: None,
                skip: true,
                ..
            }
        );
        let left = event.filter(|_| left);
        if let Some(event) = left {
            self.of.may_leave_behind(event);
        }
        let sent = self.of.sends();
        let answer = self.inner.settle(id, settlement).await;
        self.of.moved(sent, "settle", &answer);
        answer?;
        if let Some(id) = left {
            let place = self.of.place;
            self.of.see(&Seen::LeftBehind { place, id });
        }
        Ok(())
    }
}

#[async_trait]
impl ClaimMarkers for ObservedClaim {
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError> {
        self.inner.markers(after, limit).await
    }

    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        self.inner.marked(keys).await
    }

    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError> {
        let inner = self.inner.side_read(keys).await?;
        Ok(Box::new(ObservedSide {
            inner,
            of: self.of.clone(),
            read: Vec::new(),
        }))
    }

    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError> {
        let sent = self.of.sends();
        let answer = self.inner.join(keys, at).await;
        self.of.moved(sent, "join", &answer);
        answer?;
        self.of.observer.trace.reach(Reached::Join);
        Ok(())
    }
}

#[async_trait]
impl ClaimReports for ObservedClaim {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        self.inner.report(breaker, last_error).await
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        self.inner.reached(cluster).await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        self.inner.fences_taken(former).await
    }
}

struct ObservedSide {
    inner: Box<dyn SideRead>,
    of: Of,
    read: Vec<(i64, Uuid)>,
}

#[async_trait]
impl SideRead for ObservedSide {
    fn leave(&mut self, keys: &[String]) {
        self.inner.leave(keys);
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        let page = self.inner.next(budget, until).await?;
        let events = page.events.iter();
        self.read
            .extend(events.map(|event| (event.seq(), event.id())));
        Ok(page)
    }

    async fn advance(&mut self, at: &Cursor, finished: &[i64]) -> Result<(), StoreError> {
        let sent = self.of.sends();
        let answer = self.inner.advance(at, finished).await;
        self.of.moved(sent, "side advance", &answer);
        answer?;
        let stored = self.read.iter().filter(|(seq, _)| finished.contains(seq));
        self.of.stored(stored.map(|(_, id)| *id).collect(), 0);
        Ok(())
    }
}
