//! The memory store, in both ways of recording progress, held to the suite of all stores.

#![allow(clippy::unwrap_used)]

#[path = "conformance/memory.rs"]
mod memory;

use std::{process::ExitCode, sync::Arc};

use memory::MemoryFixture;
use posthaste_relay::memory::MemoryMode;
use posthaste_testkit::store_suite;

fn main() -> ExitCode {
    store_suite::run(vec![
        Arc::new(MemoryFixture("memory_log", MemoryMode::Log)),
        Arc::new(MemoryFixture("memory_mark", MemoryMode::Mark)),
    ])
}
