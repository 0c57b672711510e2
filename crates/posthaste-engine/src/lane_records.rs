//! The records of one lane: which wait, which are in flight, and the one verdict that each gets.
//!
//! ```text
//!   submit ──> waiting ──decide──> in flight ──accept, answer──> verdict
//!                 └─────answered unsent, or the lane's end─────^
//! ```
//!
//! A sink decides what to send and says how each record ended. Everything else that
//! [`Lane`](crate::Lane) promises is kept here: exactly one verdict for each ticket whatever the
//! order of the answers, nothing of a key behind a failure that its sender did not know, the oldest
//! record that owes an answer, and a verdict for everything once the lane has ended.

mod slots;

use std::{
    collections::{HashSet, VecDeque},
    mem,
    sync::Arc,
};

use crate::{Batches, Cause, FailedKeys, Outcome, Record, RejectionKind, Unavailability, Verdict};
use slots::Slots;

/// The records of one lane. `T` is whatever time is measured in, `F` is what the sink notes of a
/// record in flight, and `N` what it notes of one that waits.
#[derive(Debug)]
pub struct LaneRecords<T, F = (), N = ()> {
    waiting: VecDeque<WaitingRecord<N>>,
    in_flight: Slots<F>,
    submitted: u64,
    batches: Batches<T>,
    failed: FailedKeys,
    /// Failures in `verdicts`, and before it.
    failures: u64,
    /// Failures that the sender knows.
    known: u64,
    verdicts: Vec<Verdict>,
    /// The outcome of records that are submitted after the lane's end.
    ended: Option<Outcome>,
    value_bytes_max: Option<u64>,
}

/// A record that is not sent yet.
#[derive(Debug)]
pub struct WaitingRecord<N = ()> {
    /// The record.
    pub record: Record,
    /// The sink's note on it.
    pub note: N,
    owed: Owed,
    /// Failures that its sender knew.
    known: u64,
}

/// The part of a record that its verdict needs.
#[derive(Debug, Clone, Copy)]
struct Owed {
    ticket: u64,
    order_key: Option<u64>,
    batch: u64,
    /// Place in the order of submission.
    number: u64,
}

/// The place of a record that is about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextSlot {
    /// The number by which the record is answered, if it is sent. Numbers of answered
    /// records are used again.
    pub slot: usize,
    /// Records in flight.
    pub in_flight: usize,
}

/// A decision about a record that waits.
#[derive(Debug)]
pub enum Decision<F = ()> {
    /// It is in flight.
    Sent(F),
    /// It is answered without being sent.
    Answered(Outcome),
    /// It waits, and so do the later records of its key.
    Wait,
    /// It waits, and so do all later records.
    WaitAll,
}

/// Verdicts to be handed out.
#[derive(Debug, Default)]
pub struct VerdictBatch {
    /// The verdicts.
    pub verdicts: Vec<Verdict>,
    /// Failures up to and with these: what [`LaneRecords::submit_from`] is told once the sender has
    /// them.
    pub failures: u64,
}

impl<T, F, N> Default for LaneRecords<T, F, N> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            in_flight: Slots::default(),
            submitted: 0,
            batches: Batches::default(),
            failed: FailedKeys::default(),
            failures: 0,
            known: 0,
            verdicts: Vec::new(),
            ended: None,
            value_bytes_max: None,
        }
    }
}

impl<T: Copy, F, N: Default> LaneRecords<T, F, N> {
    /// Rejects records with a larger value from here on
    /// ([`SinkInfo::event_bytes_max`](crate::SinkInfo::event_bytes_max)).
    pub fn limit_values(&mut self, bytes_max: Option<u64>) {
        self.value_bytes_max = bytes_max;
    }

    /// Takes in a batch of a sender who has every verdict that was
    /// [handed out](Self::hand_out).
    pub fn submit(&mut self, batch: Vec<Record>, now: T) {
        self.submit_from(batch, self.known, now);
    }

    /// Takes in a batch of a sender who knew so many failures, where verdicts need time to get to
    /// the sender.
    pub fn submit_from(&mut self, batch: Vec<Record>, known: u64, now: T) {
        if batch.is_empty() {
            return;
        }
        if let Some(ended) = &self.ended {
            self.verdicts.extend(batch.iter().map(|record| Verdict {
                ticket: record.ticket(),
                outcome: ended.clone(),
            }));
            return;
        }
        self.known = known;
        // The oldest record that waits knows least. Where records always wait, failures that all
        // of them know must not pile up.
        let known_to_all = self.waiting.front().map_or(known, |item| item.known);
        self.failed.forget(known_to_all);
        let number = self.batches.begin(now, batch.len());
        for record in batch {
            let owed = Owed {
                ticket: record.ticket(),
                order_key: record.order_key(),
                batch: number,
                number: self.submitted,
            };
            self.submitted += 1;
            self.waiting.push_back(WaitingRecord {
                record,
                note: N::default(),
                owed,
                known,
            });
        }
    }

