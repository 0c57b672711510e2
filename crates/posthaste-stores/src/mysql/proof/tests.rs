//! Histories by name, and a server in small on which thousands of random ones run. The variants of
//! the rule that leave something out lose events there.

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};

use super::*;
use crate::mysql::place::Place;
use crate::mysql::ranges::Ranges;

fn sample(tickets: &[u64], prepared: &[&str]) -> Sample {
    Sample {
        tickets: tickets.iter().map(|&ticket| (ticket, 1, 1)).collect(),
        prepared: prepared.iter().map(|xid| xid.as_bytes().to_vec()).collect(),
    }
}

fn after(samples: &[(u64, Sample)]) -> u64 {
    let mut proof = Proof::default();
    for (high, sample) in samples {
        proof.sampled(*high, sample);
    }
    proof.decided()
}

#[test]
fn with_nobody_writing_one_sample_decides() {
    assert_eq!(after(&[(7, sample(&[], &[]))]), 7);
}

#[test]
fn a_writer_is_waited_for_and_those_who_came_later_are_not() {
    let begun = (7, sample(&[1, 2], &[]));
    assert_eq!(after(std::slice::from_ref(&begun)), 0);
    assert_eq!(after(&[begun.clone(), (7, sample(&[2, 3], &[]))]), 0);
    assert_eq!(after(&[begun, (7, sample(&[3], &[]))]), 7);
}

#[test]
fn a_ticket_that_is_gone_for_one_sample_is_gone() {
    let history = [
        (7, sample(&[1, 2], &[])),
        (7, sample(&[2], &[])),
        (7, sample(&[1], &[])),
    ];
    assert_eq!(after(&history), 7);
}

#[test]
fn prepared_transactions_of_the_sample_without_tickets_are_waited_for() {
    let detached = [
        (7, sample(&[1], &[])),
        (7, sample(&[], &["x"])),
        (7, sample(&[], &["x", "y"])),
    ];
    assert_eq!(after(&detached), 0);
    let mut ended = detached.to_vec();
    ended.push((7, sample(&[5], &["y"])));
    assert_eq!(after(&ended), 7);
    // Prepared and detached before the first sample.
    assert_eq!(after(&[(7, sample(&[], &["x"]))]), 0);
    assert_eq!(after(&[(7, sample(&[], &["x"])), (7, sample(&[], &[]))]), 7);
}

#[test]
fn a_sample_says_nothing_of_numbers_that_were_read_after_it() {
    let mut proof = Proof::default();
    proof.sampled(7, &sample(&[1], &[]));
    proof.sampled(9, &sample(&[4], &[]));
    assert_eq!(proof.decided(), 7);
    proof.sampled(9, &sample(&[5], &[]));
    assert_eq!(proof.decided(), 9);
    assert!(!proof.wants_sample(Some(8)) && proof.wants_sample(Some(10)));
    assert!(!proof.wants_sample(None));
}

#[test]
fn a_long_transaction_delays_the_holes_of_its_time_and_memory_is_bounded() {
    let mut proof = Proof::default();
    for high in 1..1_000 {
        proof.sampled(high, &sample(&[1, 100 + high], &[]));
        assert!(proof.obligations.len() <= OBLIGATIONS_MAX);
    }
    assert_eq!(proof.decided(), 0);
    proof.sampled(1_000, &sample(&[2_000], &[]));
    assert!(proof.decided() > 0);
    proof.sampled(1_000, &sample(&[], &[]));
    assert_eq!(proof.decided(), 1_000);
}

#[test]
fn a_doubt_ends_everything() {
    let mut proof = Proof::default();
    proof.sampled(7, &sample(&[], &[]));
    proof.sampled(9, &sample(&[1], &[]));
    proof.doubt();
    assert_eq!(proof, Proof::default());
}

#[test]
fn a_granted_lock_stands_for_an_empty_list() {
    let mut proof = Proof::default();
    proof.sampled(7, &sample(&[1], &[]));
    proof.granted(9, BTreeSet::from([b"x".to_vec()]));
    assert_eq!(proof.decided(), 0);
    proof.granted(9, BTreeSet::new());
    assert_eq!(proof.decided(), 9);
}

/// The part that a wrong rule leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Right,
    /// The sample is taken before the read that shows the hole.
    SampleBeforeRead,
    /// A hole is closed as soon as nobody is left, without another read.
    NoLaterRead,
    /// Prepared transactions count for nothing.
    WithoutXa,
    /// Prepared transactions are listed before the locks.
    XaFirst,
    /// Holes are given up at once.
    GivenUp,
    /// Only what lies behind the greatest number is read.
    OnlyBehind,
}

#[derive(Debug, Clone)]
struct Transaction {
    ticket: Option<u64>,
    prepared: Option<u64>,
    drawn: Vec<u64>,
}

/// A server: who has drawn which numbers, and what is committed.
#[derive(Debug, Default)]
struct Server {
    next: u64,
    tickets: u64,
    open: Vec<Transaction>,
    committed: BTreeSet<u64>,
    /// Nobody writes any more.
    rests: bool,
}

