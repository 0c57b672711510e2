//! A store that is watched: what its answers make true is noted at the moment they are given.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    Admin, AdvanceOutcome, AuditLine, Budget, Claim, ClaimOutcome, ClaimRequest, Claimed, Cursor,
    DeadAction, DestinationState, Due, Housekeeping, Marker, Ownership, Page, ParkedEvent,
    ParkedFilter, Parking, Partitions, Registered, Registration, Renewal, Retained, Retention,
    Settlement, Shares, SideRead, Status, Store, StoreError, StoreInfo,
};
use uuid::Uuid;

use crate::{
    faults::Reached,
    seen::{Place, Seen},
    witness::Witness,
};

/// The place of a destination's name: `d0`, `d1`.
pub(crate) fn place_of(destination: &str) -> Place {
    destination
        .strip_prefix('d')
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

/// The most partitions that a run has.
const CELLS: u16 = 128;

/// Partitions as cells of the finest cut, so that those of another number of partitions can be compared.
pub(crate) fn cells(partitions: &Partitions) -> Vec<u16> {
    let of_each = (CELLS / partitions.count()).max(1);
    let cells = |partition| (0..of_each).map(move |cell| partition * of_each + cell);
    partitions.iter().flat_map(cells).collect()
}

/// What all relays' views of the database share.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) witness: Witness,
    /// How many crashes the database has seen.
    pub(crate) life: Arc<AtomicU64>,
    /// How many claims were granted.
    claims: Arc<AtomicU64>,
}

impl Observer {
    pub(crate) fn new(witness: Witness) -> Self {
        Self {
            witness,
            life: Arc::default(),
            claims: Arc::default(),
        }
    }
}

pub(crate) struct Observed {
    inner: Arc<dyn Store>,
    observer: Observer,
    /// The registration that this relay's process had last.
    pub(crate) registration: Arc<Mutex<Option<Uuid>>>,
}

impl Observed {
    pub(crate) fn new(inner: Arc<dyn Store>, observer: Observer) -> Self {
        Self {
            inner,
            observer,
            registration: Arc::default(),
        }
    }
}

#[async_trait]
impl Ownership for Observed {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let registered = self.inner.register(registration).await?;
        let mut ours = self
            .registration
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *ours = Some(registered.registration);
        Ok(registered)
    }

    async fn renew(&self, relay: Registered, lease: Duration) -> Result<Renewal, StoreError> {
        self.inner.renew(relay, lease).await
    }

    async fn fence(&self, by: Registered, dead: Uuid, why: &str) -> Result<(), StoreError> {
        self.inner.fence(by, dead, why).await
    }

    async fn claim(
        &self,
        relay: Registered,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.inner.claim(relay, request).await?;
        if let ClaimOutcome::Owned(claim) = &outcome {
            self.observer.claims.fetch_add(1, Relaxed);
            self.observer.witness.see(&Seen::Claimed {
                place: place_of(&claim.destination),
                epoch: claim.epoch,
                partitions: cells(&claim.partitions),
                registration: relay.registration,
                life: self.observer.life.load(Relaxed),
            });
        }
        Ok(outcome)
    }

    async fn revoke(
        &self,
        relay: Registered,
        destination: &str,
        settle: Duration,
    ) -> Result<(), StoreError> {
        self.inner.revoke(relay, destination, settle).await
    }

    async fn shares(&self, destination: &str) -> Result<Shares, StoreError> {
        self.inner.shares(destination).await
    }

    async fn withdraw(
        &self,
        relay: Registered,
        destination: &str,
        unsettled: Duration,
    ) -> Result<(), StoreError> {
        self.inner.withdraw(relay, destination, unsettled).await
    }

    async fn announce_leaving(&self, relay: Registered) -> Result<(), StoreError> {
        self.inner.announce_leaving(relay).await
    }

    async fn leave(&self, relay: Registered, unsettled: Duration) -> Result<(), StoreError> {
        self.inner.leave(relay, unsettled).await
    }
}

#[async_trait]
impl Admin for Observed {
    async fn status(&self) -> Result<Status, StoreError> {
        self.inner.status().await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        self.inner.hand_overs(limit).await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        self.inner.parked(filter, limit).await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        self.inner.act(filter, action).await
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        self.inner.set_destination(name, state).await
    }
}

