//! Whole relays in virtual time: random histories, and rules left out.

mod rules;
mod simulation;

use posthaste_testkit::seams::{RULES_LEFT_OUT, SIMULATED_POSTGRES, has};

/// The test that no released binary has them would be blind otherwise.
#[test]
fn the_traces_of_features_for_proofs_alone_are_found_here() {
    let program = std::env::current_exe().unwrap();
    for trace in [RULES_LEFT_OUT, SIMULATED_POSTGRES] {
        assert!(has(&program, trace), "{trace}");
    }
}
