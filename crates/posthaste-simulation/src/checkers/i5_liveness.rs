use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

use super::{Checker, Rules, owed::Owed};
use crate::seen::{At, DestinationIndex, Seen};

const SECOND: At = At::from_secs(1);

/// Claims of one relay at one destination within a second: one that is refused or that fails is
/// tried again after a while, and shares are evened out in a few steps.
const CLAIMS_A_SECOND: usize = 20;

/// I5: once nothing fails any more the backlog drains; a death among the living costs a lease and a
/// settle time; nobody claims again and again instead of delivering.
pub struct I5Liveness {
    /// When each relay claimed, in the last second.
    claims: HashMap<(DestinationIndex, Uuid), VecDeque<At>>,
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
            claims: HashMap::new(),
            healed: None,
            died: None,
        }
    }
}

impl Checker for I5Liveness {
    fn see(&mut self, at: At, seen: &Seen, wrong: &mut Vec<String>) {
        self.owed.see(seen);
        if let Seen::Claimed {
            place,
            registration,
            ..
        } = seen
        {
            let claims = self.claims.entry((*place, *registration)).or_default();
            claims.push_back(at);
            while claims.front().is_some_and(|first| at - *first > SECOND) {
                claims.pop_front();
            }
            if claims.len() == CLAIMS_A_SECOND {
                wrong.push(format!(
                    "{registration} claimed {CLAIMS_A_SECOND} times within a second at {place}"
                ));
            }
        }
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
    use super::super::traces::*;
    use super::*;

    #[test]
    fn a_relay_that_claims_without_rest_is_found() {
        let claimed = |epoch| Seen::Claimed {
            place: 0,
            epoch,
            partitions: vec![0],
            registration: id(1),
            life: 0,
            claims: 0,
        };
        let often = |pause: At| {
            let (mut checker, mut wrong) = (I5Liveness::new(&rules()), Vec::new());
            for epoch in 1..=40_u32 {
                checker.see(pause * epoch, &claimed(epoch.into()), &mut wrong);
            }
            wrong.len()
        };
        assert_eq!(often(At::from_millis(250)), 0);
        assert!(often(At::from_millis(10)) > 0);
    }

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
