//! A lane that changes payloads, and hands the records on to the lane inside it.

use std::{
    collections::HashMap,
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
    compressing: Compressing,
    jobs: JoinSet<Vec<Compressed>>,
    /// What jobs have brought, until the decisions that follow at once.
    done: HashMap<u64, Option<Bytes>>,
    /// What the next jobs work on, by ticket.
    next: Vec<(u64, Bytes)>,
    /// Bytes of `next`, of jobs, and in flight.
    bytes: usize,
    /// Bytes that may still be compressed in this turn of the relay's task, and in each.
    at_once: usize,
    at_once_max: usize,
}

impl PayloadLane {
    pub(super) fn new(inside: Inside, compressing: Compressing) -> Self {
        Self {
            inside,
            records: LaneRecords::default(),
            slots: HashMap::new(),
            work: Work {
                compressing,
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
            work.at_once = work.at_once_max;
            records.decide(|item, next| {
                let Some((record, bytes)) = work.ready(item) else {
                    return Decision::Wait;
                };
                slots.insert(record.ticket(), next.slot);
                inside.give(record);
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

impl Work {
    /// The record as the lane inside gets it, and the bytes of its changed payload; none: not yet.
    fn ready(&mut self, item: &mut WaitingRecord<Note>) -> Option<(Record, usize)> {
        let record = &item.record;
        if item.note == Note::Compressing {
            let payload = self.done.remove(&record.ticket())?;
            return Some(self.changed(record, payload));
        }
        let Some(payload) = self.compressing.wants(record) else {
            return Some((record.clone(), 0));
        };
        if self.bytes > 0 && self.bytes + payload.len() > COMPRESSED_BYTES_MAX {
            return None;
        }
        if let Some(rest) = self.at_once.checked_sub(payload.len()) {
            self.at_once = rest;
            let payload = self.compressing.compress(&payload);
            return Some(self.changed(record, payload));
        }
        item.note = Note::Compressing;
        self.bytes += payload.len();
        self.next.push((record.ticket(), payload));
        None
    }

    fn changed(&mut self, record: &Record, payload: Option<Bytes>) -> (Record, usize) {
        let Some(payload) = payload else {
            return (record.clone(), 0);
        };
        let bytes = payload.len();
        self.bytes += bytes;
        (self.compressing.apply(record.clone(), payload), bytes)
    }

    fn take_in(&mut self, done: Vec<Compressed>) {
        for one in done {
            self.bytes -= one.bytes;
            self.done.insert(one.ticket, one.payload);
        }
    }

    fn begin_jobs(&mut self) {
        // What is left belongs to records that were answered meanwhile.
        self.done.clear();
        let mut all = std::mem::take(&mut self.next).into_iter().peekable();
        while all.peek().is_some() {
            let (mut payloads, mut bytes) = (Vec::new(), 0);
            while let Some(next) = all.next_if(|_| bytes < TURN_BYTES) {
                bytes += next.1.len();
                payloads.push(next);
            }
            let compressing = self.compressing;
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
                Some(done) = self.work.jobs.join_next() => match done {
                    Ok(done) => {
                        self.work.take_in(done);
                        self.is_due = true;
                    }
                    // A bug, and none that more events would survive.
                    Err(broken) => resume_unwind(broken.into_panic()),
                },
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
        self.inside.abort().await;
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
            ..
        } = *self;
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
