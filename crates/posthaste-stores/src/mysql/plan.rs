//! The next page of a claim, and the place that an advance stores. Pure, no I/O.
//!
//! A claim may own several rows of cursors at different places. They are brought to one place
//! first: to what all of them together have seen. Every number that one of them has seen is
//! decided: its row is visible to any later read, or will never be. So the numbers that some have
//! seen and others have not are read in their order, and each event counts for the row that has not
//! seen it. Of two events of a key the earlier one is seen wherever the later one is, so the order
//! of a key is kept.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use posthaste_engine::{Cursor, Partitions, StoreError};

use super::{error::unexpected, place::Place, ranges::Ranges};

/// A row of cursors that the claim owns.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) id: i64,
    pub(super) partitions: Arc<Partitions>,
    pub(super) place: Place,
}

/// Where a claim stands.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// As far as they are read; at least one.
    groups: Vec<Group>,
    /// The rows that are left, as they are stored.
    stored: BTreeMap<i64, Place>,
}

/// The numbers that a read is about.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) numbers: Ranges,
    /// Rows of cursors are brought to one place.
    pub(super) converges: bool,
}

/// The places of a page: those of its events, and of its end.
#[derive(Debug, Clone)]
pub(super) struct PagePlaces {
    groups: Vec<Group>,
    /// Seen as the page passes them.
    seen: Ranges,
    /// Holes that are closed with the end of the page.
    closed: Ranges,
}

/// An advance to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) places: Vec<(i64, Place)>,
    /// Rows that go, each with the one that takes over its partitions.
    pub(super) merged: Vec<(i64, i64)>,
}

impl Plan {
    /// Goes on from stored rows.
    pub(super) fn restore(groups: Vec<Group>) -> Self {
        let stored = groups.iter().map(|group| (group.id, group.place.clone()));
        Self {
            stored: stored.collect(),
            groups,
        }
    }

    fn converges(&self) -> bool {
        let mut places = self.groups.iter().map(|group| &group.place);
        let first = places.next();
        places.any(|place| Some(place) != first)
    }

    /// All of them together.
    fn union(&self) -> Place {
        let mut groups = self.groups.iter();
        let first = groups
            .next()
            .map_or_else(Place::start, |group| group.place.clone());
        groups.fold(first, |all, group| all.union(&group.place))
    }

    /// The greatest number that was seen.
    pub(super) fn high(&self) -> u64 {
        self.union().high()
    }

    /// The last number that was not seen, below the greatest one that was.
    pub(super) fn last_hole(&self) -> Option<u64> {
        self.union().holes().last()
    }

    pub(super) fn open_holes(&self) -> usize {
        self.union().open_holes()
    }

    /// With as many holes as this nothing new is read.
    pub(super) fn wanted(&self, holes_max: usize) -> Wanted {
        let union = self.union();
        if self.converges() {
            let places = self.groups.iter().map(|group| union.beyond(&group.place));
            return Wanted {
                numbers: places.fold(Ranges::default(), |all, some| all.union(&some)),
                converges: true,
            };
        }
        let numbers = match union.open_holes() >= holes_max {
            true => union.holes(),
            false => union.unseen().clone(),
        };
        Wanted {
            numbers,
            converges: false,
        }
    }

    /// Whether there is one place for all.
    pub(super) fn is_whole(&self) -> bool {
        !self.converges()
    }

    /// Whether a row is an event that the next page brings.
    pub(super) fn brings(&self, seq: u64, slot: u16) -> bool {
        let group = self
            .groups
            .iter()
            .find(|group| group.partitions.contains_slot(slot));
        group.is_some_and(|group| !group.place.has_seen(seq))
    }

    /// Takes the answer to a read of what was [`Self::wanted`]: `rows` were found among the numbers
    /// up to `covered`. `decided`: a number up to there that this read lacks will never come.
    pub(super) fn answer(
        &mut self,
        wanted: &Wanted,
        rows: &Ranges,
        covered: u64,
        decided: u64,
    ) -> PagePlaces {
        let groups = self.groups.clone();
        let (seen, closed) = match wanted.converges {
            true => (wanted.numbers.up_to(covered), Ranges::default()),
            false => {
                let holes = self.union().and_seen(rows).holes();
                (rows.clone(), holes.up_to(decided.min(covered)))
            }
        };
        let closed = closed.intersection(&wanted.numbers);
        let places = PagePlaces {
            groups,
            seen,
            closed,
        };
        for (group, place) in self.groups.iter_mut().zip(places.at(None)) {
            group.place = place;
        }
        places
    }

    /// Whether the end of the page is to be stored although it brought nothing.
    pub(super) fn wants_advance(&self) -> bool {
        self.stored.len() > 1 && !self.converges()
            || self.groups.iter().any(|group| {
                let stored = self.stored.get(&group.id);
                stored.is_some_and(|stored| *stored != group.place)
            })
    }

