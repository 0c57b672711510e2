//! Every store against the one suite.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[cfg(feature = "postgres")]
#[path = "conformance/postgres.rs"]
mod postgres;
#[cfg(feature = "simulation")]
#[path = "conformance/simulated.rs"]
mod simulated;
#[cfg(feature = "sqlite")]
#[path = "conformance/sqlite.rs"]
mod sqlite;

use std::{process::ExitCode, sync::Arc};

use posthaste_testkit::store_suite::{Fixture, run};

fn main() -> ExitCode {
    let fixtures: Vec<Arc<dyn Fixture>> = vec![
        #[cfg(feature = "simulation")]
        Arc::new(simulated::SimulatedFixture),
        #[cfg(feature = "sqlite")]
        Arc::new(sqlite::SqliteFixture),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::PostgresFixture::new("postgres_14", 14)),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::PostgresFixture::new("postgres_15", 15)),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::PostgresFixture::new("postgres_18", 18)),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::PostgresFixture::new("postgres_15_pooled", 15).through_a_pooler()),
    ];
    run(fixtures)
}
