//! A lane that changes payloads, and hands the records on to the lane inside it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, Decision, Lane, LaneRecords, Outcome, Record, SinkError, StoredProgress, Unavailability,
    Verdict,
};
use tokio::time::timeout_at;

use super::inside::Inside;

/// The changes of a lane's records.
pub(super) trait Work: Send {
    /// The note on a record that waits.
    type Note: Default + Send;

    /// A batch comes.
    fn submitted(&mut self, _batch: &[Record]) {}

    /// A round of steps begins.
    fn begin(&mut self) {}

    /// The next step of a record.
    fn step(&mut self, record: &Record, note: &mut Self::Note) -> Next;

    /// A round of steps ends.
    fn end(&mut self) {}

    /// Waits until another step of some record is possible. Cancel safe.
    fn go_on(&mut self) -> impl Future<Output = ()> + Send;

    /// So many bytes of a changed payload are not held any more.
    fn freed(&mut self, bytes: usize);
}

/// The next step of a record.
// It lives for a moment; a box would be an allocation for each record.
#[allow(clippy::large_enum_variant)]
pub(super) enum Next {
    /// The lane inside gets it in this form, which holds so many bytes of its own.
    Ready(Record, usize),
    #[cfg(any(feature = "claim-check", feature = "schema-registry"))]
    Answered(Outcome),
    Wait,
}

/// The note on a record that the lane inside has.
#[derive(Debug)]
struct InFlight {
    /// Bytes that its changed payload holds.
    bytes: usize,
}

/// Only the first waiting record of a key is worked on; the others wait for it, and those of other
/// keys pass it.
pub(super) struct PayloadLane<W: Work> {
    inside: Inside,
    records: LaneRecords<Instant, InFlight, W::Note>,
    /// Those in flight, by ticket.
    slots: HashMap<u64, usize>,
    work: W,
    /// Whether another decision about records that wait is possible.
    is_due: bool,
}

impl<W: Work> PayloadLane<W> {
    pub(super) fn new(inside: Inside, work: W) -> Self {
        Self {
            inside,
            records: LaneRecords::default(),
            slots: HashMap::new(),
            work,
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
            work.begin();
            records.decide(|item, next| match work.step(&item.record, &mut item.note) {
                Next::Ready(record, bytes) => {
                    slots.insert(record.ticket(), next.slot);
                    inside.give(record);
                    Decision::Sent(InFlight { bytes })
                }
                #[cfg(any(feature = "claim-check", feature = "schema-registry"))]
                Next::Answered(outcome) => Decision::Answered(outcome),
                Next::Wait => Decision::Wait,
            });
            work.end();
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
                self.work.freed(in_flight.bytes);
                self.is_due |= in_flight.bytes > 0;
            }
        }
    }
}

#[async_trait]
impl<W: Work> Lane for PayloadLane<W> {
    async fn submit(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        self.work.submitted(&batch);
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
#[cfg(feature = "compression")]
mod tests;
