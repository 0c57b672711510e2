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
        Arc::new(server("postgres_14", 14)),
        #[cfg(feature = "postgres")]
        Arc::new(server("postgres_15", 15)),
        #[cfg(feature = "postgres")]
        Arc::new(server("postgres_18", 18)),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::PostgresFixture {
            pooled: true,
            ..server("postgres_15_pooled", 15)
        }),
    ];
    run(fixtures)
}

#[cfg(feature = "postgres")]
fn server(name: &'static str, version: u16) -> postgres::PostgresFixture {
    postgres::PostgresFixture {
        name,
        version,
        pooled: false,
    }
}
