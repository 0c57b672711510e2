//! One transaction far larger than the relay's memory (I6).

use posthaste_testkit::{long_form, servers::postgres::PostgresServer};

use crate::verdict::Lives;
use posthaste_torture::{
    database::{Database, Plan, Step, load_key},
    postgres::Postgres,
    relay::{Delivered, LIMIT, MEMORY_KIB_MAX, RelayCommand, until},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_larger_than_the_memory_keeps_its_order() {
    let events = if long_form() { 1_000_000 } else { 200_000 };
    let database = Postgres::new(PostgresServer::shared(15));
    let step = |key| Step {
        payload_bytes: 300,
        ..Step::new(load_key(key), events / 20)
    };
    let plan = Plan {
        steps: (0..20).map(step).collect(),
        ..Plan::default()
    };
    database
        .writer()
        .await
        .unwrap()
        .transact(&plan)
        .await
        .unwrap();
    let delivered = Delivered::new();
    let running = RelayCommand::new(&database.url(), &delivered).start();
    until("delivery of all", || delivered.lines() >= u64::from(events)).await;
    let peak = running.peak_memory_kib();
    println!("{events} events in one transaction, {peak} KiB");
    assert!(peak <= MEMORY_KIB_MAX, "{peak} KiB");
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    let verdict = Lives::first().judge(&database, &delivered).await;
    verdict.assert_good(0);
}
