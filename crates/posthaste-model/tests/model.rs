//! Every scenario holds, and every rule that is left out is missed. `POSTHASTE_TEST_LONG=1`
//! explores the large ones too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use posthaste_engine::rule::{Carrier, Rule};
use posthaste_model::configurations::{Control, controls, scenarios};
use posthaste_testkit::seams::{MODEL_OF_THE_ENGINE, MODEL_OF_THE_STORE, RULES_LEFT_OUT, has};

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

#[test]
fn every_rule_that_the_model_keeps_is_left_out_once() {
    let mut left_out: Vec<Rule> = controls()
        .iter()
        .filter_map(|control| control.explored.left_out())
        .collect();
    left_out.sort();
    let (all, of_the_model) = (left_out.len(), |rule: &Rule| {
        rule.carriers().contains(&Carrier::Model)
    });
    left_out.dedup();
    assert_eq!(left_out.len(), all, "two controls leave out one rule");
    let missing: Vec<Rule> = Rule::ALL
        .into_iter()
        .filter(|rule| of_the_model(rule) && !left_out.contains(rule))
        .collect();
    assert!(missing.is_empty(), "no control leaves out {missing:?}");
}

/// The test that no released binary has them would be blind otherwise.
#[test]
fn the_traces_of_features_for_proofs_alone_are_found_here() {
    let program = std::env::current_exe().unwrap();
    for trace in [RULES_LEFT_OUT, MODEL_OF_THE_ENGINE, MODEL_OF_THE_STORE] {
        assert!(has(&program, trace), "{trace}");
    }
}
