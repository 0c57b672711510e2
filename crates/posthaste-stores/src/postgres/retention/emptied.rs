//! How far each leaf was emptied by deletes, so that rows which vacuum has not removed yet are not
//! walked again.
//!
//! No row will ever come to lie at or below the floor of retention. So this holds for as long as
//! the database's counters live, also when another relay deletes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::postgres::schema::leaves;

/// The rows that this process has deleted.
#[derive(Debug, Default)]
pub(in crate::postgres) struct Emptied(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    /// The life of the counters that these are numbers of.
    incarnation: Option<Uuid>,
    /// By leaf; missing: zero.
    behind: Vec<i64>,
}

impl Emptied {
    fn numbers_of_now(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for each leaf.
    pub(super) fn numbers(&self) -> Vec<i64> {
        let mut numbers = self.numbers_of_now().behind.clone();
        numbers.resize(leaves().count(), 0);
        numbers
    }

    pub(super) fn of(&self, leaf: usize) -> i64 {
        let numbers = self.numbers_of_now();
        numbers.behind.get(leaf).copied().unwrap_or(0)
    }

    /// Whether the numbers are of this life of the counters; else they are forgotten.
    pub(super) fn is_of(&self, incarnation: Option<Uuid>) -> bool {
        let mut numbers = self.numbers_of_now();
        if numbers.incarnation == incarnation {
            return true;
        }
        numbers.incarnation = incarnation;
        let knew_nothing = numbers.behind.is_empty();
        numbers.behind.clear();
        knew_nothing
    }

    /// The leaf holds nothing at or below `seq`.
    pub(super) fn up_to(&self, leaf: usize, seq: i64) {
        let mut numbers = self.numbers_of_now();
        if numbers.behind.len() <= leaf {
            numbers.behind.resize(leaf + 1, 0);
        }
        numbers.behind[leaf] = numbers.behind[leaf].max(seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_life_of_the_counters_knows_of_no_deletes() {
        let emptied = Emptied::default();
        let (one, two) = (Some(Uuid::new_v4()), Some(Uuid::new_v4()));
        assert!(emptied.is_of(one), "nothing was deleted yet");
        emptied.up_to(3, 70);
        emptied.up_to(3, 60);
        assert!(emptied.is_of(one));
        assert_eq!((emptied.of(3), emptied.of(15)), (70, 0));
        assert_eq!(emptied.numbers().iter().sum::<i64>(), 70);
        assert!(!emptied.is_of(two), "the survey is to be made again");
        assert_eq!(emptied.of(3), 0);
        assert!(emptied.is_of(two));
    }
}
