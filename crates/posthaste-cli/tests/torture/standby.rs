//! Two relays on one outbox: the second waits, and takes over when the first is killed.

use std::sync::Arc;

use posthaste_testkit::servers::postgres::PostgresServer;

use crate::verdict::Lives;
use posthaste_torture::{
    database::Database,
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, assert_no_panic, until},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_from_a_killed_relay() {
    let database: Arc<dyn Database> = Arc::new(Postgres::new(PostgresServer::shared(15)));
    let delivered = Delivered::new();
    let relay = |name: &str| {
        let flags = [
            "--name",
            name,
            "--window-events",
            "500",
            "--settle",
            "200ms",
        ];
        RelayCommand::new(&database.url(), &delivered).flags(&flags)
    };
    let load = Load::start(&database, OnTrouble::Fail);
    let mut first = relay("relay-0").start();
    first.wait_for_stderr("claimed", LIMIT);
    for round in 1..=3 {
        let waiting = relay(&format!("relay-{round}")).start();
        let of_whom = format!("is held by relay `relay-{}`", round - 1);
        waiting.wait_for_stderr(&of_whom, LIMIT);
        assert!(
            !waiting.stderr().contains("claimed"),
            "{}",
            waiting.stderr()
        );
        let lines = delivered.lines();
        until("delivery beside a standby", || delivered.lines() > lines).await;
        assert_no_panic(&first.kill9().stderr);
        let lines = delivered.lines();
        waiting.wait_for_stderr("claimed", LIMIT);
        until("delivery by the standby", || delivered.lines() > lines).await;
        first = waiting;
    }
    assert_eq!(
        database.audited("fence").await,
        3,
        "each killed relay is fenced, once"
    );
    assert_eq!(database.audited("take-over").await, 3);
    load.stop().await;
    first.terminate();
    assert_no_panic(&first.wait(LIMIT).expect_status(0).stderr);
    relay("last").drain(0);
    let report = Lives::first().judge(&*database, &delivered).await.report;
    println!("{report}");
    report.assert_good();
    assert!(report.duplicates <= 3 * 500, "{report}");
}
