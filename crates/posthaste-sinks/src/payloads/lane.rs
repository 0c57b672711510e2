//! A lane that changes payloads, and hands the records on to the lane inside it.

use std::{
    collections::HashMap,
    future::pending,
    panic::resume_unwind,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use posthaste_engine::{
    Cause, Decision, Lane, LaneRecords, Outcome, Record, SinkError, StoredProgress, Unavailability,
    Verdict, WaitingRecord,
};
use tokio::{task::JoinSet, time::timeout_at};

#[cfg(feature = "claim-check")]
use super::{
    claim::Claim,
    claims::{Claims, Step},
};
use super::{compressing::Compressing, inside::Inside};

/// Bytes that are compressed at once in the relay's task: it takes less than a millisecond, and a
/// thread would take as long to begin.
const AT_ONCE_BYTES: usize = 32 << 10;
/// Bytes that a thread compresses before it answers.
const TURN_BYTES: usize = 256 << 10;
/// Payloads that are compressed, or in flight as such, at the most; a larger one is alone. As much
/// as the engine's own window by default, since each such payload is in memory twice.
const COMPRESSED_BYTES_MAX: usize = 8 << 20;

/// A payload that was compressed.
struct Compressed {
    ticket: u64,
    /// Bytes of the payload as it was.
    bytes: usize,
    /// None: it stays as it is.
    payload: Option<Bytes>,
}

/// The note on a record that waits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Note {
    #[default]
    New,
    Compressing,
}

/// The note on a record that the lane inside has.
#[derive(Debug)]
struct InFlight {
    /// Bytes that its compressed payload holds.
    bytes: usize,
}

/// Only the first waiting record of a key is worked on; the others wait for it, and those of other
/// keys pass it.
pub(super) struct PayloadLane {
    inside: Inside,
    records: LaneRecords<Instant, InFlight, Note>,
    /// Those in flight, by ticket.
    slots: HashMap<u64, usize>,
    work: Work,
    /// Whether another decision about records that wait is possible.
    is_due: bool,
}

/// The changes of payloads.
struct Work {
    /// Payloads that are not stored elsewhere are compressed so.
    compressing: Option<Compressing>,
    #[cfg(feature = "claim-check")]
    claims: Option<Claims>,
    jobs: JoinSet<Vec<Compressed>>,
    /// Results of jobs, until the decisions that follow at once.
    done: HashMap<u64, Option<Bytes>>,
    /// Work of the next jobs, by ticket.
    next: Vec<(u64, Bytes)>,
    /// Bytes of `next`, of jobs, and in flight.
    bytes: usize,
    /// Bytes that may still be compressed in this turn of the relay's task, and in each.
    at_once: usize,
    at_once_max: usize,
}

impl PayloadLane {
    pub(super) fn new(inside: Inside, compressing: Option<Compressing>) -> Self {
        Self {
            inside,
            records: LaneRecords::default(),
            slots: HashMap::new(),
            work: Work {
                compressing,
                #[cfg(feature = "claim-check")]
                claims: None,
                jobs: JoinSet::new(),
                done: HashMap::new(),
                next: Vec::new(),
                bytes: 0,
                at_once: 0,
                at_once_max: AT_ONCE_BYTES,
            },
            is_due: false,
        }
    }

    /// The same lane, which stores large payloads.
    #[cfg(feature = "claim-check")]
    pub(super) fn with_claims(mut self, claims: Option<Claims>) -> Self {
        self.work.claims = claims;
        self
    }

    /// Decides about the records that wait, and hands on those that are ready.
    async fn advance(&mut self) {
        let Self {
            inside,
            records,
            slots,
            work,
            is_due,
        } = self;
        if std::mem::take(is_due) {
            work.begin();
            records.decide(|item, next| {
                let change = match work.step(item) {
                    Next::Ready(change) => change,
                    #[cfg(feature = "claim-check")]
                    Next::Answered(outcome) => return Decision::Answered(outcome),
                    Next::Wait => return Decision::Wait,
                };
                let bytes = change.bytes();
                work.bytes += bytes;
                slots.insert(item.record.ticket(), next.slot);
                inside.give(change.apply(item.record.clone()));
                Decision::Sent(InFlight { bytes })
            });
            work.begin_jobs();
        }
        inside.hand_over().await;
    }

    fn answered(&mut self, verdicts: Vec<Verdict>) {
        for Verdict { ticket, outcome } in verdicts {
            let Some(slot) = self.slots.remove(&ticket) else {
                continue;
            };
            // Later records of its key are not tried.
            self.is_due |= !matches!(outcome, Outcome::Accepted(_));
            if let Some(in_flight) = self.records.answer(slot, outcome) {
                self.work.bytes -= in_flight.bytes;
                self.is_due |= in_flight.bytes > 0;
            }
        }
    }
}

/// The next step of a record.
enum Next {
    /// The lane inside gets it.
    Ready(Change),
    #[cfg(feature = "claim-check")]
    Answered(Outcome),
    Wait,
}

/// The change of a record.
enum Change {
    None,
    Compressed(Compressing, Bytes),
    #[cfg(feature = "claim-check")]
    Stored(Claim),
}

impl Change {
    /// Bytes of a compressed payload.
    fn bytes(&self) -> usize {
        match self {
            Self::Compressed(_, payload) => payload.len(),
            _ => 0,
        }
    }

