use std::collections::BTreeSet;

use uuid::Uuid;

use crate::seen::Seen;

/// Events that are committed and not delivered, by destination.
pub(crate) struct Owed {
    places: Vec<OwedAt>,
    reopens: bool,
}

#[derive(Clone, Default)]
struct OwedAt {
    owed: BTreeSet<Uuid>,
    /// Never delivered: somebody decided so.
    left: BTreeSet<Uuid>,
}

impl Owed {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places: vec![OwedAt::default(); places],
            reopens: false,
        }
    }

    /// An event that was left behind is owed again where a fail-over forgot the decision, until it
    /// is seen on record.
    pub(crate) fn that_reopens(places: usize) -> Self {
        Self {
            reopens: true,
            ..Self::new(places)
        }
    }

    pub(crate) fn see(&mut self, seen: &Seen) {
        if let Some((place, id)) = seen.left_behind() {
            self.leave(place, id);
        }
        match seen {
            Seen::Committed { id, .. } => self.places.iter_mut().for_each(|of| {
                of.owed.insert(*id);
            }),
            Seen::LostByTheServer { id } => self.places.iter_mut().for_each(|of| {
                of.owed.remove(id);
                of.left.remove(id);
            }),
            Seen::Delivered { place, id, .. } => {
                let of = &mut self.places[*place];
                of.owed.remove(id);
                of.left.remove(id);
            }
            Seen::DatabaseDied { forgets: true } if self.reopens => {
                for OwedAt { owed, left } in &mut self.places {
                    owed.append(left);
                }
            }
            _ => {}
        }
    }

    /// Somebody decided that this is never delivered.
    pub(crate) fn leave(&mut self, place: usize, id: Uuid) {
        let of = &mut self.places[place];
        if of.owed.remove(&id) {
            of.left.insert(id);
        }
    }

    pub(crate) fn of(&self, place: usize) -> &BTreeSet<Uuid> {
        &self.places[place].owed
    }

    /// How many there are, at all destinations.
    pub(crate) fn all(&self) -> usize {
        self.places.iter().map(|of| of.owed.len()).sum()
    }

    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }
}
