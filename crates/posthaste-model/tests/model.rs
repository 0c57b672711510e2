//! Every scenario holds, and every rule that is left out is missed. `POSTHASTE_TEST_LONG=1` explores the large ones too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use posthaste_model::{
    checker::explore,
    configurations::{Control, controls, scenarios},
};

#[test]
fn every_promise_holds_in_every_state_of_every_scenario() {
    for scenario in scenarios() {
        let found = explore(&scenario.system, None);
        println!(
            "{}: {} states, depth {}, {:?}",
            scenario.name, found.states, found.depth, found.took
        );
        assert!(found.exhausted, "{}: {:#?}", scenario.name, found.broken);
        assert!(
            found.drained,
            "{}: nothing was ever delivered",
            scenario.name
        );
    }
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    for control in controls() {
        let (name, found) = match &control {
            Control::Mechanism(name, system) => (name, explore(system, None)),
            Control::Polling(name, polling) => (name, explore(polling, None)),
        };
        let (promise, way) = found
            .broken
            .unwrap_or_else(|| panic!("{name} was not found"));
        println!("{name}: {promise}\n    {}", way.join("\n    "));
    }
}
