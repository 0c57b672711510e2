use super::{Checker, Rules, owed::Owed};
use crate::seen::{At, Seen};

/// I10: what is reported as waiting is never less than what waits.
pub struct I10HonestNumbers {
    owed: Owed,
    /// Events that were owed when the status was asked for and have not been delivered since.
    at_least: Vec<usize>,
}

impl I10HonestNumbers {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            owed: Owed::new(rules.places),
            at_least: vec![0; rules.places],
        }
    }

    fn owed(&self) -> Vec<usize> {
        let places = 0..self.owed.places();
        places.map(|place| self.owed.of(place).len()).collect()
    }
}

impl Checker for I10HonestNumbers {
    fn see(&mut self, _: At, seen: &Seen, wrong: &mut Vec<String>) {
        let before = self.owed();
        match *seen {
            Seen::MayBeLeftBehind { place, id } => self.owed.leave(place, id),
            _ => self.owed.see(seen),
        }
        let paid = before.iter().zip(self.owed());
        for (at_least, (before, now)) in self.at_least.iter_mut().zip(paid) {
            *at_least = at_least.saturating_sub(before.saturating_sub(now));
        }
        match seen {
            Seen::StatusAsked => self.at_least = self.owed(),
            Seen::StatusAnswered {
                place,
                pending,
                parked,
            } => {
                let owed = self.at_least[*place] as u64;
                if pending + parked < owed {
                    wrong.push(format!(
                        "{pending} pending and {parked} set aside were reported at {place}, \
                         but {owed} wait"
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

    #[test]
    fn a_lag_that_is_reported_too_low_is_found() {
        let answered = |pending| Seen::StatusAnswered {
            place: 0,
            pending,
            parked: 0,
        };
        let two = [committed(1), committed(2), Seen::StatusAsked];
        let judge = |rest: &[Seen]| [&two[..], rest].concat();
        let checker = || I10HonestNumbers::new(&rules());
        good(checker(), &judge(&[answered(2)]));
        good(checker(), &judge(&[delivered(1), answered(1)]));
        bad(checker(), &judge(&[answered(1)]), "but 2 wait");
    }
}
