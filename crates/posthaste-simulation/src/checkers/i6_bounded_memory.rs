use std::collections::HashMap;

use uuid::Uuid;

use super::{Checker, Rules};
use crate::seen::{At, DestinationIndex, Seen};

/// I6: a claim holds at most a window of events that it has read and not stored.
pub struct I6BoundedMemory {
    window: u64,
    /// By claim: a standby that did not know an epoch grants it again, to another relay too.
    unstored: HashMap<(DestinationIndex, u64, Uuid), u64>,
}

impl I6BoundedMemory {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            window: rules.window,
            unstored: HashMap::new(),
        }
    }
}

impl Checker for I6BoundedMemory {
    fn see(&mut self, _: At, seen: &Seen, wrong: &mut Vec<String>) {
        match seen {
            Seen::Claimed {
                place,
                epoch,
                registration,
                ..
            } => {
                self.unstored.remove(&(*place, *epoch, *registration));
            }
            Seen::Read {
                place,
                epoch,
                registration,
                events,
            } => {
                let claim = (*place, *epoch, *registration);
                let unstored = self.unstored.entry(claim).or_default();
                *unstored += events;
                if *unstored > self.window {
                    wrong.push(format!(
                        "{unstored} events were read and not stored at {place} in epoch {epoch}"
                    ));
                }
            }
            Seen::Stored {
                place,
                epoch,
                registration,
                passed,
                ..
            } => {
                let claim = (*place, *epoch, *registration);
                let unstored = self.unstored.entry(claim).or_default();
                *unstored = unstored.saturating_sub(*passed);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::*;
    use super::*;

    #[test]
    fn a_window_that_overflows_is_found() {
        let read = |events| Seen::Read {
            place: 0,
            epoch: 1,
            registration: id(1),
            events,
        };
        let stored = Seen::Stored {
            place: 0,
            epoch: 1,
            registration: id(1),
            ids: Vec::new(),
            passed: 2,
        };
        good(I6BoundedMemory::new(&rules()), &[read(3), stored, read(2)]);
        bad(
            I6BoundedMemory::new(&rules()),
            &[read(3), read(1)],
            "read and not stored",
        );
    }
}