impl Server {
    /// Something that writers do.
    fn step(&mut self, random: &mut SmallRng) {
        let some = (0..self.open.len()).collect::<Vec<_>>();
        let at = some.choose(random).copied();
        match (random.random_range(0..9), at) {
            (0 | 1, _) if self.open.len() < 4 => {
                self.tickets += 1;
                self.open.push(Transaction {
                    ticket: Some(self.tickets),
                    prepared: None,
                    drawn: Vec::new(),
                });
            }
            (2..=4, Some(at)) if self.open[at].prepared.is_none() => {
                self.next += 1;
                let drawn = self.next;
                self.open[at].drawn.push(drawn);
            }
            (5, Some(at)) if self.open[at].prepared.is_none() => {
                self.tickets += 1;
                self.open[at].prepared = Some(self.tickets);
            }
            // Its session goes, and another one decides; or its ticket gets another identity.
            (6, Some(at)) if self.open[at].prepared.is_some() => {
                self.tickets += 1;
                self.open[at].ticket = random.random::<bool>().then_some(self.tickets);
            }
            // Visible first; ticket and prepared transaction go with it.
            (7, Some(at)) => {
                let ended = self.open.swap_remove(at);
                self.committed.extend(ended.drawn);
            }
            (8, Some(at)) if random.random_range(0..3) == 0 => {
                self.open.swap_remove(at);
            }
            _ => {}
        }
    }

    fn steps(&mut self, random: &mut SmallRng) {
        for _ in 0..random.random_range(0..4) {
            if self.rests {
                return;
            }
            self.step(random);
        }
    }

    fn locks(&self) -> BTreeSet<Ticket> {
        let tickets = self.open.iter().filter_map(|open| open.ticket);
        tickets.map(|ticket| (ticket, 1, 1)).collect()
    }

    fn xids(&self) -> BTreeSet<Vec<u8>> {
        let prepared = self.open.iter().filter_map(|open| open.prepared);
        prepared.map(|xid| xid.to_be_bytes().to_vec()).collect()
    }

    fn sample(&mut self, random: &mut SmallRng, variant: Variant) -> Sample {
        let mut sample = Sample::default();
        if variant == Variant::XaFirst {
            sample.prepared = self.xids();
            self.steps(random);
        }
        sample.tickets = self.locks();
        if !matches!(variant, Variant::XaFirst | Variant::WithoutXa) {
            self.steps(random);
            sample.prepared = self.xids();
        }
        sample
    }

    fn rows(&self, of: &Ranges, limit: usize) -> (Ranges, u64) {
        let mut rows = Ranges::default();
        let found: Vec<u64> = self
            .committed
            .iter()
            .copied()
            .filter(|&number| of.contains(number))
            .take(limit)
            .collect();
        for &number in &found {
            rows.push((number, number));
        }
        let covered = match found.len() < limit {
            true => u64::MAX,
            false => found.last().copied().unwrap_or(0),
        };
        (rows, covered)
    }
}

/// Runs a history; answers how many events are lost at its end.
fn lost(seed: u64, variant: Variant) -> usize {
    let random = &mut SmallRng::seed_from_u64(seed);
    let (mut server, mut proof) = (Server::default(), Proof::default());
    let (mut place, mut delivered) = (Place::start(), BTreeSet::new());
    let mut page = |server: &Server, proof: &Proof, limit, place: &mut Place| {
        let wanted = match variant {
            Variant::OnlyBehind => Ranges::of(place.high() + 1, u64::MAX),
            _ => place.unseen().clone(),
        };
        let (rows, covered) = server.rows(&wanted, limit);
        for &(first, last) in rows.as_slice() {
            delivered.extend(first..=last);
        }
        *place = place.and_seen(&rows);
        let decided = match variant {
            Variant::GivenUp => place.high(),
            _ => proof.decided(),
        };
        *place = place.and_seen(&place.holes().up_to(decided.min(covered)));
    };
    for _ in 0..60 {
        server.steps(random);
        let early = (variant == Variant::SampleBeforeRead).then(|| server.sample(random, variant));
        server.steps(random);
        let limit = random.random_range(1..6);
        page(&server, &proof, limit, &mut place);
        server.steps(random);
        if random.random_range(0..3) == 0 {
            continue;
        }
        let sample = early.unwrap_or_else(|| server.sample(random, variant));
        proof.sampled(place.high(), &sample);
        if variant == Variant::NoLaterRead {
            place = place.and_seen(&place.holes().up_to(proof.decided()));
        }
    }
    // All that is open is committed at last.
    server.rests = true;
    for open in std::mem::take(&mut server.open) {
        server.committed.extend(open.drawn);
    }
    for _ in 0..40 {
        page(&server, &proof, 10, &mut place);
        proof.sampled(place.high(), &server.sample(random, variant));
    }
    if variant == Variant::Right {
        assert_eq!(place.open_holes(), 0, "seed {seed}: holes stay open");
    }
    server.committed.difference(&delivered).count()
}

#[test]
fn no_history_loses_an_event() {
    for seed in 0..20_000 {
        assert_eq!(lost(seed, Variant::Right), 0, "seed {seed}");
    }
}

#[test]
fn every_variant_of_the_rule_loses_events() {
    for variant in [
        Variant::SampleBeforeRead,
        Variant::NoLaterRead,
        Variant::WithoutXa,
        Variant::XaFirst,
        Variant::GivenUp,
        Variant::OnlyBehind,
    ] {
        let loses = (0..20_000).find(|&seed| lost(seed, variant) > 0);
        assert!(loses.is_some(), "{variant:?} loses nothing");
    }
}