    /// The advance to behind `seq` of a page, or to its end; none when that would go back, or
    /// changes nothing.
    pub(super) fn advance(&self, places: &PagePlaces, seq: Option<u64>) -> Option<Stored> {
        let mut next: Vec<(i64, Place)> = Vec::new();
        for (group, place) in places.groups.iter().zip(places.at(seq)) {
            // One that has become a part of another one's row is gone.
            let Some(stored) = self.stored.get(&group.id) else {
                continue;
            };
            next.push((
                group.id,
                if stored.covers(&place) {
                    stored.clone()
                } else {
                    place
                },
            ));
        }
        let (&(rest, ref place), others) = next.split_first()?;
        let together = others.iter().all(|(_, other)| other == place);
        let merged = match together {
            true => others.iter().map(|&(gone, _)| (gone, rest)).collect(),
            false => Vec::new(),
        };
        if together {
            next.truncate(1);
        }
        let merges = !merged.is_empty();
        next.retain(|(id, place)| merges || self.stored.get(id) != Some(place));
        (!next.is_empty()).then_some(Stored {
            places: next,
            merged,
        })
    }

    /// The advance was made.
    pub(super) fn advanced(&mut self, advance: &Stored) {
        for (gone, _) in &advance.merged {
            self.stored.remove(gone);
        }
        self.stored.extend(advance.places.iter().cloned());
        let stored = &self.stored;
        let is_left = |group: &Group| stored.contains_key(&group.id);
        if let Some((_, rest)) = advance.merged.first()
            && let Some(mut all) = self.groups.iter().find(|group| group.id == *rest).cloned()
        {
            let mut partitions = (*all.partitions).clone();
            for group in &self.groups {
                for partition in group.partitions.iter() {
                    partitions.insert(partition);
                }
            }
            all.partitions = Arc::new(partitions);
            self.groups = vec![all];
        }
        debug_assert!(self.groups.iter().all(is_left));
    }

    /// The place that is stored for all of the claim; none: they are several.
    pub(super) fn stored(&self) -> Option<&Place> {
        match self.stored.len() {
            1 => self.stored.values().next(),
            _ => None,
        }
    }

    /// Everything up to this number was seen by all of them, as it is stored.
    pub(super) fn stored_floor(&self) -> u64 {
        self.stored.values().map(Place::floor).min().unwrap_or(0)
    }
}

impl PagePlaces {
    /// One place, for all slots.
    pub(super) fn one(partitions: Arc<Partitions>, from: Place, seen: Ranges) -> Self {
        Self {
            groups: vec![Group {
                id: 0,
                partitions,
                place: from,
            }],
            seen,
            closed: Ranges::default(),
        }
    }

    /// Whether an event is one that this page brings.
    #[cfg(test)]
    fn brings(&self, seq: u64, slot: u16) -> bool {
        self.group_of(slot)
            .is_some_and(|group| !group.place.has_seen(seq))
    }

    fn group_of(&self, slot: u16) -> Option<&Group> {
        self.groups
            .iter()
            .find(|group| group.partitions.contains_slot(slot))
    }

    fn place(&self, group: &Group, seq: Option<u64>) -> Place {
        match seq {
            Some(seq) => group.place.and_seen(&self.seen.up_to(seq)),
            None => group.place.and_seen(&self.seen).and_seen(&self.closed),
        }
    }

    fn at(&self, seq: Option<u64>) -> impl Iterator<Item = Place> + '_ {
        self.groups.iter().map(move |group| self.place(group, seq))
    }

    /// The place behind `seq`, or at the end, of the partition of this slot.
    pub(super) fn of_slot(&self, slot: u16, seq: Option<u64>) -> Option<Place> {
        self.group_of(slot).map(|group| self.place(group, seq))
    }

    /// The place of all; none: there are several.
    pub(super) fn whole(&self, seq: Option<u64>) -> Option<Place> {
        let mut places = self.at(seq);
        let first = places.next()?;
        places.all(|place| place == first).then_some(first)
    }

    pub(super) fn shared(self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self)
    }
}

