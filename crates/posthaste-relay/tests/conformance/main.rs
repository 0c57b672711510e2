//! The memory store, in both ways of recording progress, and the memory sink, held to the suites of
//! all stores and all sinks.

#![allow(clippy::unwrap_used)]

mod sink;
mod store;

use std::{process::ExitCode, sync::Arc};

use posthaste_relay::memory::MemoryMode;
use posthaste_testkit::{
    sink_suite::{self, Row},
    store_suite, suite,
};
use store::MemoryFixture;

fn main() -> ExitCode {
    let mut trials = sink_suite::trials(Row {
        sink: "memory",
        fixture: sink::fixture,
    });
    for (name, mode) in [
        ("memory_log", MemoryMode::Log),
        ("memory_mark", MemoryMode::Mark),
    ] {
        trials.extend(store_suite::trials(Arc::new(MemoryFixture(name, mode))));
    }
    suite::run(trials)
}
