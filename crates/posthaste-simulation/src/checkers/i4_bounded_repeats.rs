use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{Checker, Rules};
use crate::seen::{At, Seen};

/// I4: what is behind the stored cursor is not sent again by whoever claims after that, nor by the
/// same claim. So a crash repeats at most what was read and not stored, which
/// [`super::I6BoundedMemory`] bounds by the window.
pub struct I4BoundedRepeats {
    places: Vec<RepeatsAt>,
}

/// A registration and an epoch.
type Grant = (Uuid, u64);

#[derive(Default)]
struct RepeatsAt {
    /// How many claims were granted.
    claims: u64,
    /// The how many-th each was. A standby that did not know an epoch grants it again, to another
    /// relay too.
    granted: HashMap<Grant, u64>,
    /// Stored events that were delivered before: the claim that stored it, and how many there had
    /// been by then.
    stored: HashMap<Uuid, (Grant, u64)>,
    delivered: HashSet<Uuid>,
    /// Parked events are tried again by themselves, and their acknowledgements may be lost like any
    /// other. They count from the request on: its answer may be lost, too.
    set_aside: HashSet<Uuid>,
}

impl I4BoundedRepeats {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            places: (0..rules.places).map(|_| RepeatsAt::default()).collect(),
        }
    }
}

impl Checker for I4BoundedRepeats {
    fn see(&mut self, _: At, seen: &Seen, wrong: &mut Vec<String>) {
        match seen {
            Seen::Claimed {
                place,
                epoch,
                registration,
                ..
            } => {
                let of = &mut self.places[*place];
                of.claims += 1;
                of.granted.insert((*registration, *epoch), of.claims);
            }
            Seen::Delivered { place, id, .. } => {
                self.places[*place].delivered.insert(*id);
            }
            Seen::MayBeSetAside { place, id } => {
                let of = &mut self.places[*place];
                of.set_aside.insert(*id);
                of.stored.remove(id);
            }
            Seen::Stored {
                place,
                epoch,
                registration,
                ids,
                ..
            } => {
                let of = &mut self.places[*place];
                for id in ids.iter().filter(|id| of.delivered.contains(*id)) {
                    if !of.set_aside.contains(id) {
                        let by = (*registration, *epoch);
                        of.stored.insert(*id, (by, of.claims));
                    }
                }
            }
            Seen::Submitted {
                place,
                id,
                epoch,
                registration,
            } => {
                let of = &self.places[*place];
                let claim = (*registration, *epoch);
                let knows = |(by, claims): &&(Grant, u64)| {
                    claim == *by || of.granted.get(&claim).is_some_and(|nth| nth > claims)
                };
                if let Some(((_, by), _)) = of.stored.get(id).filter(knows) {
                    wrong.push(format!(
                        "{id} was sent again at {place} in epoch {epoch}, though epoch {by} had \
                         stored it before"
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
    use super::super::traces::*;
    use super::*;

    fn submitted(epoch: u64) -> Seen {
        Seen::Submitted {
            place: 0,
            id: id(1),
            epoch,
            registration: id(epoch),
        }
    }

    fn claimed(epoch: u64) -> Seen {
        Seen::Claimed {
            place: 0,
            epoch,
            partitions: vec![0],
            registration: id(epoch),
            life: 0,
            claims: 0,
        }
    }

    fn stored(epoch: u64) -> Seen {
        Seen::Stored {
            place: 0,
            epoch,
            registration: id(epoch),
            ids: vec![id(1)],
            passed: 1,
        }
    }

    #[test]
    fn a_repeat_of_what_is_stored_is_found_and_one_of_what_is_not_is_none() {
        let first = [claimed(1), submitted(1), delivered(1)];
        let stored = stored(1);
        let unstored = [&first[..], &[claimed(2), submitted(2)]].concat();
        good(I4BoundedRepeats::new(&rules()), &unstored);
        let repeated = |again: &[Seen]| [&first[..], std::slice::from_ref(&stored), again].concat();
        for again in [&[claimed(2), submitted(2)][..], &[submitted(1)]] {
            let repeated = repeated(again);
            bad(I4BoundedRepeats::new(&rules()), &repeated, "sent again");
        }
        let of_a_zombie = [&[claimed(2)], &repeated(&[submitted(2)])[..]].concat();
        good(I4BoundedRepeats::new(&rules()), &of_a_zombie);
    }

    #[test]
    fn a_copy_that_the_relay_never_heard_of_may_be_sent() {
        let set_aside = Seen::MayBeSetAside {
            place: 0,
            id: id(1),
        };
        let first = [claimed(1), submitted(1), delivered(1)];
        let second = [claimed(2), stored(2), submitted(2)];
        let copied = [&first[..], &[set_aside], &second].concat();
        good(I4BoundedRepeats::new(&rules()), &copied);
    }
}
