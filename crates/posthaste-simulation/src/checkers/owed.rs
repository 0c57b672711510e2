use std::collections::BTreeSet;

use uuid::Uuid;

use crate::seen::Seen;

/// What is committed and not delivered, by destination.
pub(crate) struct Owed(Vec<BTreeSet<Uuid>>);

impl Owed {
    pub(crate) fn new(places: usize) -> Self {
        Self(vec![BTreeSet::new(); places])
    }

    pub(crate) fn see(&mut self, seen: &Seen) {
        match seen {
            Seen::Committed { id, .. } => self.0.iter_mut().for_each(|owed| {
                owed.insert(*id);
            }),
            Seen::LostByTheServer { id } => self.0.iter_mut().for_each(|owed| {
                owed.remove(id);
            }),
            Seen::Delivered { place, id, .. }
            | Seen::LeftBehind { place, id }
            | Seen::SetAside {
                place,
                id,
                skipped: true,
                ..
            } => {
                self.0[*place].remove(id);
            }
            _ => {}
        }
    }

    pub(crate) fn of(&self, place: usize) -> &BTreeSet<Uuid> {
        &self.0[place]
    }

    pub(crate) fn places(&self) -> usize {
        self.0.len()
    }
}
