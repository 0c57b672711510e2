//! Decides what is due, on one look without any lock.

use std::{sync::LazyLock, time::Duration};

use posthaste_engine::{RetentionMode, StoreError};
use tokio_postgres::{Row, types::Type};

use super::{FLOOR, OPERATION, PARKED_DUE, emptied::Emptied, script::bug};
use crate::postgres::{
    client::Client,
    error::classify,
    micros::{from_micros, unsigned},
    schema::leaves,
};

static SURVEY: LazyLock<String> = LazyLock::new(|| {
    let leaf = |(number, leaf): (usize, String)| {
        let end = |order| {
            format!(
                "(select seq, inserted_at from posthaste.{leaf} where seq > ($1::bigint[])[{}]
                  order by seq {order} limit 1)",
                number + 1
            )
        };
        format!(
            "select {number} as leaf, a.seq as least, a.inserted_at as least_at, z.seq as greatest,
                 z.inserted_at as greatest_at
             from {} a cross join {} z",
            end("asc"),
            end("desc")
        )
    };
    let leaves: Vec<_> = leaves().enumerate().map(leaf).collect();
    include_str!("../sql/retention_survey.sql")
        .replace("{floor}", FLOOR)
        .replace("{parked_due}", &format!("exists (\n{PARKED_DUE})"))
        .replace("{leaves}", &leaves.join("\n    union all\n    "))
});
/// Fewer rows than this are not worth the lock on their leaf.
const ROWS_WORTH_A_LOCK: u64 = 1_000;
/// A leaf that takes longer to fill than this, and than the window, is not left to go as a whole.
const SLOW: Duration = Duration::from_secs(3_600);

/// One leaf that holds rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::postgres) struct Leaf {
    pub(in crate::postgres) number: usize,
    pub(in crate::postgres) least: i64,
    pub(in crate::postgres) greatest: i64,
    /// How long ago the rows of these numbers were inserted.
    pub(in crate::postgres) least_age: Duration,
    pub(in crate::postgres) greatest_age: Duration,
}

/// The state of the outbox, seen without any lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::postgres) struct Survey {
    /// The last number drawn.
    pub(in crate::postgres) sequence: i64,
    /// At or below this nothing is needed any more; none without any cursor.
    pub(in crate::postgres) floor: Option<i64>,
    /// At or below this every destination has passed; block markers may need it still.
    pub(in crate::postgres) passed: Option<i64>,
    pub(in crate::postgres) leaf_bits: u32,
    pub(in crate::postgres) window: Duration,
    pub(in crate::postgres) mode: RetentionMode,
    pub(in crate::postgres) parked_due: bool,
    pub(in crate::postgres) audit_due: bool,
    pub(in crate::postgres) leaves: Vec<Leaf>,
}

/// The change that a leaf is due for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum Due {
    Truncate,
    Delete,
}

impl Survey {
    pub(in crate::postgres) async fn make(
        client: &Client,
        emptied: &Emptied,
    ) -> Result<Self, StoreError> {
        loop {
            let behind = emptied.numbers();
            let rows = client
                .query_typed(SURVEY.as_str(), &[(&behind, Type::INT8_ARRAY)])
                .await
                .map_err(|error| classify(OPERATION, error))?;
            let first = rows.first().ok_or_else(|| bug("the survey is empty"))?;
            if emptied.is_of(first.get("incarnation")) {
                return Self::read(first, &rows);
            }
        }
    }

    fn read(first: &Row, rows: &[Row]) -> Result<Self, StoreError> {
        let setting = |found: Option<i64>| {
            found.ok_or_else(|| StoreError::Misconfigured {
                operation: OPERATION,
                reason: "a stored setting is missing: run `posthaste init` again".to_owned(),
            })
        };
        let bits = setting(first.get::<_, Option<i32>>("leaf_bits").map(i64::from))?;
        Ok(Self {
            sequence: first.get("sequence"),
            floor: first.get("floor"),
            passed: first.get("passed"),
            leaf_bits: u32::try_from(bits).map_err(|_| bug("leaves without rows"))?,
            window: Duration::from_secs(unsigned(setting(first.get("seconds"))?)),
            mode: mode(first.get("mode"))?,
            parked_due: first.get("parked_due"),
            audit_due: first.get("audit_due"),
            leaves: rows.iter().filter_map(Leaf::read).collect(),
        })
    }

