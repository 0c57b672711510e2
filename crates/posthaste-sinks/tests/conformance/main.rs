//! Runs the conformance suite of sinks against every sink of the build, and what only one of
//! them promises.

// Test code throughout, where a failed expectation is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod child;
mod file;
mod fixtures;
#[cfg(feature = "kafka")]
mod kafka;
mod lines;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod stdout;
#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
mod trial;

use std::process::ExitCode;

use libtest_mimic::Trial;
use posthaste_testkit::sink_suite::{self, Row};

const ROWS: &[Row] = &[
    Row {
        sink: "file",
        fixture: fixtures::file,
    },
    #[cfg(feature = "kafka")]
    Row {
        sink: "kafka",
        fixture: kafka::fixture,
    },
    #[cfg(feature = "kafka")]
    Row {
        sink: "kafka-transactional",
        fixture: kafka::transactional_fixture,
    },
    Row {
        sink: "stdout",
        fixture: fixtures::stdout,
    },
    Row {
        sink: "null",
        fixture: fixtures::null,
    },
    #[cfg(feature = "rabbitmq")]
    Row {
        sink: "rabbitmq",
        fixture: rabbitmq::fixture,
    },
];

fn main() -> ExitCode {
    // Some tests run this very program as a process that they can kill.
    if let Some(role) = child::role() {
        return child::run(&role);
    }
    let mut more: Vec<Trial> = file::trials().into_iter().chain(stdout::trials()).collect();
    #[cfg(feature = "rabbitmq")]
    more.extend(rabbitmq::trials());
    #[cfg(feature = "kafka")]
    more.extend(kafka::trials());
    sink_suite::main(ROWS, more)
}
