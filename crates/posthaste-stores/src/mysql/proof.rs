//! The proof that no row will ever come for a hole. Pure, no I/O.
//!
//! A sample has two parts, taken in this order on the server that the pages are read from: `M`, the
//! tickets of all locks for writing on the outbox, then `X`, the transactions that XA has prepared.
//!
//! Every number at or below the greatest one that a read showed was drawn by a statement that held
//! a ticket then. So each transaction that may still commit such a number is in the `M` of a sample
//! taken after that read. A ticket leaves `M` when its transaction has ended, or when the session
//! of a prepared one has gone, and then `X` lists it until it has ended. Its rows are visible
//! before either lets go of it. Hence, for all holes that were known before a sample:
//!
//! 1. the tickets of that sample's `M` are gone in later samples, at last in one of them;
//! 2. the prepared transactions in *that one's* `X` are gone in later samples;
//! 3. a read that began after the last of these covers the hole, and lacks it.
//!
//! Any doubt about a sample ends all that was begun: nothing is proven by an instrument that may be
//! blind.

use std::collections::{BTreeSet, VecDeque};

/// Reads whose holes are waited for one by one. Those of more reads wait for the youngest of these:
/// a transaction that keeps one open keeps the later ones open as well.
const OBLIGATIONS_MAX: usize = 8;

/// The identity of a lock: thread, event of the thread, object; as far as the server tells.
pub(super) type Ticket = (u64, u64, u64);

/// One look at who may still commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// The locks for writing on the outbox.
    pub(super) tickets: BTreeSet<Ticket>,
    /// The prepared transactions of XA, listed *after* the locks.
    pub(super) prepared: BTreeSet<Vec<u8>>,
}

/// The proofs about the holes of one connection. Nothing of it outlives the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Proof {
    /// In the order of their beginning; each is about more numbers than the one before.
    obligations: VecDeque<Obligation>,
    decided: u64,
}

/// All who may still commit a number at or below `high`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Obligation {
    high: u64,
    open: Open,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Open {
    Tickets(BTreeSet<Ticket>),
    Prepared(BTreeSet<Vec<u8>>),
}

impl Obligation {
    /// Takes a later sample; answers whether nobody is left.
    fn is_over(&mut self, sample: &Sample) -> bool {
        match &mut self.open {
            Open::Tickets(tickets) => {
                tickets.retain(|ticket| sample.tickets.contains(ticket));
                if !tickets.is_empty() {
                    return false;
                }
                self.open = Open::Prepared(sample.prepared.clone());
                sample.prepared.is_empty()
            }
            Open::Prepared(prepared) => {
                prepared.retain(|xid| sample.prepared.contains(xid));
                prepared.is_empty()
            }
        }
    }
}

impl Proof {
    /// A read that begins now, and lacks a number at or below this one, has proven that no row will
    /// ever have it.
    pub(super) fn decided(&self) -> u64 {
        self.decided
    }

    /// Whether holes up to this number call for a sample.
    pub(super) fn wants_sample(&self, last_hole: Option<u64>) -> bool {
        last_hole.is_some_and(|last| last > self.decided)
    }

    /// Takes a sample that was begun after the answer to a read had come; `high` is the greatest
    /// number that was seen until then.
    pub(super) fn sampled(&mut self, high: u64, sample: &Sample) {
        while let Some(obligation) = self.obligations.front_mut() {
            if !obligation.is_over(sample) {
                break;
            }
            self.decided = self.decided.max(obligation.high);
            self.obligations.pop_front();
        }
        for obligation in self.obligations.iter_mut().skip(1) {
            // One that is over before an earlier one is about more numbers: both are.
            if obligation.is_over(sample) {
                self.decided = self.decided.max(obligation.high);
            }
        }
        let decided = self.decided;
        self.obligations.retain(|open| open.high > decided);
        let youngest = self.obligations.back().map_or(decided, |open| open.high);
        if high > youngest && self.obligations.len() < OBLIGATIONS_MAX {
            let mut begun = Obligation {
                high,
                open: Open::Tickets(sample.tickets.clone()),
            };
            if begun.is_over(sample) {
                self.decided = high;
                self.obligations.clear();
            } else {
                self.obligations.push_back(begun);
            }
        }
    }

    /// Nobody was writing at one moment after a read had shown numbers up to `high`, and these were
    /// prepared just after it: a lock was granted that waits for all who write.
    pub(super) fn granted(&mut self, high: u64, prepared: BTreeSet<Vec<u8>>) {
        self.sampled(
            high,
            &Sample {
                tickets: BTreeSet::new(),
                prepared,
            },
        );
    }

    /// The instrument may have been blind.
    pub(super) fn doubt(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