    /// Rows at or below it go however young they are: the ring is to have room.
    pub(in crate::postgres) fn ring_edge(&self) -> i64 {
        let three_quarters = 12_i64.checked_shl(self.leaf_bits).unwrap_or(i64::MAX);
        self.sequence.saturating_sub(three_quarters)
    }

    fn is_past_window(&self, seq: i64, age: Duration) -> bool {
        age >= self.window || seq <= self.ring_edge()
    }

    pub(in crate::postgres) fn due(&self, leaf: &Leaf) -> Option<Due> {
        let floor = self.floor?;
        let has_some = leaf.least <= floor && self.is_past_window(leaf.least, leaf.least_age);
        if self.mode == RetentionMode::Delete {
            return has_some.then_some(Due::Delete);
        }
        if leaf.greatest <= floor && self.is_past_window(leaf.greatest, leaf.greatest_age) {
            let worth_it = self.rows_at_most(leaf.least, leaf.greatest) >= ROWS_WORTH_A_LOCK;
            return Some(if worth_it { Due::Truncate } else { Due::Delete });
        }
        let fills_slowly =
            leaf.least_age.saturating_sub(leaf.greatest_age) >= self.window.max(SLOW);
        (fills_slowly && has_some).then_some(Due::Delete)
    }

    /// Whether block markers alone keep something that may be past its time.
    pub(in crate::postgres) fn keys_pin(&self) -> bool {
        let (Some(floor), Some(passed)) = (self.floor, self.passed) else {
            return false;
        };
        let kept = |leaf: &Leaf| leaf.least <= passed && leaf.greatest > floor;
        let old = |leaf: &Leaf| self.is_past_window(leaf.least, leaf.least_age);
        floor < passed && self.leaves.iter().any(|leaf| kept(leaf) && old(leaf))
    }

    /// How many rows of one leaf have numbers from `least` to `greatest`. It may hold those of two
    /// laps.
    pub(in crate::postgres) fn rows_at_most(&self, least: i64, greatest: i64) -> u64 {
        let lap = |seq: i64| seq >> (self.leaf_bits + 4);
        let laps = unsigned(lap(greatest) - lap(least) + 1);
        let room = 1_u64.checked_shl(self.leaf_bits).unwrap_or(u64::MAX);
        unsigned(greatest - least + 1).min(laps.saturating_mul(room))
    }

    /// No more numbers than these are both beyond the floor and older than the window.
    pub(in crate::postgres) fn debt_at_most(&self, floor: i64, window: Duration) -> u64 {
        let old = self.leaves.iter().filter(|leaf| leaf.least_age >= window);
        let edge = old.map(|leaf| leaf.greatest).max().unwrap_or(floor);
        unsigned(edge - floor)
    }
}

fn mode(name: Option<&str>) -> Result<RetentionMode, StoreError> {
    name.and_then(RetentionMode::from_name)
        .ok_or_else(|| StoreError::Misconfigured {
            operation: OPERATION,
            reason: "the setting retention_mode is neither `truncate` nor `delete`: run \
                     `posthaste init --retention-mode truncate`"
                .to_owned(),
        })
}

