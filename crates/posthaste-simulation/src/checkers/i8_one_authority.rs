use std::collections::HashMap;

use super::Checker;
use crate::seen::{At, DestinationIndex, Seen};

/// I8: only the newest epoch of a partition moves anything, and only in the incarnation that it was
/// claimed in.
#[derive(Default)]
pub struct I8OneAuthority {
    /// The newest epoch of each partition, and the how many-th claim it was.
    newest: HashMap<(DestinationIndex, u16), (u64, u64)>,
    claims: u64,
    /// How often the database died.
    life: u64,
}

impl Checker for I8OneAuthority {
    fn see(&mut self, _: At, seen: &Seen, wrong: &mut Vec<String>) {
        match seen {
            Seen::Claimed {
                place,
                epoch,
                partitions,
                life,
                claims,
                ..
            } => {
                self.claims += 1;
                if *life < self.life {
                    // Its answer was late, and what it claimed may be forgotten by now.
                    return;
                }
                for partition in partitions {
                    let at = (*place, *partition);
                    match self.newest.get(&at) {
                        Some((newest, claim)) if newest >= epoch => {
                            let is_late = newest > epoch && claim > claims;
                            if !is_late {
                                wrong.push(format!(
                                    "epoch {epoch} of partition {partition} at {place} came after \
                                     {newest}"
                                ));
                            }
                        }
                        _ => drop(self.newest.insert(at, (*epoch, self.claims))),
                    }
                }
            }
            Seen::Moved {
                place,
                epoch,
                partitions,
                claimed_in,
                life,
                claims,
                what,
            } => {
                if claimed_in != life {
                    wrong.push(format!(
                        "{what} at {place} under a claim of an earlier life"
                    ));
                }
                let newer = |p: &&u16| {
                    let newest = self.newest.get(&(*place, **p));
                    newest.is_some_and(|(newest, claim)| newest > epoch && claim <= claims)
                };
                if let Some(partition) = partitions.iter().find(newer) {
                    wrong.push(format!(
                        "{what} at {place} in epoch {epoch}, though partition {partition} has a \
                         newer one"
                    ));
                }
            }
            Seen::DatabaseDied { forgets } => {
                self.life += 1;
                if *forgets {
                    // Epochs that the standby did not know come again.
                    self.newest.clear();
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

    fn claimed(epoch: u64) -> Seen {
        Seen::Claimed {
            place: 0,
            epoch,
            partitions: vec![1, 2],
            registration: id(1),
            life: 0,
            claims: 0,
        }
    }

    fn moved(epoch: u64, life: u64) -> Seen {
        Seen::Moved {
            place: 0,
            epoch,
            partitions: vec![2],
            claimed_in: 0,
            life,
            claims: 2,
            what: "advance",
        }
    }

    #[test]
    fn a_zombie_and_a_stale_memory_are_found() {
        good(
            I8OneAuthority::default(),
            &[claimed(1), moved(1, 0), claimed(2)],
        );
        bad(
            I8OneAuthority::default(),
            &[claimed(1), claimed(2), moved(1, 0)],
            "newer one",
        );
        bad(
            I8OneAuthority::default(),
            &[claimed(1), moved(1, 1)],
            "earlier life",
        );
        bad(
            I8OneAuthority::default(),
            &[claimed(2), claimed(2)],
            "came after",
        );
        good(I8OneAuthority::default(), &[claimed(2), claimed(1)]);
        let asked_later = Seen::Claimed {
            place: 0,
            epoch: 1,
            partitions: vec![1],
            registration: id(1),
            life: 0,
            claims: 1,
        };
        bad(
            I8OneAuthority::default(),
            &[claimed(2), asked_later],
            "came after",
        );
    }
}
