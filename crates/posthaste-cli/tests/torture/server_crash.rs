//! A server stopped like a crash under load: numbers that only aborted transactions had used are
//! issued a second time, those of PostgreSQL's transactions and those of the outbox.

use std::sync::Arc;

use posthaste_testkit::{
    long_form,
    servers::{
        mysql::{MysqlServer, Version},
        postgres::PostgresServer,
    },
};

use crate::verdict::Lives;
use posthaste_torture::{
    crash::{Crashing, crash_server},
    database::Database,
    load::{Load, OnTrouble},
    mysql::Mysql,
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, assert_no_panic, until},
};

const FLAGS: [&str; 4] = ["--window-events", "500", "--settle", "200ms"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_that_issues_numbers_again_loses_nothing() {
    // Commits without a waiting client stay unwritten, so that the crash takes the aborted numbers
    // with it.
    let server = PostgresServer::builder()
        .setting("wal_writer_delay", "10s")
        .start();
    let postgres = Arc::new(Postgres::new(&server));
    let database: Arc<dyn Database> = Arc::clone(&postgres) as Arc<dyn Database>;
    let again = crashes_lose_nothing(&(&server, &*postgres), database).await;
    assert!(
        again > 0,
        "no crash issued a transaction number again: it proved nothing"
    );
    assert!(
        postgres.audited("incarnation").await > 0,
        "a new incarnation left no audit line"
    );
}

/// MySQL 8 writes each number at once, so that it issues none again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_mysql_loses_nothing() {
    of_mysql(Version::MySql8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_mariadb_that_issues_numbers_again_loses_nothing() {
    let again = of_mysql(Version::MariaDb11).await;
    assert!(
        again > 0,
        "no crash issued a number again: it proved nothing"
    );
}

async fn of_mysql(version: Version) -> u32 {
    let builder = MysqlServer::builder(version).shows_locks();
    // An event is visible before it is written, and the relay has to wait until it is.
    let builder = builder.setting("skip-log-bin", "1");
    let builder = builder.setting("innodb-flush-log-at-trx-commit", "2");
    let server = builder.start();
    let mysql = Arc::new(Mysql::new(&server));
    let database: Arc<dyn Database> = Arc::clone(&mysql) as Arc<dyn Database>;
    crashes_lose_nothing(&(&server, &*mysql), database).await
}

/// Answers after how many of the crashes numbers were issued again.
async fn crashes_lose_nothing(server: &dyn Crashing, database: Arc<dyn Database>) -> u32 {
    let crashes: u64 = if long_form() { 12 } else { 4 };
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&database.url(), &delivered).flags(&FLAGS);
    let load = Load::start(&database, OnTrouble::Reconnect);
    let mut running = relay.start();
    let (mut again, mut killed) = (0, 0);
    for crash in 0..crashes {
        running.wait_for_stderr("claimed", LIMIT);
        let commits = load.commits();
        until("commits between crashes", || load.commits() > commits + 50).await;
        let kill = crash % 2 == 1;
        let paused = load.pause().await;
        if kill {
            let dead = running.kill9();
            assert_no_panic(&dead.stderr);
            killed += 1;
            running = crash_server(server, &mut again, || relay.start()).await;
        } else {
            let alive = running;
            running = crash_server(server, &mut again, || alive).await;
        }
        drop(paused);
        assert!(
            running.is_running(),
            "the relay ended:\n{}",
            running.stderr()
        );
    }
    let commits = load.commits();
    until("commits after the last crash", || {
        load.commits() > commits + 50
    })
    .await;
    load.stop().await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    relay.drain(0);

    let report = Lives::first().judge(&*database, &delivered).await.report;
    println!(
        "{} events, {crashes} crashes, {killed} kills, {again} issued again: {report}",
        report.committed
    );
    report.assert_good();
    assert!(report.duplicates <= 500 * (crashes + killed), "{report}");
    again
}
