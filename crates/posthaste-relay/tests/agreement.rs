//! Every store against the memory store: the same random operations, the same answers.
//!
//! The fixtures are those of the stores' conformance tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "conformance/store.rs"]
mod memory;
#[path = "../../posthaste-stores/tests/conformance/mysql.rs"]
mod mysql;
#[path = "../../posthaste-stores/tests/conformance/postgres.rs"]
mod postgres;
#[path = "../../posthaste-stores/tests/conformance/simulated.rs"]
mod simulated;
#[path = "../../posthaste-stores/tests/conformance/sqlite.rs"]
mod sqlite;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use memory::MemoryFixture;
use mysql::MysqlFixture;
use postgres::PostgresFixture;
use posthaste_engine::rule::{Rule, leave_out};
use posthaste_relay::memory::MemoryMode;
use posthaste_testkit::{
    long_form,
    servers::mysql::Version,
    store_suite::{
        Fixture,
        agreement::{Plan, SEED, Summary, agree},
    },
};
use simulated::SimulatedFixture;
use sqlite::SqliteFixture;

fn run(
    subject: impl Fixture + 'static,
    short: usize,
    compare_every: usize,
    crashes: bool,
) -> Summary {
    agree_with_memory(subject, &plan(short, compare_every, crashes))
}

fn plan(short: usize, compare_every: usize, crashes: bool) -> Plan {
    Plan {
        first_seed: 1,
        sequences: if long_form() { 20 * short } else { short },
        operations: 150,
        crashes,
        compare_every,
        one_thread: false,
        shorten_tries: 100,
    }
}

fn agree_with_memory(subject: impl Fixture + 'static, plan: &Plan) -> Summary {
    let subject: Arc<dyn Fixture> = Arc::new(subject);
    let reference: Arc<dyn Fixture> = Arc::new(MemoryFixture("reference", MemoryMode::Mark));
    agree(&subject, &reference, plan)
}

/// That the dice led to what is worth comparing; one sequence alone need not.
fn assert_reaches(summary: &Summary, kinds: &[&str]) {
    if std::env::var_os(SEED).is_some() {
        return;
    }
    for kind in kinds {
        let count = summary.kinds.get(kind).copied().unwrap_or_default();
        assert!(count > 0, "no `{kind}` in {summary:?}");
    }
}

const WORK: &[&str] = &["park", "settle", "side read", "advance", "claim", "act"];

#[test]
fn memory_log() {
    let summary = run(MemoryFixture("memory_log", MemoryMode::Log), 300, 1, true);
    assert_reaches(&summary, WORK);
    assert_reaches(&summary, &["crash", "zombie", "fence", "revoke"]);
}

#[test]
fn postgres_simulated() {
    let summary = run(SimulatedFixture, 60, 1, true);
    assert_reaches(&summary, WORK);
    assert_reaches(&summary, &["crash", "zombie", "fence", "revoke"]);
}

/// Those of the left out rules that a store keeps, and that show to whom one thing happens after
/// another.
#[test]
fn a_store_that_leaves_out_a_rule_disagrees() {
    let rules = [
        Rule::EpochIsChecked,
        Rule::FenceBeforeEpoch,
        Rule::FloorOfEarlierPoll,
        Rule::StragglerKeepsItsFloor,
        Rule::MovedPartitionIsCovered,
    ];
    let plan = Plan {
        one_thread: true,
        shorten_tries: 0,
        ..plan(60, 1, true)
    };
    for rule in rules {
        let left_out = || leave_out(rule, || agree_with_memory(SimulatedFixture, &plan));
        let panic = catch_unwind(AssertUnwindSafe(left_out)).expect_err("they agree");
        let said = panic.downcast_ref::<String>().expect("a text");
        assert!(
            said.contains("and the reference disagree"),
            "{rule:?}: {said}"
        );
    }
}

#[test]
fn sqlite_agrees() {
    assert_reaches(&run(SqliteFixture, 15, 1, false), WORK);
}

#[test]
fn postgres_15() {
    assert_reaches(&run(server("postgres_15"), 6, 8, false), WORK);
}

#[test]
fn postgres_15_crashes() {
    let summary = run(server("postgres_15_crashes"), 1, 8, true);
    assert_reaches(&summary, &["crash"]);
}

#[test]
fn mysql_8() {
    assert_reaches(
        &run(of_mysql("mysql_8", Version::MySql8), 6, 8, false),
        WORK,
    );
}

#[test]
fn mysql_mariadb_10() {
    let fixture = of_mysql("mysql_mariadb_10", Version::MariaDb10);
    assert_reaches(&run(fixture, 6, 8, false), WORK);
}

#[test]
fn mysql_mariadb_10_crashes() {
    let fixture = of_mysql("mysql_mariadb_10_crashes", Version::MariaDb10);
    assert_reaches(&run(fixture, 1, 8, true), &["crash"]);
}

fn of_mysql(name: &'static str, version: Version) -> MysqlFixture {
    MysqlFixture { name, version }
}

fn server(name: &'static str) -> PostgresFixture {
    PostgresFixture {
        name,
        version: 15,
        pooled: false,
    }
}
