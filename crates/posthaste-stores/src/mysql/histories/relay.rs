//! Two relays that share a destination: the production code of plan, proof and trust, in the order
//! in which `read.rs` has its statements. Something else may happen between any two of them.

use std::{collections::VecDeque, sync::Arc};

use posthaste_engine::Partitions;
use rand::Rng;

use super::{
    super::{
        plan::{Group, PagePlaces, Plan, Stored, Wanted},
        proof::{Proof, Sample},
        ranges::Ranges,
    },
    LeftOut, World,
    server::{Event, KEYS},
};

/// Pages that are read and not stored.
const PAGES_MAX: usize = 3;

/// All that a claim knows.
pub(super) struct Reader {
    life: u64,
    epoch: i64,
    /// The least row that it owns, and the version of it that is known to be committed.
    row: i64,
    seen: i64,
    plan: Plan,
    proof: Proof,
    /// A lock that is asked for.
    asked: Option<Asked>,
    /// The last sample was none.
    doubts: bool,
    /// Pages whose end is not stored, with the numbers of their events.
    pages: VecDeque<(PagePlaces, Vec<u64>)>,
}

struct Asked {
    high: u64,
    saw: Option<u64>,
}

/// The claim is void, or its connection is lost.
pub(super) struct Ended;

/// The slots of a key are those of its partition.
fn slot(key: u16) -> u16 {
    let mut one = Partitions::none_of(KEYS).unwrap();
    one.insert(key);
    let mut slots = 0..16_384;
    slots.find(|&slot| one.contains_slot(slot)).unwrap()
}

impl World {
    /// A relay takes its next step. Where something ends its claim, it claims anew the next time.
    pub(super) fn turn(&mut self, relay: usize) {
        let reader = match self.readers[relay].take() {
            // The connection that it believes in is none of this server.
            Some(reader) if self.without(LeftOut::PlaceIsLoaded) => Some(Reader {
                life: self.server.life,
                ..reader
            }),
            Some(reader) => Some(reader),
            None => self.open(relay),
        };
        let Some(mut reader) = reader else { return };
        let moves = self.happened.moves;
        // It claims by itself, so that it knows when its former claim is none any more.
        if self.works(&mut reader).is_ok() && self.happened.moves == moves {
            self.readers[relay] = Some(reader);
        }
    }

    /// A relay stores all that it has read, unless its claim is void.
    pub(super) fn store_all(&mut self, relay: usize) {
        let Some(mut reader) = self.readers[relay].take() else {
            return;
        };
        while !reader.pages.is_empty() {
            if self.advance(&mut reader).is_err() {
                return;
            }
        }
        self.readers[relay] = Some(reader);
    }

    fn open(&mut self, relay: usize) -> Option<Reader> {
        let rows = self.server.cursors.iter().filter(|row| row.relay == relay);
        let mut rows: Vec<_> = rows.collect();
        // As `cursors.sql` has them: rows that are merged leave the least of them.
        rows.sort_by_key(|row| row.id);
        let mut groups: Vec<Group> = Vec::new();
        for row in &rows {
            // `refuse_set_back` would stop here: the counter hides events.
            self.hidden |= row.place.high() > self.server.last();
            groups.push(Group {
                id: row.id,
                partitions: Arc::new(row.partitions.clone()),
                place: row.place.clone(),
            });
        }
        if self.without(LeftOut::GroupsConverge) {
            let all = groups.iter().map(|group| group.place.clone());
            let furthest = all.reduce(|all, place| all.union(&place))?;
            groups
                .iter_mut()
                .for_each(|group| group.place = furthest.clone());
        }
        let row = rows.first()?;
        Some(Reader {
            life: self.server.life,
            epoch: row.epoch,
            row: row.id,
            seen: row.ver,
            plan: Plan::restore(groups),
            proof: Proof::default(),
            asked: None,
            doubts: false,
            pages: VecDeque::new(),
        })
    }

    fn works(&mut self, reader: &mut Reader) -> Result<(), Ended> {
        if self.random.random_range(0..3) == 0 || reader.pages.len() >= PAGES_MAX {
            self.advance(reader)?;
            self.between();
        }
        let early = match self.without(LeftOut::SampleIsBehindTheRead) {
            true => Some(self.sample()),
            false if self.random.random_range(0..3) > 0 => {
                self.prove(reader)?;
                None
            }
            false => None,
        };
        self.between();
        self.read(reader)?;
        if let Some(sample) = early {
            reader.proof.sampled(reader.plan.high(), &sample);
        }
        Ok(())
    }

    /// Every statement asks this first.
    fn heed(&self, reader: &Reader) -> Result<(), Ended> {
        let rows = &mut self.server.cursors.iter();
        let row = rows.find(|row| row.id == reader.row).ok_or(Ended)?;
        let is_older = row.ver < reader.seen && !self.without(LeftOut::VersionIsLookedAt);
        match self.server.life != reader.life || row.epoch != reader.epoch || is_older {
            true => Err(Ended),
            false => Ok(()),
        }
    }

