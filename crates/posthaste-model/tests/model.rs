//! Every scenario holds, and every rule that is left out is missed. `POSTHASTE_TEST_LONG=1` explores the large ones too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use posthaste_model::configurations::{Control, controls, scenarios};

#[test]
fn every_promise_holds_in_every_state_of_every_scenario() {
    for scenario in scenarios() {
        let found = scenario.explored.explore();
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
    for Control { name, explored } in controls() {
        let (promise, way) = explored
            .explore()
            .broken
            .unwrap_or_else(|| panic!("{name} was not found"));
        println!("{name}: {promise}\n    {}", way.join("\n    "));
    }
}
