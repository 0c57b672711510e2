//! Every store against the memory store: the same random operations, the same answers.
//!
//! The fixtures are those of the stores' conformance tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "conformance/memory.rs"]
mod memory;
#[path = "../../posthaste-stores/tests/conformance/postgres.rs"]
mod postgres;
#[path = "../../posthaste-stores/tests/conformance/sqlite.rs"]
mod sqlite;

use std::sync::Arc;

use memory::MemoryFixture;
use postgres::PostgresFixture;
use posthaste_relay::memory::MemoryMode;
use posthaste_testkit::{
    long_form,
    store_suite::{
        Fixture,
        agreement::{Plan, Summary, agree},
    },
};
use sqlite::SqliteFixture;

fn run(subject: impl Fixture + 'static, short: usize, crashes: bool) -> Summary {
    let subject: Arc<dyn Fixture> = Arc::new(subject);
    let reference: Arc<dyn Fixture> = Arc::new(MemoryFixture("reference", MemoryMode::Mark));
    let plan = Plan {
        first_seed: 1,
        sequences: if long_form() { 20 * short } else { short },
        operations: 150,
        crashes,
        shorten_tries: 100,
    };
    agree(&subject, &reference, &plan)
}

#[test]
fn memory_log() {
    run(MemoryFixture("memory_log", MemoryMode::Log), 60, true);
}

#[test]
fn sqlite_agrees() {
    run(SqliteFixture, 15, false);
}

#[test]
fn postgres_15() {
    run(server("postgres_15"), 6, false);
}

#[test]
fn postgres_15_crashes() {
    run(server("postgres_15_crashes"), 1, true);
}

fn server(name: &'static str) -> PostgresFixture {
    PostgresFixture {
        name,
        version: 15,
        pooled: false,
    }
}
