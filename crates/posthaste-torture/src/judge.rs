//! Compares what was delivered with what the business tables say.

use posthaste_testkit::{
    checker::{Checker, Report},
    lines::Line,
};
use uuid::Uuid;

use crate::database::{Database, Fact, LOOSE, LOOSE_EVENTS_MAX};

/// One delivered event.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Its key.
    pub key: String,
    /// Its number among those of its key, which its payload says.
    pub n: u64,
    /// The event's id.
    pub id: Uuid,
}

impl Delivery {
    /// The event of a line of a delivered file.
    ///
    /// # Panics
    ///
    /// When it is none of the torture's events.
    #[must_use]
    pub fn of_line(line: &Line) -> Self {
        let payload = String::from_utf8(line.payload().expect("a payload")).unwrap();
        Self {
            key: line.key.clone().expect("a key"),
            n: payload.trim_end().parse().unwrap(),
            id: line.id,
        }
    }
}

/// Judges deliveries one by one, so that they need not be held.
#[derive(Debug)]
pub struct Judge(Checker);

impl Judge {
    /// Knows what must be delivered, in commit order for each key.
    #[must_use]
    pub fn of(facts: &[Fact]) -> Self {
        let mut checker = Checker::new();
        for fact in facts {
            checker.committed(Some(&unit_of_order(&fact.key, fact.n)), fact.n, fact.id);
        }
        Self(checker)
    }

    /// The next delivery.
    pub fn delivered(&mut self, delivery: &Delivery) {
        let Delivery { key, n, id } = delivery;
        self.0.delivered(Some(&unit_of_order(key, *n)), *n, *id);
    }

    /// From here on repeats are those of another life of the relay.
    pub fn restarted(&mut self) {
        self.0.restarted();
    }

    /// The verdict.
    #[must_use]
    pub fn finish(self) -> Report {
        self.0.finish()
    }
}

/// Compares what a broker holds, in order for each key, with the truth.
pub async fn judge(
    database: &dyn Database,
    deliveries: impl IntoIterator<Item = Delivery>,
) -> Report {
    let facts = database.facts().await;
    assert_sound(&facts);
    let mut judge = Judge::of(&facts);
    deliveries
        .into_iter()
        .for_each(|delivery| judge.delivered(&delivery));
    judge.finish()
}

/// Within what order is promised: a key whose writers lock its row; of other keys, each transaction
/// alone, which numbers its events from a multiple of [`LOOSE_EVENTS_MAX`] on.
fn unit_of_order(key: &str, n: u64) -> String {
    if key.starts_with(LOOSE) {
        format!("{key} #{}", n / LOOSE_EVENTS_MAX)
    } else {
        key.to_owned()
    }
}

/// The truth itself must be whole: each locked key counts 1, 2, 3 …
///
/// # Panics
///
/// When there is none, or it has a gap.
pub fn assert_sound(facts: &[Fact]) {
    assert!(!facts.is_empty(), "nothing was committed");
    let mut before: Option<&Fact> = None;
    for fact in facts.iter().filter(|fact| !fact.key.starts_with(LOOSE)) {
        let last = before.filter(|before| before.key == fact.key);
        let expected = last.map_or(1, |last| last.n + 1);
        assert_eq!(fact.n, expected, "the truth has a gap at {fact:?}");
        before = Some(fact);
    }
}
