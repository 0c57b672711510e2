use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::Checker;
use crate::seen::{At, DestinationIndex, Seen};

/// I12: what was set aside stays on record, and so does a take-over.
#[derive(Default)]
pub struct I12NothingInSilence {
    set_aside: HashSet<(DestinationIndex, Uuid)>,
    owners: HashMap<(DestinationIndex, u16), Uuid>,
    killed: HashSet<Uuid>,
    /// Owners who died and whose partitions were another one's later.
    taken_over: HashSet<(DestinationIndex, Uuid)>,
}

impl Checker for I12NothingInSilence {
    fn see(&mut self, _: At, seen: &Seen, wrong: &mut Vec<String>) {
        match seen {
            Seen::SetAside { place, id, .. } => {
                self.set_aside.insert((*place, *id));
            }
            // The surviving server has no record of an event that it does not know.
            Seen::DatabaseDied { forgets: true } => {
                self.set_aside.clear();
                self.owners.clear();
                self.taken_over.clear();
            }
            Seen::Killed {
                registration: Some(registration),
            } => {
                self.killed.insert(*registration);
            }
            Seen::Claimed {
                place,
                partitions,
                registration,
                ..
            } => {
                // A relay may have given a partition up before it died.
                for partition in partitions {
                    let before = self.owners.insert((*place, *partition), *registration);
                    let dead = before.filter(|owner| self.killed.contains(owner));
                    self.taken_over.extend(dead.map(|dead| (*place, dead)));
                }
                let ours: HashSet<&u16> = partitions.iter().collect();
                self.owners.retain(|(at, partition), owner| {
                    (at, &*owner) != (place, registration) || ours.contains(partition)
                });
            }
            Seen::Audit {
                take_overs,
                fences,
                parked,
            } => {
                let kept: HashSet<_> = parked.iter().copied().collect();
                let lost = self.set_aside.difference(&kept).count();
                if lost > 0 {
                    wrong.push(format!("{lost} events that were set aside have no record"));
                }
                let silent = self.taken_over.len() as u64;
                if *take_overs < silent || (*fences == 0 && silent > 0) {
                    wrong.push(format!(
                        "{silent} take-overs, but {take_overs} of them and {fences} fencings \
                         in the audit"
                    ));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::*;
    use super::*;

    fn claimed(registration: u64) -> Seen {
        Seen::Claimed {
            place: 0,
            epoch: registration,
            partitions: vec![0],
            registration: id(registration),
            life: 0,
            claims: 0,
        }
    }

    fn audit(take_overs: u64, parked: &[u64]) -> Seen {
        Seen::Audit {
            take_overs,
            fences: take_overs,
            parked: parked.iter().map(|n| (0, id(*n))).collect(),
        }
    }

    #[test]
    fn a_park_without_record_is_found() {
        let parked = Seen::SetAside {
            place: 0,
            id: id(1),
            key: None,
            skipped: false,
        };
        good(
            I12NothingInSilence::default(),
            &[parked.clone(), audit(0, &[1])],
        );
        bad(
            I12NothingInSilence::default(),
            &[parked, audit(0, &[])],
            "have no record",
        );
    }

    #[test]
    fn a_take_over_without_record_is_found() {
        let killed = Seen::Killed {
            registration: Some(id(1)),
        };
        let taken = [claimed(1), killed, claimed(2)];
        good(
            I12NothingInSilence::default(),
            &[&taken[..], &[audit(1, &[])]].concat(),
        );
        bad(
            I12NothingInSilence::default(),
            &[&taken[..], &[audit(0, &[])]].concat(),
            "take-overs",
        );
    }
}
