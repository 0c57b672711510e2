//! Watches a claim, and its side reads.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
};

use posthaste_engine::{
    AdvanceOutcome, AfterFailure, Claim, Cursor, Due, Page, ParkedCopy, Parking, PutOff,
    RejectionKind, Settlement, StoreError,
};
use posthaste_testkit::faulty::watch::{Answered, ClaimWatch, SideWatch};
use uuid::Uuid;

use super::{Observer, cells, place_of};
use crate::{
    faults::Reached,
    seen::{DestinationIndex, Seen},
};

/// Which claim did something.
#[derive(Clone)]
pub(super) struct Claimant {
    observer: Observer,
    place: DestinationIndex,
    epoch: u64,
    registration: Uuid,
    partitions: Vec<u16>,
    claimed_in: u64,
}

/// The counts when a statement was sent. Its answer comes later than its effect, and others come in
/// between.
#[derive(Clone, Copy)]
struct SentAt {
    life: u64,
    claims: u64,
}

impl Claimant {
    /// A claim of this registration, made in the present life of the database.
    pub(super) fn new(observer: Observer, claim: &Claim, registration: Uuid) -> Self {
        Self {
            claimed_in: observer.life.load(Relaxed),
            observer,
            place: place_of(&claim.destination),
            epoch: claim.epoch,
            registration,
            partitions: cells(&claim.partitions),
        }
    }

    fn see(&self, seen: &Seen) {
        self.observer.trace.see(seen);
    }

    /// A statement is about to be sent.
    fn sends(&self) -> SentAt {
        SentAt {
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

    /// Notes that a statement changed something, or that it was refused. Answers whether it did.
    fn moved<T>(&self, sent: SentAt, what: &'static str, answer: &Result<T, StoreError>) -> bool {
        let trace = &self.observer.trace;
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
            Err(StoreError::Fenced { .. }) => trace.reach(Reached::FencedStatement),
            Err(StoreError::IncarnationChanged { .. }) => trace.reach(Reached::IncarnationChange),
            Err(_) => {}
        }
        answer.is_ok()
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

/// Watches a claim.
pub(crate) struct ObservedClaim {
    of: Claimant,
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
    pub(super) fn new(of: Claimant) -> Self {
        Self {
            of,
            read: Mutex::default(),
            copies: Mutex::default(),
        }
    }

    fn pages(&self) -> MutexGuard<'_, VecDeque<ReadPage>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn know<'a>(&self, copies: impl IntoIterator<Item = &'a ParkedCopy>) {
        let copies = copies.into_iter();
        let copies = copies.map(|copy| (copy.id, copy.event.id()));
        self.copies().extend(copies);
    }

    fn copies(&self) -> MutexGuard<'_, HashMap<i64, Uuid>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimWatch for ObservedClaim {
    type Side = ObservedSide;

    fn next(&self) -> Answered<'_, Page> {
        Box::new(move |answer| {
            if let Err(StoreError::IncarnationChanged { .. }) = answer {
                self.of.observer.trace.reach(Reached::IncarnationChange);
            }
            let Ok(page) = answer else {
                return;
            };
            let events = page.events.iter();
            self.pages().push_back(ReadPage {
                end: page.end.clone(),
                events: events.map(|event| (event.seq(), event.id())).collect(),
            });
            if !page.events.is_empty() {
                self.of.see(&Seen::Read {
                    place: self.of.place,
                    epoch: self.of.epoch,
                    registration: self.of.registration,
                    events: page.events.len() as u64,
                });
            }
        })
    }

    fn advance<'a>(
        &'a self,
        up_to: &'a Cursor,
        finished: &'a [i64],
    ) -> Answered<'a, AdvanceOutcome> {
        let sent = self.of.sends();
        Box::new(move |answer| {
            if self.of.moved(sent, "advance", answer) {
                let passed = passed(&mut self.pages(), up_to);
                let ids = passed.iter().filter(|(seq, _)| finished.contains(seq));
                let ids = ids.map(|(_, id)| *id).collect();
                self.of.stored(ids, passed.len() as u64);
            }
        })
    }

    fn park<'a>(&'a self, events: &'a [Parking]) -> Answered<'a, ()> {
        for parking in events.iter().filter(|parking| parking.attempts > 0) {
            self.of.attempt_failed(parking.event.id(), parking.kind);
        }
        if events.iter().any(|parking| parking.attempts == 0) {
            self.of.observer.trace.reach(Reached::LeftForItsPlace);
        }
        let place = self.of.place;
        for parking in events {
            let id = parking.event.id();
            self.of.see(&Seen::MayBeSetAside { place, id });
            if parking.next == AfterFailure::Skip {
                self.of.may_leave_behind(id);
            }
        }
        let sent = self.of.sends();
        Box::new(move |answer| {
            if !self.of.moved(sent, "park", answer) {
                return;
            }
            for parking in events {
                self.of.see(&Seen::SetAside {
                    place,
                    id: parking.event.id(),
                    key: parking.event.key().map(Into::into),
                    skipped: parking.next == AfterFailure::Skip,
                });
            }
        })
    }

    fn due(&self) -> Answered<'_, Due> {
        Box::new(move |answer| {
            if let Ok(due) = answer {
                self.know(&due.events);
            }
        })
    }

    fn put_off(&self) -> Answered<'_, Vec<PutOff>> {
        Box::new(move |answer| {
            if let Ok(put_off) = answer {
                self.know(put_off.iter().map(|of| &of.copy));
            }
        })
    }

    fn settle<'a>(&'a self, id: i64, settlement: &'a Settlement) -> Answered<'a, ()> {
        let event = self.copies().get(&id).copied();
        let mut left = None;
        if let (Settlement::Failed { kind, next, .. }, Some(event)) = (settlement, event) {
            self.of.attempt_failed(event, kind);
            left = (*next == AfterFailure::Skip).then_some(event);
        }
        if let Some(event) = left {
            self.of.may_leave_behind(event);
        }
        let sent = self.of.sends();
        Box::new(move |answer| {
            let place = self.of.place;
            if self.of.moved(sent, "settle", answer)
                && let Some(id) = left
            {
                self.of.see(&Seen::LeftBehind { place, id });
            }
        })
    }

    fn join(&self) -> Answered<'_, ()> {
        let sent = self.of.sends();
        Box::new(move |answer| {
            if self.of.moved(sent, "join", answer) {
                self.of.observer.trace.reach(Reached::Join);
            }
        })
    }

    fn side_read(&self) -> ObservedSide {
        ObservedSide {
            of: self.of.clone(),
            read: Vec::new(),
        }
    }
}

/// Watches a side read.
pub(crate) struct ObservedSide {
    of: Claimant,
    read: Vec<(i64, Uuid)>,
}

impl SideWatch for ObservedSide {
    fn page(&mut self, page: &Page) {
        let events = page.events.iter();
        self.read
            .extend(events.map(|event| (event.seq(), event.id())));
    }

    fn advance<'a>(&'a self, finished: &'a [i64]) -> Answered<'a, ()> {
        let sent = self.of.sends();
        Box::new(move |answer| {
            if self.of.moved(sent, "side advance", answer) {
                let stored = self.read.iter().filter(|(seq, _)| finished.contains(seq));
                self.of.stored(stored.map(|(_, id)| *id).collect(), 0);
            }
        })
    }
}
