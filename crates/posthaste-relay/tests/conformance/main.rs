//! The memory store, in both ways of recording progress, and the memory sink, held to the suites of
//! all stores and all sinks.

#![allow(clippy::unwrap_used)]

mod sink;
mod store;

use std::process::ExitCode;

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
    suite::run(trials, Vec::new())
}
