//! A model of a store: one destination in the plainest form.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use posthaste_engine::{
    AfterFailure, Budget, Cursor, Due, EventRef, Marker, Page, ParkedCopy, Parking, Settlement,
    StoredEvent,
};

use super::Dice;

/// The durable part of a destination: a log, a cursor, markers and parked copies.
pub(crate) struct Model {
    pub(crate) log: Vec<StoredEvent>,
    pub(crate) cursor: i64,
    pub(crate) markers: BTreeMap<String, i64>,
    pub(crate) parked: BTreeMap<i64, (StoredEvent, u32, bool)>,
    pub(crate) next_parked: i64,
    /// How often each event is still rejected.
    pub(crate) poison: HashMap<i64, u32>,
    pub(crate) skipped: Vec<i64>,
    pub(crate) set_aside: Vec<EventRef>,
    /// The progress that a transactional broker keeps of a destination: events that were accepted
    /// and may be sent again.
    pub(crate) progress: Option<BTreeSet<i64>>,
}

pub(crate) fn place(cursor: &Cursor) -> i64 {
    cursor
        .seq()
        .or_else(|| cursor.base::<i64>().copied())
        .unwrap()
}

impl Model {
    fn page(&self, events: Vec<StoredEvent>, end: i64, joinable: bool, caught_up: bool) -> Page {
        Page {
            joinable,
            caught_up,
            ..Page::up_to(Arc::new(end), events)
        }
    }

    pub(crate) fn read(&self, from: &mut i64, budget: Budget, dice: &mut Dice) -> Page {
        let start = usize::try_from(*from).unwrap();
        let count = budget
            .events
            .min(1 + usize::try_from(dice.roll(9)).unwrap());
        let events: Vec<_> = self.log.iter().skip(start).take(count).cloned().collect();
        *from += i64::try_from(events.len()).unwrap();
        let caught_up = usize::try_from(*from).unwrap() == self.log.len();
        self.page(events, *from, caught_up || dice.one_in(2), caught_up)
    }

    pub(crate) fn side_read(&self, side: &mut ModelSide, until: i64, budget: Budget) -> Page {
        let behind = self
            .log
            .iter()
            .filter(|e| e.seq() > side.at && e.seq() <= until);
        let start = |e: &StoredEvent| e.key().and_then(|key| side.starts.get(key).copied());
        let ours = behind.filter(|e| start(e).is_some_and(|start| e.seq() > start));
        let ours: Vec<_> = ours.cloned().collect();
        let caught_up = ours.len() <= budget.events.min(3);
        let events: Vec<_> = ours.into_iter().take(budget.events.min(3)).collect();
        side.at = if caught_up {
            until.max(side.at)
        } else {
            events.last().unwrap().seq()
        };
        self.page(events, side.at, true, caught_up)
    }

    pub(crate) fn holds(&self, key: &str) -> bool {
        self.parked
            .values()
            .any(|(event, _, _)| event.key() == Some(key))
    }

    pub(crate) fn markers(&self) -> Vec<Marker> {
        let marker = |(key, &at): (&String, &i64)| Marker {
            key: key.clone(),
            at: Cursor::whole(Arc::new(at)),
            released: !self.holds(key),
        };
        self.markers.iter().map(marker).collect()
    }

    pub(crate) fn park(&mut self, parkings: &[Parking]) {
        for parking in parkings {
            self.set_aside.push(parking.event.reference());
            if parking.next == AfterFailure::Skip {
                self.skipped.push(parking.event.seq());
                // A side read of its key goes on behind it, after a crash as well.
                if let Some(marker) = parking
                    .event
                    .key()
                    .and_then(|key| self.markers.get_mut(key))
                {
                    *marker = place(&parking.at);
                }
                continue;
            }
            let dead = parking.next == AfterFailure::Dead;
            let row = (parking.event.clone(), parking.attempts, dead);
            self.parked.insert(self.next_parked, row);
            self.next_parked += 1;
            if let Some(key) = parking.event.key() {
                self.markers.insert(key.to_owned(), place(&parking.at));
            }
        }
    }

    pub(crate) fn due(&self, limit: usize) -> Due {
        let live = self
            .parked
            .iter()
            .filter(|(_, (_, _, dead))| !dead)
            .take(limit);
        Due {
            events: live
                .map(|(&id, (event, attempts, _))| ParkedCopy {
                    id,
                    event: event.clone(),
                    attempts: *attempts,
                    holds_key: true,
                    never_tried: *attempts == 0,
                })
                .collect(),
            released: self
                .markers
                .keys()
                .filter(|key| !self.holds(key))
                .cloned()
                .collect(),
            next_in: None,
        }
    }

    pub(crate) fn settle(&mut self, id: i64, settlement: &Settlement) {
        match settlement {
            Settlement::Delivered => drop(self.parked.remove(&id)),
            Settlement::Failed {
                next: AfterFailure::Skip,
                ..
            } => {
                let (event, _, _) = self.parked.remove(&id).unwrap();
                self.skipped.push(event.seq());
            }
            Settlement::Failed { next, .. } => {
                let row = self.parked.get_mut(&id).unwrap();
                row.1 += 1;
                row.2 = *next == AfterFailure::Dead;
            }
            Settlement::Postponed { .. } => {}
        }
    }
}

/// A side read: where each key's marker stood, and how far it has come.
pub(crate) struct ModelSide {
    pub(crate) starts: BTreeMap<String, i64>,
    at: i64,
}

impl ModelSide {
    pub(crate) fn new(starts: BTreeMap<String, i64>) -> Self {
        let at = starts.values().copied().min().unwrap();
        Self { starts, at }
    }
}
