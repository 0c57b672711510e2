//! One checker for each promise of the design. Each sees every fact, and says what is wrong with
//! it.

mod i10_honest_numbers;
mod i12_nothing_in_silence;
mod i1_no_loss;
mod i2_no_phantom;
mod i3_key_order;
mod i4_bounded_repeats;
mod i5_liveness;
mod i6_bounded_memory;
mod i7_isolation;
mod i8_one_authority;
mod owed;

pub use i1_no_loss::I1NoLoss;
pub use i2_no_phantom::I2NoPhantom;
pub use i3_key_order::I3KeyOrder;
pub use i4_bounded_repeats::I4BoundedRepeats;
pub use i5_liveness::I5Liveness;
pub use i6_bounded_memory::I6BoundedMemory;
pub(crate) use i7_isolation::ALONE_MIN;
pub use i7_isolation::I7Isolation;
pub use i8_one_authority::I8OneAuthority;
pub use i10_honest_numbers::I10HonestNumbers;
pub use i12_nothing_in_silence::I12NothingInSilence;

use posthaste_engine::OrderBy;

use crate::seen::{At, Seen};
pub(crate) use owed::Owed;

/// The limits of a run that checkers need.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How many destinations there are.
    pub places: usize,
    /// By destination, whether the broker fences exactly.
    pub exact: Vec<bool>,
    /// By destination, the order that it keeps.
    pub order_by: Vec<OrderBy>,
    /// Events that a claim may have read and not stored.
    pub window: u64,
    /// How long everything may take once nothing fails any more, ...
    pub drain_limit: At,
    /// ... and how much longer for each event that is owed then: of a key that goes one at a time
    /// each makes a journey of its own.
    pub drain_each: At,
    /// How long a take-over may take when all is well.
    pub take_over_limit: At,
}

impl Rules {
    /// How long a backlog may take.
    #[must_use]
    pub fn drain(&self, owed: usize) -> At {
        self.drain_limit + self.drain_each * u32::try_from(owed).unwrap_or(u32::MAX)
    }
}

/// Judges one promise.
pub trait Checker: Send {
    /// Takes in a fact; what is wrong with it is added to `wrong`.
    fn see(&mut self, at: At, seen: &Seen, wrong: &mut Vec<String>);

    /// The run is over.
    fn end(&mut self, wrong: &mut Vec<String>) {
        let _ = wrong;
    }
}

/// All of them, each with the name of its promise.
pub struct Checkers(Vec<(&'static str, Box<dyn Checker>)>);

impl Checkers {
    /// All checkers of a run.
    #[must_use]
    pub fn new(rules: &Rules) -> Self {
        Self(vec![
            ("I1", Box::new(I1NoLoss::new(rules)) as Box<dyn Checker>),
            ("I2", Box::new(I2NoPhantom::default())),
            ("I3", Box::new(I3KeyOrder::new(rules))),
            ("I4", Box::new(I4BoundedRepeats::new(rules))),
            ("I5", Box::new(I5Liveness::new(rules))),
            ("I6", Box::new(I6BoundedMemory::new(rules))),
            ("I7", Box::new(I7Isolation::new(rules))),
            ("I8", Box::new(I8OneAuthority::default())),
            ("I10", Box::new(I10HonestNumbers::new(rules))),
            ("I12", Box::new(I12NothingInSilence::default())),
        ])
    }

    #[cfg(test)]
    pub(crate) fn add(&mut self, checker: impl Checker + 'static) {
        self.0.push(("test", Box::new(checker)));
    }

    /// Takes in a fact; answers what is wrong, with the promise's name.
    pub fn see(&mut self, at: At, seen: &Seen, violations: &mut Vec<String>) {
        self.each(violations, |checker, wrong| checker.see(at, seen, wrong));
    }

    /// The run is over.
    pub fn end(&mut self, violations: &mut Vec<String>) {
        self.each(violations, |checker, wrong| checker.end(wrong));
    }

    fn each(
        &mut self,
        violations: &mut Vec<String>,
        mut ask: impl FnMut(&mut dyn Checker, &mut Vec<String>),
    ) {
        let mut wrong = Vec::new();
        for (name, checker) in &mut self.0 {
            ask(&mut **checker, &mut wrong);
            violations.extend(wrong.drain(..).map(|words| format!("{name}: {words}")));
        }
    }
}

/// Helpers of the checkers' own tests, which write their traces by hand.
#[cfg(test)]
mod traces {
    use std::{sync::Arc, time::Duration};

    use posthaste_engine::OrderBy;
    use uuid::Uuid;

    use super::{Checker, Rules};
    use crate::seen::Seen;

    pub(super) fn rules() -> Rules {
        Rules {
            places: 1,
            exact: vec![true],
            order_by: vec![OrderBy::Key],
            window: 3,
            drain_limit: Duration::from_secs(10),
            drain_each: Duration::from_secs(1),
            take_over_limit: Duration::from_secs(10),
        }
    }

    pub(super) fn id(n: u64) -> Uuid {
        Uuid::from_u128(u128::from(n))
    }

    pub(super) fn key(name: &str) -> Option<Arc<str>> {
        Some(name.into())
    }

    pub(super) fn committed(n: u64) -> Seen {
        Seen::Committed {
            id: id(n),
            topic: "t",
            key: key("k"),
            n,
            transaction: n,
            serialised: true,
        }
    }

    pub(super) fn delivered(n: u64) -> Seen {
        Seen::Delivered {
            place: 0,
            id: id(n),
            key: key("k"),
            n,
        }
    }

    /// The checker's verdict on facts that come a second apart.
    pub(super) fn judged(mut checker: impl Checker, trace: &[Seen]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (second, seen) in trace.iter().enumerate() {
            checker.see(Duration::from_secs(second as u64), seen, &mut wrong);
        }
        checker.end(&mut wrong);
        wrong
    }

    pub(super) fn good(checker: impl Checker, trace: &[Seen]) {
        assert_eq!(judged(checker, trace), [""; 0]);
    }

    pub(super) fn bad(checker: impl Checker, trace: &[Seen], words: &str) {
        let wrong = judged(checker, trace);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "{wrong:?}");
    }
}
