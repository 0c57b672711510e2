//! What a lane has under way, and since when.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Instant,
};

use super::topics::Place;

/// A record that the client library holds.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) ticket: u64,
    pub(super) order_key: Option<u64>,
    pub(super) place: Place,
    pub(super) turn: u64,
    pub(super) event: u128,
    pub(super) bytes: usize,
}

/// The records that the client library holds, by the number that comes back with their reports.
#[derive(Default)]
pub(super) struct Flight {
    slots: Vec<Option<Flying>>,
    free: Vec<usize>,
    /// Where each key's records are going. Records of one key that go to different places are not
    /// ordered by the broker, so they are never under way together.
    keys: HashMap<u64, (Place, usize)>,
}

impl Flight {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a record of this key would be under way to two places.
    pub(super) fn divides(&self, order_key: Option<u64>, place: Place) -> bool {
        order_key
            .and_then(|key| self.keys.get(&key))
            .is_some_and(|&(known, _)| known != place)
    }

    /// The number that the next record is to bear.
    pub(super) fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Adds the record that bears [`next`](Self::next).
    pub(super) fn add(&mut self, record: Flying) {
        if let Some(key) = record.order_key {
            self.keys.entry(key).or_insert((record.place, 0)).1 += 1;
        }
        match self.free.pop() {
            Some(at) => self.slots[at] = Some(record),
            None => self.slots.push(Some(record)),
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<&Flying> {
        self.slots.get(at)?.as_ref()
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Flying> {
        let record = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        if let Some(key) = record.order_key
            && let Entry::Occupied(mut entry) = self.keys.entry(key)
        {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
        Some(record)
    }

    /// Takes all, in the order of submission.
    pub(super) fn take_all(&mut self) -> Vec<Flying> {
        let mut all: Vec<Flying> = self.slots.drain(..).flatten().collect();
        all.sort_unstable_by_key(|record| (record.turn, record.ticket));
        self.free.clear();
        self.keys.clear();
        all
    }
}

/// Submissions that have records without an answer, oldest first.
#[derive(Default)]
pub(super) struct Turns {
    first: u64,
    open: VecDeque<(Instant, usize)>,
}

impl Turns {
    /// Begins a submission of so many records.
    pub(super) fn begin(&mut self, now: Instant, count: usize) -> u64 {
        self.open.push_back((now, count));
        self.first + (self.open.len() as u64 - 1)
    }

    /// A record of the submission was answered.
    pub(super) fn answered(&mut self, turn: u64) {
        let at = usize::try_from(turn.saturating_sub(self.first)).unwrap_or(usize::MAX);
        if let Some((_, count)) = self.open.get_mut(at) {
            *count = count.saturating_sub(1);
        }
        while self.open.front().is_some_and(|&(_, count)| count == 0) {
            self.open.pop_front();
            self.first += 1;
        }
    }

    /// When the oldest unanswered record was submitted.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.open.front().map(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn flying(ticket: u64, order_key: Option<u64>, partition: usize) -> Flying {
        Flying {
            ticket,
            order_key,
            place: Place {
                topic: 0,
                partition,
            },
            turn: ticket / 2,
            event: 0,
            bytes: 0,
        }
    }

    #[test]
    fn a_key_is_under_way_to_one_place() {
        let mut flight = Flight::default();
        let place = |partition| Place {
            topic: 0,
            partition,
        };
        let first = flight.next();
        flight.add(flying(0, Some(1), 0));
        let second = flight.next();
        flight.add(flying(1, Some(1), 0));
        assert!(!flight.divides(Some(1), place(0)));
        assert!(flight.divides(Some(1), place(1)));
        assert!(!flight.divides(Some(2), place(1)));
        assert!(!flight.divides(None, place(1)));
        flight.remove(first);
        assert!(flight.divides(Some(1), place(1)));
        flight.remove(second);
        assert!(!flight.divides(Some(1), place(1)));
        assert!(flight.is_empty());
        assert!(flight.remove(second).is_none());
    }

    #[test]
    fn numbers_are_used_again_and_all_comes_in_order() {
        let mut flight = Flight::default();
        for ticket in 0..4 {
            flight.add(flying(ticket, None, 0));
        }
        flight.remove(1);
        assert_eq!(flight.next(), 1);
        flight.add(flying(4, None, 0));
        assert_eq!(flight.get(1).map(|record| record.ticket), Some(4));
        let tickets: Vec<u64> = flight.take_all().iter().map(|r| r.ticket).collect();
        assert_eq!(tickets, [0, 2, 3, 4]);
        assert!(flight.is_empty());
    }

    #[test]
    fn the_oldest_unanswered_submission_counts() {
        let mut turns = Turns::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = turns.begin(at(0), 2);
        let second = turns.begin(at(1), 1);
        turns.answered(second);
        assert_eq!(turns.oldest(), Some(at(0)));
        turns.answered(first);
        assert_eq!(turns.oldest(), Some(at(0)));
        turns.answered(first);
        assert_eq!(turns.oldest(), None);
        let third = turns.begin(at(2), 1);
        assert_eq!(turns.oldest(), Some(at(2)));
        turns.answered(third);
        assert_eq!(turns.oldest(), None);
    }
}
