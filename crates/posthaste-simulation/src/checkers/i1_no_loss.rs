use super::{Checker, Rules, owed::Owed};
use crate::seen::{At, Seen};

/// I1: every committed event is delivered everywhere, or an operator or the policy left it behind
/// on record.
pub struct I1NoLoss(Owed);

impl I1NoLoss {
    pub(super) fn new(rules: &Rules) -> Self {
        Self(Owed::that_reopens(rules.places))
    }
}

impl Checker for I1NoLoss {
    fn see(&mut self, _: At, seen: &Seen, _: &mut Vec<String>) {
        self.0.see(seen);
    }

    fn end(&mut self, wrong: &mut Vec<String>) {
        for place in 0..self.0.places() {
            let owed = self.0.of(place);
            if let Some(first) = owed.first() {
                wrong.push(format!(
                    "{} events were never delivered at {place}, the first {first}",
                    owed.len()
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::*;
    use super::*;

    #[test]
    fn a_lost_event_is_found() {
        let good_run = [committed(1), committed(2), delivered(1), delivered(2)];
        good(I1NoLoss::new(&rules()), &good_run);
        bad(I1NoLoss::new(&rules()), &good_run[..3], "never delivered");
    }

    #[test]
    fn what_was_skipped_and_forgotten_has_to_be_delivered_or_skipped_again() {
        let skipped = Seen::LeftBehind {
            place: 0,
            id: id(1),
        };
        let forgotten = Seen::DatabaseDied { forgets: true };
        let mut run = vec![committed(1), skipped.clone()];
        good(I1NoLoss::new(&rules()), &run);
        run.push(forgotten);
        bad(I1NoLoss::new(&rules()), &run, "never delivered");
        run.push(skipped);
        good(I1NoLoss::new(&rules()), &run);
    }
}
