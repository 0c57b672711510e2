//! The PostgreSQL servers of the kit.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use crate::victim;
use posthaste_testkit::servers::postgres::PostgresServer;
use posthaste_testkit::tls::TestCa;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn databases_of_a_shared_server_are_apart() {
    let server = PostgresServer::shared(15);
    let (one, two) = (server.create_database(), server.create_database());
    one.psql("CREATE TABLE t (x int); INSERT INTO t VALUES (1), (2)");
    assert_eq!(one.psql("SELECT x, x * 2 FROM t ORDER BY x"), "1|2\n2|4");
    assert_eq!(two.psql("SELECT to_regclass('t') IS NULL"), "t");
    assert!(one.url().ends_with(one.name()));
}

#[test]
fn every_version_starts() {
    for version in [14, 15, 18] {
        let server = PostgresServer::shared(version);
        let shown = server.psql("postgres", "SHOW server_version_num");
        assert_eq!(shown.parse::<u32>().unwrap() / 10_000, u32::from(version));
    }
}

#[test]
fn settings_reach_the_server_and_fsync_is_on_unless_switched_off() {
    let server = PostgresServer::builder()
        .version(15)
        .setting("work_mem", "7MB")
        .start();
    assert_eq!(server.psql("postgres", "SHOW work_mem"), "7MB");
    assert_eq!(server.psql("postgres", "SHOW fsync"), "on");
    assert_eq!(server.psql("postgres", "SHOW wal_level"), "logical");
}

#[test]
fn a_crash_empties_an_unlogged_table_and_an_orderly_stop_does_not() {
    let server = PostgresServer::builder().start();
    let database = server.create_database();
    database.psql(
        "CREATE TABLE logged (x int); CREATE UNLOGGED TABLE unlogged (x int);
         INSERT INTO logged VALUES (1); INSERT INTO unlogged VALUES (1)",
    );
    let rows =
        || database.psql("SELECT (SELECT count(*) FROM logged), (SELECT count(*) FROM unlogged)");
    let port = server.port();

    server.stop_fast();
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "it still listens"
    );
    server.start_again();
    assert_eq!(rows(), "1|1");

    server.crash();
    server.start_again();
    assert_eq!(rows(), "1|0");
    assert_eq!(server.port(), port);
    assert!(
        server.log().contains("automatic recovery in progress"),
        "{}",
        server.log()
    );
}

#[test]
fn a_standby_reads_and_refuses_to_write() {
    let primary = PostgresServer::builder().start();
    primary.psql("postgres", "CREATE TABLE t AS SELECT 7 AS x");
    let standby = primary.standby();
    assert_eq!(
        standby.psql("postgres", "SELECT x, pg_is_in_recovery() FROM t"),
        "7|t"
    );
    let (accepted, message) = psql(&standby.admin_url("postgres"), "INSERT INTO t VALUES (8)");
    assert!(
        !accepted && message.contains("read-only transaction"),
        "{message}"
    );
}

#[test]
fn tls_is_verified_in_full_against_the_test_authority() {
    let server = PostgresServer::builder().start();
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let login = server.enable_tls(&ca);
    let password = login.password.replace(' ', "%20");
    let try_as = |host: &str, ca: &TestCa, mode: &str| {
        let url = format!(
            "postgres://{}:{password}@{host}:{}/postgres?sslmode={mode}&sslrootcert={}",
            login.user,
            server.port(),
            ca.certificate_file().display()
        );
        psql(
            &url,
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
        )
    };
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(try_as(host, &ca, "verify-full"), (true, "t\n".to_owned()));
    }
    let (accepted, message) = try_as("localhost", &stranger, "verify-full");
    assert!(
        !accepted && message.contains("certificate verify failed"),
        "{message}"
    );
    let (accepted, message) = try_as("localhost", &ca, "disable");
    assert!(
        !accepted && message.contains("rejects connection"),
        "{message}"
    );

    let wrong_name = PostgresServer::builder().start();
    let login = wrong_name.enable_tls_for(&ca, &["db.example"]);
    let url = format!(
        "postgres://{}:{password}@localhost:{}/postgres?sslmode=verify-full&sslrootcert={}",
        login.user,
        wrong_name.port(),
        ca.certificate_file().display()
    );
    let (accepted, message) = psql(&url, "SELECT 1");
    assert!(
        !accepted && message.contains("does not match host name"),
        "{message}"
    );
}

#[test]
fn a_password_is_asked_for_where_one_was_set() {
    let server = PostgresServer::builder().start();
    server.create_password_user("careful", "secret");
    let url = |password: &str| {
        format!(
            "postgres://careful:{password}@127.0.0.1:{}/postgres",
            server.port()
        )
    };
    assert!(psql(&url("secret"), "SELECT 1").0);
    let (accepted, message) = psql(&url("wrong"), "SELECT 1");
    assert!(
        !accepted && message.contains("password authentication failed"),
        "{message}"
    );
}

#[test]
fn a_panic_stops_the_server_and_deletes_its_data() {
    let seen = std::thread::spawn(|| {
        let server = PostgresServer::builder().start();
        let folder = server.psql("postgres", "SHOW data_directory");
        std::panic::panic_any((server.port(), folder));
    })
    .join()
    .expect_err("the thread panicked");
    let (port, folder) = *seen
        .downcast::<(u16, String)>()
        .expect("the port and the folder");
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "it still listens"
    );
    assert!(!std::path::Path::new(&folder).exists());
}

#[test]
fn a_killed_test_process_leaves_no_server_and_no_data() {
    let name = "postgres::a_killed_test_process_leaves_no_server_and_no_data";
    victim::be_one(|| {
        let server = PostgresServer::builder().start();
        let folder = server.psql("postgres", "SHOW data_directory");
        (format!("{} {folder}", server.port()), Box::new(server))
    });
    let (mut victim, line) = victim::start(name);
    let (port, data) = line.split_once(' ').unwrap();
    assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());

    victim.kill().unwrap();
    victim.wait().unwrap();
    let folder = std::path::Path::new(data).parent().unwrap();
    let killed = Instant::now();
    while folder.exists() {
        assert!(
            killed.elapsed() < Duration::from_secs(60),
            "{} is still there",
            folder.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(
        TcpStream::connect(format!("127.0.0.1:{port}")).is_err(),
        "it still listens"
    );
}

/// Whether `psql` succeeded, and what it said.
fn psql(url: &str, sql: &str) -> (bool, String) {
    let output = Command::new(PostgresServer::client_programs().join("psql"))
        .args(["-X", "-q", "-A", "-t", "-d", url, "-c", sql])
        .output()
        .unwrap();
    let said = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    (output.status.success(), String::from_utf8(said).unwrap())
}
