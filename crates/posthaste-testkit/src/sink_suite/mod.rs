//! The conformance suite of sinks: one list of cases, run against every sink.
//!
//! A plug-in brings a [`Fixture`]: its sink on a destination of its own, and hands on that
//! destination (read what arrived, take it away, bring it back). Each [`Row`] says what the sink
//! must be able to do: what its descriptor promises ([`Expected::of`]), and what its fixture
//! offers. A case that the row excludes is listed as ignored with the reason.
//!
//! A test without a harness calls [`main`] with its rows.

mod arrivals;
mod bench;
mod cases;
mod event;
mod expected;
mod flight;
mod wire;

use std::{process::ExitCode, time::Duration};

use libtest_mimic::{Completion, Trial};

pub use arrivals::check_arrivals;
pub use bench::Fixture;
pub use event::{SuiteEvent, impatient, lane_spec, opened, records};
pub use expected::Expected;
pub use flight::poll_once;
pub use wire::WireRecord;

use crate::suite;
use bench::Bench;
use cases::{CASES, Case};

/// The time of a sink's row on two idle processors, at most.
const ROW_BUDGET: Duration = Duration::from_secs(25);
/// When a case counts as hung. Far above what any case needs on a busy machine: it measures
/// nothing.
const CASE_LIMIT: Duration = Duration::from_secs(180);

/// One sink under test.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The capabilities that it must have.
    pub expected: Expected,
    /// Makes a destination that nobody else uses, and its sink. Called once for each case, inside a
    /// Tokio runtime.
    pub fixture: fn() -> Box<dyn Fixture>,
}

/// The `main` of a test without a harness: the whole suite for each row, and the tests in `more`.
#[must_use]
pub fn main(rows: &[Row], more: Vec<Trial>) -> ExitCode {
    suite::run(rows.iter().flat_map(|row| trials(*row)).collect(), more)
}

/// The suite for one sink, named `sink::case`.
#[must_use]
pub fn trials(row: Row) -> Vec<Trial> {
    CASES.iter().map(|case| trial(row, case)).collect()
}

fn trial(row: Row, case: &'static Case) -> Trial {
    let name = format!("{}::{}", row.expected.sink, case.name);
    let lacking = case
        .needs
        .iter()
        .find_map(|need| need.lacking(&row.expected));
    Trial::ignorable_test(name, move || {
        if let Some(reason) = lacking {
            return Ok(Completion::ignored_with(reason));
        }
        let _timed = suite::timed(row.expected.sink, case.name, ROW_BUDGET);
        run(row, case);
        Ok(Completion::Completed)
    })
}

fn run(row: Row, case: &'static Case) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("start a runtime");
    runtime.block_on(async {
        let bench = Bench::new((row.fixture)(), row.expected);
        tokio::time::timeout(CASE_LIMIT, (case.run)(bench))
            .await
            .unwrap_or_else(|_| panic!("hung: not done after {CASE_LIMIT:?}"));
    });
}