    fn apply(self, record: Record) -> Record {
        match self {
            Self::None => record,
            Self::Compressed(compressing, payload) => compressing.apply(record, payload),
            #[cfg(feature = "claim-check")]
            Self::Stored(claim) => claim.apply(record),
        }
    }
}

impl Work {
    /// A round of steps begins.
    fn begin(&mut self) {
        self.at_once = self.at_once_max;
        #[cfg(feature = "claim-check")]
        if let Some(claims) = &mut self.claims {
            claims.begin();
        }
    }

    fn step(&mut self, item: &mut WaitingRecord<Note>) -> Next {
        #[cfg(feature = "claim-check")]
        if let Some(claims) = &mut self.claims
            && let Some(step) = claims.step(&item.record)
        {
            return match step {
                Step::Ready(claim) => Next::Ready(Change::Stored(claim)),
                Step::Answered(outcome) => Next::Answered(outcome),
                Step::Wait => Next::Wait,
            };
        }
        let record = &item.record;
        if item.note == Note::Compressing {
            return match self.done.remove(&record.ticket()) {
                Some(payload) => self.compressed(payload),
                None => Next::Wait,
            };
        }
        let wanted = self
            .compressing
            .and_then(|of| Some((of, of.wants(record)?)));
        let Some((compressing, payload)) = wanted else {
            return Next::Ready(Change::None);
        };
        if self.bytes > 0 && self.bytes + payload.len() > COMPRESSED_BYTES_MAX {
            return Next::Wait;
        }
        if let Some(rest) = self.at_once.checked_sub(payload.len()) {
            self.at_once = rest;
            return self.compressed(compressing.compress(&payload));
        }
        item.note = Note::Compressing;
        self.bytes += payload.len();
        self.next.push((record.ticket(), payload));
        Next::Wait
    }

    fn compressed(&self, payload: Option<Bytes>) -> Next {
        let compressed = self.compressing.zip(payload);
        Next::Ready(compressed.map_or(Change::None, |(compressing, payload)| {
            Change::Compressed(compressing, payload)
        }))
    }

    /// Waits until another step of some record is possible. Cancel safe.
    async fn go_on(&mut self) {
        #[cfg(feature = "claim-check")]
        let claims = async {
            match &mut self.claims {
                Some(claims) => claims.changed().await,
                None => pending().await,
            }
        };
        #[cfg(not(feature = "claim-check"))]
        let claims = pending();
        tokio::select! {
            () = claims => {}
            Some(done) = self.jobs.join_next() => match done {
                Ok(done) => self.take_in(done),
                // A bug, and none that more events would survive.
                Err(broken) => resume_unwind(broken.into_panic()),
            },
        }
    }

    fn take_in(&mut self, done: Vec<Compressed>) {
        for one in done {
            self.bytes -= one.bytes;
            self.done.insert(one.ticket, one.payload);
        }
    }

    fn begin_jobs(&mut self) {
        // The rest belongs to records that were answered meanwhile.
        self.done.clear();
        let mut all = std::mem::take(&mut self.next).into_iter().peekable();
        while all.peek().is_some() {
            let (mut payloads, mut bytes) = (Vec::new(), 0);
            while let Some(next) = all.next_if(|_| bytes < TURN_BYTES) {
                bytes += next.1.len();
                payloads.push(next);
            }
            let Some(compressing) = self.compressing else {
                return;
            };
            self.jobs.spawn_blocking(move || {
                let each = payloads.into_iter();
                each.map(|(ticket, payload)| Compressed {
                    ticket,
                    bytes: payload.len(),
                    payload: compressing.compress(&payload),
                })
                .collect()
            });
        }
    }
}

#[async_trait]
impl Lane for PayloadLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        #[cfg(feature = "claim-check")]
        if let Some(claims) = &mut self.work.claims {
            claims.submitted(&batch);
        }
        self.records.submit(batch, Instant::now());
        self.is_due = true;
        self.advance().await;
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        loop {
            self.advance().await;
            let verdicts = self.records.hand_out();
            if !verdicts.is_empty() {
                return verdicts;
            }
            tokio::select! {
                verdicts = self.inside.outcomes() => self.answered(verdicts),
                () = self.work.go_on() => self.is_due = true,
            }
        }
    }

    async fn take_over(&mut self) -> Result<Option<String>, SinkError> {
        self.inside.take_over().await
    }

    fn progressed(&mut self, progress: StoredProgress) {
        self.inside.progressed(progress);
    }

    async fn abort(self: Box<Self>) {
        let Self { inside, work, .. } = *self;
        // Payloads that are being stored are given up with it.
        drop(work);
        inside.abort().await;
    }

    async fn close(mut self: Box<Self>, limit: Duration) -> Vec<Verdict> {
        let end = tokio::time::Instant::now() + limit;
        let mut all = Vec::new();
        // Running out of time is an end as good as the other: what is left is answered below.
        let _ = timeout_at(end, async {
            while self.records.has_waiting() {
                all.append(&mut self.outcomes().await);
            }
            self.advance().await;
        })
        .await;
        let rest = end.saturating_duration_since(tokio::time::Instant::now());
        let Self {
            inside,
            mut records,
            slots,
            work,
            ..
        } = *self;
        drop(work);
        for Verdict { ticket, outcome } in inside.close(rest).await {
            if let Some(slot) = slots.get(&ticket) {
                records.answer(*slot, outcome);
            }
        }
        let reason = "not answered within the time for closing";
        records.end(Unavailability::new(Cause::LaneEnded, reason));
        all.append(&mut records.hand_out());
        all
    }
}

#[cfg(test)]
mod tests;
