//! Brings groups of partitions that stand at several places to one: pure state, no I/O.
//!
//! The places of one primary and incarnation are totally ordered by what they see, so that there is
//! always one group that is behind. It alone is read on, filtered to its own slots, in differences
//! with fixed ends:
//!
//! - to the place of another group that stands inside the same difference, or
//! - to the end of the difference in which it stands itself, or
//! - to the `low` of the next group, which sees more.
//!
//! Groups that have come to the same place are one from there on. The steps are bounded: each of
//! them ends at one of the snapshots that were there in the beginning. Since a group keeps its
//! place until it is read, every place of every page says where all groups stand, and any of them
//! may be stored, whichever were skipped before it.

#[cfg(test)]
mod tests;

use std::{cmp::Ordering, sync::Arc};

use posthaste_engine::Partitions;

use super::{
    layout::{GroupLayout, GroupRow},
    position::{Floors, Position},
    slots::Slots,
    sweep::{Answer, Place, Request, segment_end},
    types::Snapshot,
};

/// A group of partitions that stand at one place.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) row: GroupRow,
    pub(super) partitions: Partitions,
}

/// Where the group that is read stops for the others.
#[derive(Debug, Clone)]
enum Stop {
    /// Behind this `seq` of the difference: there the next group stands.
    Behind(i64),
    /// At the end of the difference, whose `high` has these floors; F, once it was read, says where
    /// that is.
    End(Floors, Option<i64>),
}

/// The way of a group that is behind.
#[derive(Debug, Clone)]
struct Way {
    high: Arc<Snapshot>,
    /// How far it has come in the difference.
    last: i64,
    stop: Stop,
}

/// The groups that are left of several.
#[derive(Debug)]
pub(super) enum Left {
    One(GroupRow),
    Several(Converge),
}

/// Several groups on their way to one place.
#[derive(Debug, Clone)]
pub(super) struct Converge {
    leaf_bits: u8,
    first: Group,
    way: Way,
    /// Of the first.
    slots: Option<Arc<Slots>>,
    others: Vec<Group>,
}

impl Converge {
    /// Merges what stands at one place, and sends the group that is behind on its way.
    pub(super) fn set_out(leaf_bits: u8, mut first: Group, mut others: Vec<Group>) -> Left {
        loop {
            for other in &mut others {
                if by_place(&other.row.position, &first.row.position).is_lt() {
                    std::mem::swap(other, &mut first);
                }
            }
            let place = |at: &usize| &others[*at].row.position;
            let next = (0..others.len()).min_by(|a, b| by_place(place(a), place(b)));
            let Some(next) = next else {
                return Left::One(first.row);
            };
            if let Some(way) = way(&mut first.row.position, &others[next].row.position) {
                return Left::Several(Self {
                    leaf_bits,
                    slots: Slots::of(&first.partitions).map(Arc::new),
                    first,
                    way,
                    others,
                });
            }
            let mut merged = others.swap_remove(next);
            merged.take_in(first);
            first = merged;
        }
    }

    /// The next read, and whose slots it is about.
    pub(super) fn request(&self) -> (Request, Option<Arc<Slots>>) {
        let request = Request::Page {
            low: Arc::clone(&self.first.row.position.low),
            high: Arc::clone(&self.way.high),
            last: self.way.last,
            until: self.until(),
        };
        (request, self.slots.clone())
    }

    fn until(&self) -> i64 {
        let segment_end = segment_end(self.way.last, self.leaf_bits);
        match self.way.stop {
            Stop::Behind(seq) | Stop::End(_, Some(seq)) => segment_end.min(seq),
            Stop::End(_, None) => segment_end,
        }
    }