#[async_trait]
impl Retention for Observed {
    async fn housekeep(&self, by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        let done = self.inner.housekeep(by).await?;
        if done.events > 0 {
            let Observer { witness, .. } = &self.observer;
            witness.note(format_args!("{} events removed", done.events));
        }
        Ok(done)
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        self.inner.retained().await
    }
}

#[async_trait]
impl Store for Observed {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        let life = self.observer.life.load(Relaxed);
        let inner = self.inner.open(claim).await?;
        let registration = inner.registration();
        Ok(Arc::new(ObservedClaim {
            inner,
            of: Of {
                observer: self.observer.clone(),
                place: place_of(&claim.destination),
                epoch: claim.epoch,
                registration,
                partitions: cells(&claim.partitions),
                claimed_in: life,
            },
            read: Mutex::default(),
            copies: Mutex::default(),
        }))
    }
}

/// Which claim did something.
#[derive(Clone)]
struct Of {
    observer: Observer,
    place: Place,
    epoch: u64,
    registration: Uuid,
    partitions: Vec<u16>,
    claimed_in: u64,
}

impl Of {
    fn see(&self, seen: &Seen) {
        self.observer.witness.see(seen);
    }

    /// A statement is about to be sent.
    fn sends(&self) -> Sent {
        Sent {
            life: self.observer.life.load(Relaxed),
            claims: self.observer.claims.load(Relaxed),
        }
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
            Err(StoreError::Fenced { .. }) => self.observer.witness.reach(Reached::FencedStatement),
            Err(StoreError::IncarnationChanged { .. }) => {
                self.observer.witness.reach(Reached::IncarnationChange);
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

/// What was true when a statement was sent: its answer comes later than its effect, and others come in between.
#[derive(Clone, Copy)]
struct Sent {
    life: u64,
    claims: u64,
}

struct ObservedClaim {
    inner: Arc<dyn Claimed>,
    of: Of,
    /// What was read and not stored, in the order in which it was read.
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

#[async_trait]
impl Claimed for ObservedClaim {
    async fn markers(&self, limit: usize) -> Result<Vec<Marker>, StoreError> {
        let markers = self.inner.markers(limit).await?;
        Ok(markers)
    }

    async fn set_aside(&self) -> Result<Vec<Uuid>, StoreError> {
        self.inner.set_aside().await
    }

    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        let page = self.inner.next(budget).await;
        if let Err(StoreError::IncarnationChanged { .. }) = &page {
            self.of.observer.witness.reach(Reached::IncarnationChange);
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

    async fn park(&self, events: &[Parking]) -> Result<(), StoreError> {
        let sent = self.of.sends();
        let answer = self.inner.park(events).await;
        self.of.moved(sent, "park", &answer);
        answer?;
        for parking in events {
            let skipped = parking.skip && parking.retry_in.is_none();
            self.of.see(&Seen::SetAside {
                place: self.of.place,
                id: parking.event.id(),
                key: parking.event.key().map(Into::into),
                skipped,
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
        let sent = self.of.sends();
        let answer = self.inner.settle(id, settlement).await;
        self.of.moved(sent, "settle", &answer);
        answer?;
        let left = matches!(
            settlement,
            Settlement::Failed {
                retry_in: None,
                skip: true,
                ..
            }
        );
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = copies.get(&id).filter(|_| left) {
            self.of.see(&Seen::LeftBehind {
                place: self.of.place,
                id: *event,
            });
        }
        Ok(())
    }

    async fn side_read(&self, key: &str) -> Result<Box<dyn SideRead>, StoreError> {
        let inner = self.inner.side_read(key).await?;
        Ok(Box::new(ObservedSide {
            inner,
            of: self.of.clone(),
            read: Vec::new(),
        }))
    }

    async fn join(&self, key: &str, at: &Cursor) -> Result<(), StoreError> {
        let sent = self.of.sends();
        let answer = self.inner.join(key, at).await;
        self.of.moved(sent, "join", &answer);
        answer?;
        self.of.observer.witness.reach(Reached::Join);
        Ok(())
    }

    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        self.inner.report(breaker, last_error).await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        self.inner.fences_taken(former).await
    }

    async fn hinted(&self) {
        self.inner.hinted().await;
    }

    fn registration(&self) -> Uuid {
        self.inner.registration()
    }
}

struct ObservedSide {
    inner: Box<dyn SideRead>,
    of: Of,
    read: Vec<(i64, Uuid)>,
}

#[async_trait]
impl SideRead for ObservedSide {
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
