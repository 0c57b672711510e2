//! The MySQL and MariaDB servers of the kit.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::victim;
use posthaste_testkit::servers::mysql::{MysqlServer, Version};

#[test]
fn every_version_starts_and_databases_are_apart() {
    for version in Version::ALL {
        let server = MysqlServer::shared(version);
        let shown = server.sql("", "select version()");
        let expected = match version {
            Version::MySql8 => "8.0.15",
            Version::MariaDb10 => "10.11.",
            Version::MariaDb11 => "11.4.5-MariaDB",
        };
        assert!(shown.starts_with(expected), "{shown}");
        assert_eq!(shown.contains("MariaDB"), version.is_mariadb());
        let (one, two) = (server.create_database(), server.create_database());
        one.sql("create table t (x int, y int); insert into t values (1, 2), (3, null)");
        assert_eq!(one.sql("select * from t order by x"), "1\t2\n3\tNULL");
        let tables =
            "select count(*) from information_schema.tables where table_schema = database()";
        assert_eq!((one.sql(tables), two.sql(tables)), ("1".into(), "0".into()));
        assert!(one.url().ends_with(one.name()));
        let enforced = "create table c (x int check (x > 0)); \
                        insert ignore into c values (1), (0); select count(*) from c";
        let rows = if version.has_checks() { "1" } else { "2" };
        assert_eq!(one.sql(enforced), rows);
    }
}

#[test]
fn settings_reach_the_server_and_defaults_are_the_servers() {
    let shown = "select @@innodb_flush_log_at_trx_commit, @@log_bin, @@max_connections";
    for version in Version::ALL {
        let server = MysqlServer::builder(version)
            .setting("max-connections", "17")
            .start();
        let log_bin = u8::from(!version.is_mariadb());
        assert_eq!(server.sql("", shown), format!("1\t{log_bin}\t17"));
    }
}

#[test]
fn a_killed_server_comes_back_with_what_was_committed() {
    for version in Version::ALL {
        let server = MysqlServer::builder(version).start();
        let database = server.create_database();
        database.sql("create table t (x int) engine=InnoDB; insert into t values (1)");
        let port = server.port();
        for round in 0..2 {
            if round == 0 {
                server.kill9();
            } else {
                server.stop();
            }
            assert!(
                TcpStream::connect(("127.0.0.1", port)).is_err(),
                "it still listens"
            );
            server.start_again();
            assert_eq!(database.sql("select x from t"), "1");
        }
        assert_eq!(server.port(), port);
        server.pause();
        server.resume();
        assert_eq!(database.sql("select x from t"), "1");
    }
}

#[test]
fn the_plugin_for_metadata_locks_can_be_loaded() {
    let server = MysqlServer::builder(Version::MariaDb10).start();
    server.sql("", "install soname 'metadata_lock_info'");
    let locks = "select count(*) from information_schema.metadata_lock_info";
    assert_eq!(server.sql("", locks), "0");
}

#[test]
fn a_killed_test_process_leaves_no_server_and_no_data() {
    let name = "mysql::a_killed_test_process_leaves_no_server_and_no_data";
    victim::be_one(|| {
        let server = MysqlServer::builder(Version::MySql8).start();
        let folder = server.sql("", "select @@datadir");
        (format!("{} {folder}", server.port()), Box::new(server))
    });
    let (mut victim, line) = victim::start(name);
    let (port, data) = line.split_once(' ').unwrap();
    assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());

    victim.kill().unwrap();
    victim.wait().unwrap();
    let folder = std::path::Path::new(data).parent().unwrap();
    let killed = Instant::now();
    let listens = || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok();
    while folder.exists() || listens() {
        assert!(
            killed.elapsed() < Duration::from_secs(60),
            "{data} is still there, or the server listens: {}",
            listens()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