    /// Takes the answer to the request, the claim's `read`th.
    pub(super) fn answer(mut self, read: u64, answer: &Answer) -> (Place, Left) {
        let before = self.layout();
        let from = self.first.row.position.clone();
        let high = Arc::clone(&self.way.high);
        let last = match answer.last_row {
            Some(row) if answer.more => row,
            _ => self.until(),
        };
        self.way.last = last;
        let to = &mut self.first.row.position;
        to.within = Some((Arc::clone(&high), last));
        let arrived = match &mut self.way.stop {
            Stop::Behind(seq) => last >= *seq,
            Stop::End(floors, end) => {
                let arrived = last >= *end.get_or_insert(answer.sequence);
                if arrived {
                    *to = Position {
                        low: Snapshot::behind(&high),
                        within: None,
                        floors: *floors,
                    };
                }
                arrived
            }
        };
        let to = to.clone();
        let left = if arrived {
            Self::set_out(self.leaf_bits, self.first, self.others)
        } else {
            Left::Several(self)
        };
        let after = match &left {
            Left::One(row) => vec![row.clone()],
            Left::Several(converge) => converge.layout(),
        };
        let place = Place::of_group(read, &from, &high, &to, GroupLayout { before, after });
        (place, left)
    }

    /// The group that is read comes first.
    fn layout(&self) -> Vec<GroupRow> {
        let groups = std::iter::once(&self.first).chain(&self.others);
        groups.map(|group| group.row.clone()).collect()
    }

    /// Groups that are left.
    pub(super) fn len(&self) -> usize {
        1 + self.others.len()
    }
}

impl Group {
    /// Takes in a group that has come to the same place.
    fn take_in(&mut self, other: Self) {
        self.row.ids.extend(other.row.ids);
        self.row.ids.sort_unstable();
        for partition in other.partitions.iter() {
            self.partitions.insert(partition);
        }
        let floors = &mut self.row.position.floors;
        *floors = raised(*floors, other.row.position.floors.floor_min);
    }
}

/// The way from a place to another one that is not before it; none: it is there.
fn way(from: &mut Position, to: &Position) -> Option<Way> {
    let least = from.floors.floor_min;
    let same_low = from.low == to.low;
    let way = |high: &Arc<Snapshot>, last, stop| Way {
        high: Arc::clone(high),
        last,
        stop,
    };
    match (&from.within, &to.within) {
        (None, None) if same_low => None,
        (None, Some((high, seq))) if same_low => {
            from.floors = raised(to.floors, least);
            (least < *seq).then(|| way(high, least, Stop::Behind(*seq)))
        }
        (Some((high, last)), Some((to_high, seq))) if same_low && high == to_high => {
            (last < seq).then(|| way(high, *last, Stop::Behind(*seq)))
        }
        (None, _) => {
            let stop = Stop::End(raised(to.floors, least), None);
            Some(way(&to.low, least, stop))
        }
        (Some((high, last)), _) => {
            let stop = Stop::End(floors_of(high, from), from.end_of_era());
            Some(way(high, *last, stop))
        }
    }
}

/// Positions that see less come first; of two that see the same, the one that has come less far.
fn by_place(a: &Position, b: &Position) -> Ordering {
    let by_snapshot = |a: &Snapshot, b: &Snapshot| match a == b {
        true => Ordering::Equal,
        false if a.covers(b) => Ordering::Greater,
        false => Ordering::Less,
    };
    by_snapshot(&a.low, &b.low).then_with(|| match (&a.within, &b.within) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some((a, a_last)), Some((b, b_last))) => by_snapshot(a, b).then(a_last.cmp(b_last)),
    })
}

/// Floors of a snapshot that does not see less than one with this `floor_min`.
fn raised(floors: Floors, floor_min: i64) -> Floors {
    Floors {
        floor: floors.floor.max(floor_min),
        floor_min: floors.floor_min.max(floor_min),
    }
}

/// Floors of a difference's `high`: transactions new in it were at or above the `xmax` of `low`,
/// whose floor is theirs.
pub(super) fn floors_of(high: &Snapshot, from: &Position) -> Floors {
    let Floors { floor, floor_min } = from.floors;
    let remains = |xid: &u64| from.low.xip().binary_search(xid).is_ok();
    Floors {
        floor,
        floor_min: if high.xip().iter().any(remains) {
            floor_min
        } else {
            floor
        },
    }
}