impl Leaf {
    fn read(row: &Row) -> Option<Self> {
        let age = |name| from_micros(row.get::<_, Option<i64>>(name).unwrap_or(0));
        Some(Self {
            number: usize::try_from(row.get::<_, Option<i32>>("leaf")?).ok()?,
            least: row.get("least"),
            greatest: row.get("greatest"),
            least_age: age("least_age"),
            greatest_age: age("greatest_age"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn survey(floor: Option<i64>, window: Duration) -> Survey {
        Survey {
            sequence: 5_000,
            floor,
            passed: floor,
            leaf_bits: 10,
            window,
            mode: RetentionMode::Truncate,
            parked_due: false,
            audit_due: false,
            leaves: Vec::new(),
        }
    }

    /// The leaf of the first 1 024 numbers, all of it filled within a minute.
    fn leaf(greatest_age: Duration) -> Leaf {
        Leaf {
            number: 0,
            least: 1,
            greatest: 1_023,
            least_age: greatest_age + Duration::from_secs(60),
            greatest_age,
        }
    }

    #[test]
    fn a_leaf_goes_when_it_is_passed_and_past_its_time() {
        let due = |floor, age| survey(floor, 24 * HOUR).due(&leaf(age));
        assert_eq!(due(Some(1_023), 24 * HOUR), Some(Due::Truncate));
        assert_eq!(due(Some(1_023), 23 * HOUR), None);
        assert_eq!(due(Some(1_022), 24 * HOUR), None);
        assert_eq!(
            due(None, 24 * HOUR),
            None,
            "without any cursor nothing goes"
        );
    }

    #[test]
    fn what_three_quarters_of_the_ring_do_not_reach_goes_before_its_time() {
        let mut full = survey(Some(20_000), 24 * HOUR);
        full.sequence = 12 * 1_024 + 1_022;
        assert_eq!(full.due(&leaf(HOUR)), None);
        full.sequence += 1;
        assert_eq!(full.due(&leaf(HOUR)), Some(Due::Truncate));
    }

    #[test]
    fn a_leaf_that_fills_slowly_is_emptied_by_and_by() {
        let slow = Leaf {
            least_age: 49 * HOUR,
            ..leaf(HOUR)
        };
        assert_eq!(survey(Some(1), 24 * HOUR).due(&slow), Some(Due::Delete));
        assert_eq!(survey(Some(0), 24 * HOUR).due(&slow), None);
        assert_eq!(survey(Some(1), 50 * HOUR).due(&slow), None);
    }

    #[test]
    fn where_nothing_is_truncated_whatever_is_due_is_deleted() {
        let due = |floor, age| {
            let mut survey = survey(Some(floor), 24 * HOUR);
            survey.mode = RetentionMode::Delete;
            survey.due(&leaf(age))
        };
        assert_eq!(due(1_023, 24 * HOUR), Some(Due::Delete));
        assert_eq!(due(1, 24 * HOUR), Some(Due::Delete));
        assert_eq!(due(0, 24 * HOUR), None);
        assert_eq!(due(1_023, 23 * HOUR), None);
    }

    #[test]
    fn a_few_rows_are_not_worth_a_lock() {
        let few = Leaf {
            greatest: 10,
            ..leaf(25 * HOUR)
        };
        assert_eq!(survey(Some(10), 24 * HOUR).due(&few), Some(Due::Delete));
    }

    #[test]
    fn a_key_pins_what_all_destinations_have_passed() {
        let pinned = |floor, passed, age| {
            let mut survey = survey(Some(floor), 24 * HOUR);
            survey.passed = Some(passed);
            survey.leaves = vec![leaf(age)];
            survey.keys_pin()
        };
        assert!(pinned(500, 1_023, 24 * HOUR));
        assert!(
            !pinned(500, 500, 24 * HOUR),
            "a destination pins it as well"
        );
        assert!(!pinned(1_023, 2_000, 24 * HOUR), "nothing lies behind it");
        assert!(!pinned(500, 1_023, 23 * HOUR), "it is within its time");
    }

    #[test]
    fn rows_of_two_laps_are_told_apart() {
        let survey = survey(None, HOUR);
        assert_eq!(survey.rows_at_most(5, 14), 10);
        assert_eq!(survey.rows_at_most(1_000, 16 * 1_024 + 3), 2 * 1_024);
    }
}
