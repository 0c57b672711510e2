use super::{Checker, Rules};
use crate::seen::{At, Seen};

/// I5: once nothing fails any more the backlog drains; a death among the living costs a lease and a settle time.
pub struct I5Liveness {
    drain_limit: At,
    take_over_limit: At,
    healed: Option<At>,
    died: Option<At>,
}

impl I5Liveness {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            drain_limit: rules.drain_limit,
            take_over_limit: rules.take_over_limit,
            healed: None,
            died: None,
        }
    }
}

impl Checker for I5Liveness {
    fn see(&mut self, at: At, seen: &Seen, wrong: &mut Vec<String>) {
        let mut judge = |since: &mut Option<At>, limit: At, what: &str| match since
            .take()
            .map(|since| at - since)
        {
            Some(took) if took <= limit => {}
            Some(took) => wrong.push(format!("{what} took {took:?}, more than {limit:?}")),
            None => wrong.push(format!("{what} ended and had not begun")),
        };
        match seen {
            Seen::Healed => self.healed = Some(at),
            Seen::LastDeath => self.died = Some(at),
            Seen::Drained => judge(&mut self.healed, self.drain_limit, "draining"),
            Seen::TakenOver => judge(&mut self.died, self.take_over_limit, "the take-over"),
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
        let mut slow = vec![Seen::Healed, Seen::Drained, Seen::LastDeath];
        slow.extend(vec![Seen::StatusAsked; 10]);
        slow.push(Seen::TakenOver);
        bad(I5Liveness::new(&rules()), &slow, "the take-over took 11s");
    }
}
