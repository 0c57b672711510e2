//! Scenarios of retention.

use posthaste_engine::rule::Rule;

use super::{A, B, B_AT_ONCE, Control, Explored, LONG_A, Scenario, system};
use crate::{
    retention::{Keeping, Removal, Start},
    scenario::{Grain, Transaction},
};

fn retention(writers: Vec<Vec<Transaction>>, removal: Removal) -> Keeping {
    Keeping {
        writers: system(Grain::Delivery, 0, writers),
        removal,
        marks: false,
        creates: None,
        left_out: None,
    }
}

/// A leaf of two rows.
const LEAF: Removal = Removal::Truncate(2);

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |name, keeping, long| Scenario {
        name,
        explored: Explored::Retention(keeping),
        long,
    };
    let two = || vec![vec![A], vec![B_AT_ONCE]];
    let with_another = |keeping, start| Keeping {
        creates: Some(start),
        ..keeping
    };
    let with_a_marker = |keeping| Keeping {
        marks: true,
        ..keeping
    };
    let one = || vec![vec![A]];
    vec![
        scenario(
            "retention: a leaf of 1 row is truncated beside a writer and a new destination \
             (oldest)",
            with_another(retention(one(), Removal::Truncate(1)), Start::Oldest),
            false,
        ),
        scenario(
            "retention: rows are deleted beside a writer and a new destination (oldest)",
            with_another(retention(one(), Removal::Delete), Start::Oldest),
            false,
        ),
        scenario(
            "retention: rows are deleted beside a writer and a new destination (now)",
            with_another(retention(one(), Removal::Delete), Start::Now),
            false,
        ),
        scenario(
            "retention: a leaf of 2 rows is truncated beside 2 writers and a new destination \
             (oldest)",
            with_another(retention(two(), LEAF), Start::Oldest),
            true,
        ),
        scenario(
            "retention: rows are deleted beside 2 writers and a new destination (oldest)",
            with_another(retention(two(), Removal::Delete), Start::Oldest),
            true,
        ),
        scenario(
            "retention: rows are deleted beside 2 writers and a new destination (now)",
            with_another(retention(two(), Removal::Delete), Start::Now),
            true,
        ),
        scenario(
            "retention: a leaf of 2 rows is truncated beside 2 writers and a blocked key",
            with_a_marker(retention(two(), LEAF)),
            false,
        ),
        scenario(
            "retention: a leaf of 2 rows, 2 writers of 3 events, a blocked key and a new \
             destination",
            with_another(
                with_a_marker(retention(vec![vec![LONG_A], vec![A, B_AT_ONCE]], LEAF)),
                Start::Oldest,
            ),
            true,
        ),
    ]
}

pub(super) fn controls() -> Vec<Control> {
    let control = |name, rule, keeping| Control {
        name,
        explored: Explored::Retention(Keeping {
            left_out: Some(rule),
            ..keeping
        }),
    };
    let two = |removal| retention(vec![vec![A], vec![B]], removal);
    let with_another = |keeping| Keeping {
        creates: Some(Start::Oldest),
        ..keeping
    };
    vec![
        control(
            "truncation decides by what it saw before its lock",
            Rule::TruncationChecksUnderLock,
            two(LEAF),
        ),
        control(
            "deletion takes the floor that it read before its lock",
            Rule::FloorReadUnderLock,
            with_another(two(Removal::Delete)),
        ),
        control(
            "truncation does not wait for open writers",
            Rule::TruncationWaitsForWriters,
            two(LEAF),
        ),
        control(
            "a destination is created without the retention lock",
            Rule::DestinationCreatedUnderLock,
            with_another(two(Removal::Delete)),
        ),
        control(
            "the floor is read without the block markers",
            Rule::FloorCountsMarkers,
            Keeping {
                marks: true,
                ..two(Removal::Delete)
            },
        ),
    ]
}
