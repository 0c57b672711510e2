//! Every store against the one suite.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[cfg(feature = "mysql")]
#[path = "conformance/mysql.rs"]
mod mysql;
#[cfg(feature = "postgres")]
#[path = "conformance/postgres.rs"]
mod postgres;
#[cfg(feature = "simulation")]
#[path = "conformance/simulated.rs"]
mod simulated;
#[cfg(feature = "sqlite")]
#[path = "conformance/sqlite.rs"]
mod sqlite;

use std::process::ExitCode;

use libtest_mimic::Trial;
use posthaste_stores::STORES;
#[cfg(feature = "mysql")]
use posthaste_testkit::servers::mysql::Version;
use posthaste_testkit::store_suite::{Capability, Row, SERVER, run};

/// The rows of all stores of the build. A row's name begins with its store's.
fn rows() -> Vec<Row> {
    vec![
        // Its tables are there from the beginning.
        #[cfg(feature = "simulation")]
        Row::new(simulated::SimulatedFixture, SERVER).without(Capability::Migrations),
        // A file has neither connections that somebody else cuts, nor counters that a crash sets
        // back.
        #[cfg(feature = "sqlite")]
        Row::new(
            sqlite::SqliteFixture,
            &[
                Capability::Savepoints,
                Capability::LateCommitDelaysOnlyItself,
                Capability::Migrations,
            ],
        ),
        #[cfg(feature = "mysql")]
        Row::new(of_mysql("mysql_8", Version::MySql8), SERVER),
        #[cfg(feature = "mysql")]
        Row::new(of_mysql("mysql_mariadb_10", Version::MariaDb10), SERVER),
        #[cfg(feature = "mysql")]
        Row::new(of_mysql("mysql_mariadb_11", Version::MariaDb11), SERVER),
        #[cfg(feature = "postgres")]
        Row::new(server("postgres_14", 14), SERVER),
        #[cfg(feature = "postgres")]
        Row::new(server("postgres_15", 15), SERVER),
        #[cfg(feature = "postgres")]
        Row::new(server("postgres_18", 18), SERVER),
        // A pooler hides cut connections from its clients.
        #[cfg(feature = "postgres")]
        Row::new(
            postgres::PostgresFixture {
                pooled: true,
                ..server("postgres_15_pooled", 15)
            },
            SERVER,
        )
        .without(Capability::CutConnections),
    ]
}

fn main() -> ExitCode {
    let rows = rows();
    let checked = rows.clone();
    let every_store_has_its_rows = Trial::test("every_store_has_its_rows", move || {
        for store in STORES.iter().filter(|store| store.is_built()) {
            let name = store.plug_in.name;
            let mut its_rows = checked
                .iter()
                .filter(|row| row.fixture.name().starts_with(name))
                .peekable();
            if its_rows.peek().is_none() {
                return Err(format!("no row in the suite for {name}").into());
            }
            let shares_out = |row: &Row| row.expected.contains(&Capability::SharesOut);
            if its_rows.any(|row| shares_out(row) != store.shares_out) {
                return Err(format!("{name}: its descriptor says otherwise of sharing out").into());
            }
        }
        Ok(())
    });
    run(&rows, vec![every_store_has_its_rows])
}

#[cfg(feature = "mysql")]
fn of_mysql(name: &'static str, version: Version) -> mysql::MysqlFixture {
    mysql::MysqlFixture { name, version }
}

#[cfg(feature = "postgres")]
fn server(name: &'static str, version: u16) -> postgres::PostgresFixture {
    postgres::PostgresFixture {
        name,
        version,
        pooled: false,
    }
}
