//! The `main` of a test that runs a suite: a test with `harness = false`.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Runs these tests as the arguments of the program say.
#[must_use]
pub fn run(trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