    fn prove(&mut self, reader: &mut Reader) -> Result<(), Ended> {
        let high = reader.plan.high();
        if !reader.proof.wants_sample(reader.plan.last_hole()) {
            return Ok(());
        }
        self.heed(reader)?;
        let looks = self.trust.blind_looks();
        if !self.server.sees && !self.without(LeftOut::BlindIsNoProof) {
            self.trust.lose();
            self.noticed = true;
        }
        let is_blind = self.trust.blind_looks() > looks;
        let is_lost = self.trust.is_lost() && !self.without(LeftOut::TrustIsLost);
        if is_blind || is_lost {
            if !std::mem::replace(&mut reader.doubts, true) {
                reader.proof.doubt();
            }
            if self.tries_locks {
                self.probe(reader, high, (!is_blind).then_some(looks));
            }
            return Ok(());
        }
        let life = self.server.life;
        let sample = self.sample();
        if self.server.life != life {
            return Err(Ended);
        }
        reader.doubts = false;
        reader.proof.sampled(high, &sample);
        if self.without(LeftOut::ReadIsBehindTheProof) {
            let wanted = reader.plan.wanted(usize::MAX);
            let (nothing, decided) = (Ranges::default(), reader.proof.decided());
            let page = reader.plan.answer(&wanted, &nothing, u64::MAX, decided);
            reader.pages.push_back((page, Vec::new()));
        }
        Ok(())
    }

    /// The locks, and then the prepared transactions.
    fn sample(&mut self) -> Sample {
        let mut sample = Sample::default();
        if self.without(LeftOut::LocksAreListedFirst) {
            sample.prepared = self.server.prepared();
            self.between();
            sample.tickets = self.server.tickets();
            return sample;
        }
        sample.tickets = self.server.tickets();
        self.between();
        if !self.without(LeftOut::PreparedAreWaitedFor) {
            sample.prepared = self.server.prepared();
        }
        sample
    }

    /// Looks whether the lock that was asked for is granted, and asks for the next one.
    fn probe(&mut self, reader: &mut Reader, high: u64, saw: Option<u64>) {
        if let Some(asked) = reader.asked.take() {
            // It waits for all who write.
            if self.server.somebody_writes() {
                reader.asked = Some(asked);
                return;
            }
            self.between();
            reader.proof.granted(asked.high, self.server.prepared());
            if let Some(looks) = asked.saw {
                self.trust.regain(looks);
            }
        }
        reader.asked = Some(Asked { high, saw });
    }

    fn read(&mut self, reader: &mut Reader) -> Result<(), Ended> {
        self.heed(reader)?;
        let mut wanted = reader.plan.wanted(self.holes_max);
        if self.without(LeftOut::HolesAreRead) && !wanted.converges {
            wanted.numbers = Ranges::of(reader.plan.high() + 1, u64::MAX);
        }
        let limit = self.random.random_range(1..6);
        let (found, covered) = self.rows(&wanted, limit);
        let mut rows = Ranges::default();
        found
            .iter()
            .for_each(|&(number, _)| rows.push((number, number)));
        let ours = found.into_iter();
        let ours = ours.filter(|&(number, event)| reader.plan.brings(number, slot(event.key)));
        let ours: Vec<(u64, Event)> = ours.collect();
        self.between();
        if self.server.life != reader.life {
            return Err(Ended);
        }
        if !ours.is_empty() && !self.without(LeftOut::DurableBeforeDelivered) {
            self.heed(reader)?;
            self.server.make_durable();
        }
        let decided = match self.without(LeftOut::HolesAreProven) {
            true => u64::MAX,
            false => reader.proof.decided(),
        };
        let covered = match self.without(LeftOut::ReadCoversTheHole) {
            true => u64::MAX,
            false => covered,
        };
        let page = reader.plan.answer(&wanted, &rows, covered, decided);
        let numbers: Vec<u64> = ours.iter().map(|&(number, _)| number).collect();
        self.delivered
            .extend(ours.into_iter().map(|(_, event)| event));
        if !numbers.is_empty() || reader.plan.wants_advance() {
            reader.pages.push_back((page, numbers));
        }
        Ok(())
    }

    /// The first rows of the wanted numbers, and up to where they are all of them.
    fn rows(&self, wanted: &Wanted, limit: usize) -> (Vec<(u64, Event)>, u64) {
        let rows = self.server.rows.iter();
        let found = rows.filter(|&(&number, _)| wanted.numbers.contains(number));
        let found = found.map(|(&number, &event)| (number, event));
        let found: Vec<_> = found.take(limit).collect();
        let covered = match found.len() < limit {
            true => u64::MAX,
            false => found.last().map_or(0, |&(number, _)| number),
        };
        (found, covered)
    }

    /// Stores the end of the first page, or a place inside it.
    fn advance(&mut self, reader: &mut Reader) -> Result<(), Ended> {
        let Some((page, numbers)) = reader.pages.pop_front() else {
            return Ok(());
        };
        self.heed(reader)?;
        let inside = match numbers.is_empty() || self.random.random::<bool>() {
            true => None,
            false => Some(numbers[self.random.random_range(0..numbers.len())]),
        };
        if let Some(advance) = reader.plan.advance(&page, inside) {
            self.store(reader, &advance);
            reader.plan.advanced(&advance);
        }
        if inside.is_some() {
            reader.pages.push_front((page, numbers));
        }
        Ok(())
    }

    fn store(&mut self, reader: &mut Reader, advance: &Stored) {
        let mut cursors = self.server.cursors.clone();
        for (id, place) in &advance.places {
            for row in cursors.iter_mut().filter(|row| row.id == *id) {
                row.place = place.clone();
            }
        }
        for (gone, rest) in &advance.merged {
            let merged: Vec<_> = cursors.extract_if(.., |row| row.id == *gone).collect();
            let into = cursors.iter_mut().filter(|row| row.id == *rest);
            for (into, merged) in into.zip(merged) {
                for partition in merged.partitions.iter() {
                    into.partitions.insert(partition);
                }
            }
        }
        for row in cursors.iter_mut().filter(|row| row.id == reader.row) {
            row.ver += 1;
            reader.seen = row.ver;
        }
        self.server.store(cursors);
    }
}
