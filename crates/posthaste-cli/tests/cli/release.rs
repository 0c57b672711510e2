//! The binary that all tests here run is built as it is released.

use std::path::Path;

use posthaste_testkit::seams::{
    MODEL_OF_THE_ENGINE, MODEL_OF_THE_STORE, RULES_LEFT_OUT, SIMULATED_POSTGRES, has,
};

/// The tests of the model and of the simulation find the same traces in themselves.
#[test]
fn no_feature_for_proofs_alone_is_in_the_binary() {
    let binary = Path::new(env!("CARGO_BIN_EXE_posthaste"));
    assert!(has(binary, "posthaste_engine::pipeline"), "no symbols");
    for trace in [
        RULES_LEFT_OUT,
        SIMULATED_POSTGRES,
        MODEL_OF_THE_ENGINE,
        MODEL_OF_THE_STORE,
    ] {
        assert!(!has(binary, trace), "the binary has {trace}");
    }
}
