use super::{Checker, Rules, owed::Owed};
use crate::seen::{At, Seen};

/// I5: once nothing fails any more the backlog drains; a death among the living costs a lease and a settle time.
pub struct I5Liveness {
    rules: Rules,
    owed: Owed,
    /// When, and how long it may take from then on.
    healed: Option<(At, At)>,
    died: Option<(At, At)>,
}

impl I5Liveness {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            rules: rules.clone(),
            owed: Owed::new(rules.places),
            healed: None,
            died: None,
        }
    }
}

impl Checker for I5Liveness {
    fn see(&mut self, at: At, seen: &Seen, wrong: &mut Vec<String>) {
        self.owed.see(seen);
        let mut judge = |began: &mut Option<(At, At)>, what: &str| match began.take() {
            Some((since, limit)) if at - since <= limit => {}
            Some((since, limit)) => {
                let took = at - since;
                wrong.push(format!("{what} took {took:?}, more than {limit:?}"));
            }
            None => wrong.push(format!("{what} ended and had not begun")),
        };
        match seen {
            Seen::Healed => self.healed = Some((at, self.rules.drain(self.owed.all()))),
            Seen::LastDeath => self.died = Some((at, self.rules.take_over_limit)),
            Seen::Drained => judge(&mut self.healed, "draining"),
            Seen::TakenOver => judge(&mut self.died, "the take-over"),
            _ => {}
        }
    }

    fn end(&mut self, wrong: &mut Vec<String>) {
        if self.healed.is_some() {
            wrong.push("the backlog never drained".into());
        }
        if self.died.is_some() {
            wrong.push("nobody took over".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::planted::*;
    use super::*;

    #[test]
    fn a_backlog_that_stays_and_a_slow_take_over_are_found() {
        let good_run = [
            Seen::Healed,
            Seen::Drained,
            Seen::LastDeath,
            Seen::TakenOver,
        ];
        good(I5Liveness::new(&rules()), &good_run);
        bad(I5Liveness::new(&rules()), &good_run[..1], "never drained");
        bad(
            I5Liveness::new(&rules()),
            &good_run[..3],
            "nobody took over",
        );
        let slowly = |owed: u64| {
            let mut slowly: Vec<Seen> = (1..=owed).map(committed).collect();
            slowly.push(Seen::Healed);
            slowly.extend(vec![Seen::StatusAsked; 11]);
            slowly.push(Seen::Drained);
            slowly
        };
        bad(I5Liveness::new(&rules()), &slowly(1), "draining took 12s");
        good(I5Liveness::new(&rules()), &slowly(2));
        let mut slow = vec![Seen::Healed, Seen::Drained, Seen::LastDeath];
        slow.extend(vec![Seen::StatusAsked; 10]);
        slow.push(Seen::TakenOver);
        bad(I5Liveness::new(&rules()), &slow, "the take-over took 11s");
    }
}
