//! The memory store, in both ways of recording progress, and the memory sink, held to the suites of
//! all stores and all sinks.

#![allow(clippy::unwrap_used)]

mod sink;
mod store;

use std::process::ExitCode;

use libtest_mimic::Trial;
use posthaste_engine::rule::{Rule, leave_out};
use posthaste_relay::memory::MemoryMode;
use posthaste_testkit::{
    sink_suite,
    store_suite::{self, Capability, Row, SERVER},
    suite,
};
use store::MemoryFixture;

fn main() -> ExitCode {
    let mut trials = sink_suite::trials(sink::row());
    for (name, mode) in [
        ("memory_log", MemoryMode::Log),
        ("memory_mark", MemoryMode::Mark),
    ] {
        // It has neither connections nor a schema.
        let row = Row::new(MemoryFixture(name, mode), SERVER)
            .without(Capability::CutConnections)
            .without(Capability::Migrations);
        trials.extend(store_suite::trials(&row));
    }
    let left_out = Trial::test("memory_mark::misses_a_rule_that_is_left_out", || {
        misses_a_rule_that_is_left_out();
        Ok(())
    });
    suite::run(trials, vec![left_out])
}

/// Each rule of a mark store, and the cases that fail without it.
const RULES: [(Rule, &[&str]); 2] = [
    (
        Rule::HandedOutUntilLaterRead,
        &[
            "an_advance_beside_a_read_brings_nothing_twice",
            "parking_beside_a_read_brings_nothing_twice",
        ],
    ),
    (
        Rule::BlockedKeysFillNoPage,
        &["blocked_keys_at_the_head_starve_nothing"],
    ),
];

fn misses_a_rule_that_is_left_out() {
    let fixture = MemoryFixture("memory_mark", MemoryMode::Mark);
    for (rule, cases) in RULES {
        for case in cases {
            let without = leave_out(rule, || store_suite::fails(&fixture, case));
            assert!(without, "{case} does not miss {rule:?}");
            assert!(!store_suite::fails(&fixture, case), "{case}");
        }
    }
}