    /// Decides about the records that wait, oldest first, until one is decided
    /// [`WaitAll`](Decision::WaitAll). A record whose key waits is passed over. One whose key has a
    /// failure that its sender did not know is answered *behind failure*.
    pub fn decide(
        &mut self,
        mut decide: impl FnMut(&mut WaitingRecord<N>, NextSlot) -> Decision<F>,
    ) {
        let (mut decided, mut kept) = (0, 0);
        let mut waiting_keys = HashSet::new();
        // Decided where it stands: a record is some hundred bytes long.
        while let Some(item) = self.waiting.get_mut(decided) {
            let owed = item.owed;
            let decision = if owed
                .order_key
                .is_some_and(|key| waiting_keys.contains(&key))
            {
                Decision::Wait
            } else if self.failed.refuses(owed.order_key, item.known) {
                Decision::Answered(Outcome::unavailable(
                    Cause::BehindFailure,
                    "not tried: an earlier event of its key was not accepted",
                ))
            } else if let Some(refused) = too_large(&item.record, self.value_bytes_max) {
                Decision::Answered(refused)
            } else {
                let next = NextSlot {
                    slot: self.in_flight.next(),
                    in_flight: self.in_flight.len(),
                };
                decide(item, next)
            };
            match decision {
                Decision::Sent(note) => self.in_flight.add(owed, note),
                Decision::Answered(outcome) => self.give(owed, outcome),
                Decision::Wait => {
                    waiting_keys.extend(owed.order_key);
                    self.waiting.swap(kept, decided);
                    kept += 1;
                }
                Decision::WaitAll => break,
            }
            decided += 1;
        }
        self.waiting.drain(kept..decided);
    }

    /// Accepts the record of this slot. Answers the sink's note; none when it is not in flight.
    pub fn accept(&mut self, slot: usize) -> Option<F> {
        self.answer(slot, Outcome::accepted())
    }

    /// Gives the record of this slot this outcome. Answers the sink's note; none when it is not in
    /// flight.
    pub fn answer(&mut self, slot: usize, outcome: Outcome) -> Option<F> {
        let (owed, note) = self.in_flight.remove(slot)?;
        self.give(owed, outcome);
        Some(note)
    }

    /// Gives everything in flight this outcome, where a batch is answered as a whole. Answers the
    /// sink's notes, in the order of submission.
    pub fn answer_all(&mut self, outcome: &Outcome) -> Vec<F> {
        self.answer_each(|_| outcome.clone())
    }

    /// The same with an outcome for each, by the sink's note on it.
    pub fn answer_each(&mut self, outcome: impl Fn(&F) -> Outcome) -> Vec<F> {
        let all = self.in_flight.take_all().into_iter();
        all.map(|(owed, note)| {
            self.give(owed, outcome(&note));
            note
        })
        .collect()
    }

    /// Ends the lane: all that is in flight has this outcome, and all that waits, or is submitted
    /// later, was not sent. Answers the sink's notes of what was in flight.
    pub fn end(&mut self, fault: Unavailability) -> Vec<F> {
        let later = format!("not sent: the lane had ended: {}", fault.reason);
        let later = Outcome::unavailable(Cause::LaneEnded, later);
        let notes = self.answer_all(&Outcome::Unavailable(Arc::new(fault)));
        for item in mem::take(&mut self.waiting) {
            self.give(item.owed, later.clone());
        }
        self.ended = Some(later);
        notes
    }

    fn give(&mut self, owed: Owed, outcome: Outcome) {
        self.batches.answered(owed.batch);
        if !matches!(outcome, Outcome::Accepted(_)) {
            self.failures = self.failed.note(owed.order_key);
        }
        self.verdicts.push(Verdict {
            ticket: owed.ticket,
            outcome,
        });
    }

    /// The sink's note on the record of this slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&F> {
        self.in_flight.get(slot)
    }

    /// The sink's notes of what is in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = &F> {
        self.in_flight.notes()
    }

    /// How many records are in flight.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether records wait to be sent.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether every record has its verdict.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.len() == 0
    }

    /// Whether the lane was [ended](Self::end).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// When the oldest batch that owes an answer was submitted.
    #[must_use]
    pub fn oldest(&self) -> Option<T> {
        self.batches.oldest()
    }

    /// The verdicts since the last call, handed to the sender at once.
    pub fn hand_out(&mut self) -> Vec<Verdict> {
        self.known = self.failures;
        mem::take(&mut self.verdicts)
    }

    /// The verdicts since the last call, on their way to the sender: see
    /// [`submit_from`](Self::submit_from).
    pub fn take_verdicts(&mut self) -> VerdictBatch {
        VerdictBatch {
            verdicts: mem::take(&mut self.verdicts),
            failures: self.failures,
        }
    }
}

/// The outcome of a record whose value is larger than the sink takes.
fn too_large(record: &Record, bytes_max: Option<u64>) -> Option<Outcome> {
    let size = record.value().map_or(0, <[u8]>::len) as u64;
    let limit = bytes_max.filter(|&limit| size > limit)?;
    Some(Outcome::rejected(
        RejectionKind::TooLarge,
        format!("payload of {size} bytes, over max_event_bytes={limit} of this destination"),
    ))
}
