//! A relay at full speed beside an application's writer on SQLite (I11).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_testkit::long_form;

use crate::verdict::Lives;
use posthaste_torture::{
    database::{Database, Plan, Step, load_key},
    load::{Load, OnTrouble},
    relay::{Delivered, LIMIT, RelayCommand, posthaste},
    sqlite::Sqlite,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_with_a_time_out_of_a_second_sees_no_busy_error_from_the_relay() {
    let database = Sqlite::new().await;
    let backlog = if long_form() { 500 } else { 100 };
    let step = |key| Step {
        payload_bytes: 200,
        ..Step::new(load_key(key), backlog)
    };
    let plan = Plan {
        steps: (0..200).map(step).collect(),
        ..Plan::default()
    };
    database
        .writer()
        .await
        .unwrap()
        .transact(&plan)
        .await
        .unwrap();

    // Alone with the relay, so that a lock it meets is the relay's.
    let mut writer = database.writer_with(Duration::from_secs(1)).await;
    let delivered = Delivered::new();
    let running = RelayCommand::new(&database.url(), &delivered).start();
    running.wait_for_stderr("claimed", LIMIT);
    let began = Instant::now();
    let (mut transactions, mut longest) = (0, Duration::ZERO);
    while delivered.lines() < database.committed().await || transactions < 300 {
        assert!(began.elapsed() < LIMIT, "the relay does not catch up");
        for _ in 0..100 {
            let since = Instant::now();
            let key = load_key(transactions % 200);
            writer
                .transact(&Plan::of(key, 1))
                .await
                .expect("the relay held the lock too long");
            longest = longest.max(since.elapsed());
            transactions += 1;
        }
    }
    println!("{transactions} transactions, the longest {longest:?}");
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    let verdict = Lives::first().judge(&database, &delivered).await;
    verdict.assert_good(0);
}

/// Of the test itself: a writer that stood still with the lock, on the thread that waits for the
/// command, would hold it for as long as the command is patient.
#[tokio::test]
async fn writers_go_on_while_a_command_blocks_the_test() {
    let database: Arc<dyn Database> = Arc::new(Sqlite::new().await);
    let load = Load::start(&database, OnTrouble::Fail);
    let store = ["--store", &database.operators_url()];
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let retry = posthaste(&[&["dead", "retry", "--all"], &store[..]].concat());
        assert!(retry.stderr.contains("nothing was changed"), "{retry}");
    }
    assert!(load.stop().await > 0);
}
