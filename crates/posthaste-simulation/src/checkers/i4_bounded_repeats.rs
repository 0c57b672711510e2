use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{Checker, Rules};
use crate::seen::{At, Seen};

/// I4: what is behind the stored cursor is not sent again by whoever claims after that, nor by the same claim. So a
/// crash repeats at most what was read and not stored, which [`super::I6BoundedMemory`] bounds by the window.
pub struct I4BoundedRepeats {
    places: Vec<Of>,
}

#[derive(Default)]
struct Of {
    /// The newest epoch of any claim.
    newest: u64,
    /// Stored events that were delivered before: the epoch of the claim that stored it, and the newest then.
    stored: HashMap<Uuid, (u64, u64)>,
    delivered: HashSet<Uuid>,
    /// What was set aside is tried again by itself, and its acknowledgement may be lost like any other.
    set_aside: HashSet<Uuid>,
}

impl I4BoundedRepeats {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            places: (0..rules.places).map(|_| Of::default()).collect(),
        }
    }
}

impl Checker for I4BoundedRepeats {
    fn see(&mut self, _: At, seen: &Seen, wrong: &mut Vec<String>) {
        match seen {
            Seen::Claimed { place, epoch, .. } => {
                let newest = &mut self.places[*place].newest;
                *newest = (*newest).max(*epoch);
            }
            Seen::Delivered { place, id, .. } => {
                self.places[*place].delivered.insert(*id);
            }
            Seen::SetAside { place, id, .. } => {
                let of = &mut self.places[*place];
                of.set_aside.insert(*id);
                of.stored.remove(id);
            }
            Seen::Stored {
                place, epoch, ids, ..
            } => {
                let of = &mut self.places[*place];
                for id in ids.iter().filter(|id| of.delivered.contains(*id)) {
                    if !of.set_aside.contains(id) {
                        of.stored.insert(*id, (*epoch, of.newest));
                    }
                }
            }
            Seen::Submitted { place, id, epoch } => {
                let stored = self.places[*place].stored.get(id);
                if let Some((by, newest)) = stored.filter(|(by, new)| epoch == by || epoch > new) {
                    wrong.push(format!(
                        "{id} was sent again at {place} in epoch {epoch}, though epoch {by} had stored it \
                         when {newest} was the newest"
                    ));
                }
            }
            Seen::DatabaseDied { forgets: true } => {
                self.places.iter_mut().for_each(|of| of.stored.clear());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::planted::*;
    use super::*;

    fn submitted(epoch: u64) -> Seen {
        Seen::Submitted {
            place: 0,
            id: id(1),
            epoch,
        }
    }

    #[test]
    fn a_repeat_of_what_is_stored_is_found_and_one_of_what_is_not_is_none() {
        let first = [submitted(1), delivered(1)];
        let stored = Seen::Stored {
            place: 0,
            epoch: 1,
            registration: id(1),
            ids: vec![id(1)],
            passed: 1,
        };
        let unstored = [&first[..], &[submitted(2)]].concat();
        good(I4BoundedRepeats::new(&rules()), &unstored);
        let repeated = [&first[..], &[stored], &[submitted(2)]].concat();
        bad(I4BoundedRepeats::new(&rules()), &repeated, "sent again");
    }
}