/// The places of a cursor, and how far it has come in them.
pub(super) fn of_cursor<'a>(
    operation: &'static str,
    cursor: &'a Cursor,
) -> Result<(&'a PagePlaces, Option<u64>), StoreError> {
    let places = cursor
        .base::<PagePlaces>()
        .ok_or_else(|| unexpected(operation, "a cursor of another store"))?;
    let seq = cursor.seq().map(u64::try_from).transpose();
    Ok((
        places,
        seq.map_err(|_| unexpected(operation, "a negative number"))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(all: &[u64]) -> Ranges {
        let mut ranges = Ranges::default();
        for &number in all {
            ranges.push((number, number));
        }
        ranges
    }

    fn place(seen: &[u64]) -> Place {
        Place::start().and_seen(&numbers(seen))
    }

    /// Two partitions; the slot of a partition is one of its own.
    fn partitions(of: &[u16]) -> Arc<Partitions> {
        let mut partitions = Partitions::none_of(2).unwrap();
        for &partition in of {
            partitions.insert(partition);
        }
        Arc::new(partitions)
    }

    fn slot(partition: u16) -> u16 {
        (0..16_384)
            .find(|&slot| partitions(&[partition]).contains_slot(slot))
            .unwrap()
    }

    fn group(id: i64, of: &[u16], seen: &[u64]) -> Group {
        Group {
            id,
            partitions: partitions(of),
            place: place(seen),
        }
    }

    #[test]
    fn a_hole_stays_until_a_covering_read_lacks_it() {
        let mut plan = Plan::restore(vec![group(1, &[0, 1], &[])]);
        let wanted = plan.wanted(100);
        assert_eq!(wanted.numbers, Ranges::of(1, u64::MAX));
        plan.answer(&wanted, &numbers(&[2, 4]), u64::MAX, 0);
        assert_eq!((plan.high(), plan.last_hole()), (4, Some(3)));
        // Decided, but the page ends before the second hole.
        let wanted = plan.wanted(100);
        assert_eq!(wanted.numbers.as_slice(), [(1, 1), (3, 3), (5, u64::MAX)]);
        plan.answer(&wanted, &numbers(&[1]), 1, 4);
        assert_eq!(plan.last_hole(), Some(3));
        let wanted = plan.wanted(100);
        plan.answer(&wanted, &numbers(&[7]), u64::MAX, 4);
        assert_eq!((plan.last_hole(), plan.high()), (Some(6), 7));
        assert_eq!(plan.wanted(100).numbers.as_slice(), [(5, 6), (8, u64::MAX)]);
        assert_eq!(plan.wanted(1).numbers.as_slice(), [(5, 6)], "nothing new");
    }

    #[test]
    fn a_cursor_inside_a_page_leaves_out_what_lies_behind() {
        let mut plan = Plan::restore(vec![group(1, &[0, 1], &[2, 5])]);
        let wanted = plan.wanted(100);
        let page = plan.answer(&wanted, &numbers(&[3, 6, 8]), u64::MAX, 5);
        let at = |seq| plan.advance(&page, seq).unwrap().places[0].1.clone();
        assert_eq!(at(Some(3)), place(&[2, 3, 5]));
        assert_eq!(at(Some(6)), place(&[2, 3, 5, 6]));
        assert_eq!(at(None), place(&[1, 2, 3, 4, 5, 6, 8]), "closed at its end");
        let stored = plan.advance(&page, Some(6)).unwrap();
        plan.advanced(&stored);
        assert_eq!(plan.advance(&page, Some(3)), None, "never back");
        assert!(plan.wants_advance());
    }

    #[test]
    fn groups_come_to_what_all_have_seen_and_become_one() {
        let mut plan = Plan::restore(vec![
            group(1, &[0], &[1, 2, 4]),
            group(2, &[1], &[1, 3, 4, 5, 7]),
        ]);
        let wanted = plan.wanted(100);
        assert!(wanted.converges);
        assert_eq!(wanted.numbers.as_slice(), [(2, 3), (5, 5), (7, 7)]);
        let page = plan.answer(&wanted, &numbers(&[2, 3]), 3, 0);
        assert!(page.brings(2, slot(1)) && !page.brings(2, slot(0)));
        assert!(page.brings(3, slot(0)) && !page.brings(3, slot(1)));
        assert_eq!(page.whole(None), None);
        let stored = plan.advance(&page, Some(2)).unwrap();
        assert_eq!(stored.places, [(2, place(&[1, 2, 3, 4, 5, 7]))]);
        plan.advanced(&stored);
        let wanted = plan.wanted(100);
        assert_eq!(wanted.numbers.as_slice(), [(5, 5), (7, 7)]);
        let page = plan.answer(&wanted, &numbers(&[5, 7]), u64::MAX, 0);
        let stored = plan.advance(&page, None).unwrap();
        assert_eq!(stored.places, [(1, place(&[1, 2, 3, 4, 5, 7]))]);
        assert_eq!(stored.merged, [(2, 1)]);
        plan.advanced(&stored);
        assert!(!plan.wants_advance());
        // From now on one group reads.
        let wanted = plan.wanted(100);
        assert_eq!(wanted.numbers.as_slice(), [(6, 6), (8, u64::MAX)]);
        let page = plan.answer(&wanted, &numbers(&[6]), u64::MAX, 0);
        assert!(page.brings(6, slot(0)) && page.brings(6, slot(1)));
        assert_eq!(plan.advance(&page, None).unwrap().places[0].0, 1);
    }

    #[test]
    fn a_page_that_was_read_before_its_rows_were_merged_is_advanced_all_the_same() {
        let mut plan = Plan::restore(vec![group(1, &[0], &[1]), group(2, &[1], &[1, 2])]);
        let first = plan.answer(&plan.wanted(9), &numbers(&[2]), u64::MAX, 0);
        let second = plan.answer(&plan.wanted(9), &numbers(&[3]), u64::MAX, 0);
        let stored = plan.advance(&first, None).unwrap();
        assert_eq!(stored.merged, [(2, 1)]);
        plan.advanced(&stored);
        let stored = plan.advance(&second, None).unwrap();
        assert_eq!(stored.places, [(1, place(&[1, 2, 3]))]);
        assert_eq!(stored.merged, []);
    }
}
