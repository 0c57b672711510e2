//! The pure state machines of this store for a model checker: where a claim has read to, and the
//! proof that closes holes. Not part of the interface.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use posthaste_engine::Partitions;

use super::{
    place::Place,
    plan::{Group, PagePlaces, Plan},
    proof::{Proof, Sample},
    ranges::Ranges,
};

/// The row of the model's one cursor.
const ROW: i64 = 1;

/// A place as a row of cursors has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stored(Place);

impl Stored {
    /// Before the first number.
    #[must_use]
    pub fn start() -> Self {
        Self(Place::start())
    }

    /// Whether this number was seen, or is proven to stay empty.
    #[must_use]
    pub fn has_seen(&self, number: u64) -> bool {
        self.0.has_seen(number)
    }

    /// The numbers that were not seen.
    pub fn unseen(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.unseen().as_slice().iter().copied()
    }
}

/// All that a connection knows.
#[derive(Debug, Clone)]
pub struct Reader {
    plan: Plan,
    proof: Proof,
    /// The last page, until its end is stored.
    page: Option<PagePlaces>,
}

impl Reader {
    /// Goes on from what is stored.
    #[must_use]
    pub fn open(stored: &Stored) -> Self {
        let group = Group {
            id: ROW,
            partitions: Arc::new(Partitions::all_of(1).unwrap_or_else(|_| unreachable!())),
            place: stored.0.clone(),
        };
        Self {
            plan: Plan::restore(vec![group]),
            proof: Proof::default(),
            page: None,
        }
    }

    /// The ranges of numbers that were not seen.
    #[must_use]
    pub fn unseen(&self) -> Vec<(u64, u64)> {
        self.plan.wanted(usize::MAX).numbers.as_slice().to_vec()
    }

    /// The greatest number that was seen.
    #[must_use]
    pub fn high(&self) -> u64 {
        self.plan.high()
    }

    /// A read that begins now, and lacks a number up to this one, closes it.
    #[must_use]
    pub fn decided(&self) -> u64 {
        self.proof.decided()
    }

    /// Takes a page: these numbers, up to `covered`. `decided`: see [`decided`](Self::decided).
    pub fn read(&mut self, rows: &[u64], covered: u64, decided: u64) {
        let mut found = Ranges::default();
        rows.iter().for_each(|&row| found.push((row, row)));
        let wanted = self.plan.wanted(usize::MAX);
        self.page = Some(self.plan.answer(&wanted, &found, covered, decided));
    }

    /// Whether holes call for a sample.
    #[must_use]
    pub fn wants_sample(&self) -> bool {
        self.proof.wants_sample(self.plan.last_hole())
    }

    /// Takes a sample that was begun when `high` was the greatest number seen.
    pub fn sampled(&mut self, high: u64, tickets: &BTreeSet<u64>, prepared: &BTreeSet<u64>) {
        let tickets = tickets.iter().map(|&ticket| (ticket, 0, 0)).collect();
        let prepared = named(prepared);
        self.proof.sampled(high, &Sample { tickets, prepared });
    }

    /// A lock was granted while nobody wrote, and these were prepared just after it.
    pub fn granted(&mut self, high: u64, prepared: &BTreeSet<u64>) {
        self.proof.granted(high, named(prepared));
    }

    /// The instrument may have been blind.
    pub fn doubt(&mut self) {
        self.proof.doubt();
    }

    /// The place to store; none: it is stored.
    #[must_use]
    pub fn advance(&mut self) -> Option<Stored> {
        let page = self.page.take()?;
        let advance = self.plan.advance(&page, None)?;
        self.plan.advanced(&advance);
        let (_, place) = advance.places.first()?;
        Some(Stored(place.clone()))
    }

    /// Tells proofs apart, and whether a page is to be stored.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.proof.hash(&mut hasher);
        self.page.is_some().hash(&mut hasher);
        hasher.finish()
    }
}

fn named(prepared: &BTreeSet<u64>) -> BTreeSet<Vec<u8>> {
    let names = prepared.iter().map(|of| of.to_be_bytes().to_vec());
    names.collect()
}
