//! One event that its destination refuses, among many (I7): parked with its reason, its key alone
//! waits, and people decide through the binary.

use std::{collections::HashSet, sync::Arc};

use posthaste_testkit::{
    lines, long_form,
    servers::{
        mysql::{MysqlServer, Version},
        postgres::PostgresServer,
    },
};

use crate::verdict::Lives;
use posthaste_torture::{
    database::{Database, Fact, Plan, Step, load_key},
    mysql::Mysql,
    postgres::Postgres,
    relay::{Delivered, LIMIT, MEMORY_KIB_MAX, RelayCommand, posthaste, posthaste_json, until},
    sqlite::Sqlite,
};

/// Below the poison's payload, above every other one.
const REFUSING: &str = "?max_event_bytes=1000";
const POISON_BYTES: usize = 5_000;
const POISONED: &str = "k007";

fn relay(database: &dyn Database, delivered: &Delivered, option: &str) -> RelayCommand {
    RelayCommand::new(&database.url(), delivered)
        .option(option)
        .flags(&["--attempts", "1"])
}

/// Ten thousand events on a hundred keys, one of them poison; answers it.
async fn write(database: &dyn Database) -> Fact {
    let mut writer = database.writer().await.unwrap();
    let everywhere = |payload_bytes| Plan {
        steps: (0..100)
            .map(|key| Step {
                payload_bytes,
                ..Step::new(load_key(key), 50)
            })
            .collect(),
        ..Plan::default()
    };
    writer.transact(&everywhere(0)).await.unwrap();
    poison(database).await;
    let mut rest = everywhere(100);
    rest.steps[7].events = 49;
    writer.transact(&rest).await.unwrap();
    let facts = database.facts().await;
    assert_eq!(facts.len(), 10_000);
    facts
        .into_iter()
        .find(|fact| (&*fact.key, fact.n) == (POISONED, 51))
        .unwrap()
}

async fn poison(database: &dyn Database) {
    let step = Step {
        payload_bytes: POISON_BYTES,
        ..Step::new(POISONED, 1)
    };
    let plan = Plan {
        steps: vec![step],
        ..Plan::default()
    };
    database
        .writer()
        .await
        .unwrap()
        .transact(&plan)
        .await
        .unwrap();
}

/// The poison is dead with its reason, its key alone is blocked, and everything else was delivered.
async fn assert_blocks_its_key_only(database: &dyn Database, delivered: &Delivered, poison: &Fact) {
    let dead = posthaste_json(&["dead", "list", "--store", &database.url()]);
    let events = dead["events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{dead:#}");
    assert_eq!(events[0]["id"], poison.id.to_string());
    assert_eq!(
        (&events[0]["state"], &events[0]["key"]),
        (&"dead".into(), &POISONED.into())
    );
    let reason = events[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("1000") && reason.contains("5000"),
        "{reason}"
    );
    let status = posthaste_json(&["status", "--store", &database.url()]);
    assert_eq!(
        (&status["dead"], &status["blocked_keys"]),
        (&1.into(), &1.into()),
        "{status:#}"
    );

    let mut others = database.facts().await;
    others.retain(|fact| fact.key != POISONED || fact.n < poison.n);
    let verdict = Lives::first().compare(&others, delivered.path());
    verdict.assert_good(0);
}

async fn assert_all_delivered_once(database: &dyn Database, delivered: &Delivered) {
    let verdict = Lives::first().judge(database, delivered).await;
    verdict.report.assert_good();
    assert_eq!(verdict.report.duplicates, 0);
}

async fn retry_releases_in_order(database: &dyn Database) {
    let poison = write(database).await;
    let delivered = Delivered::new();
    relay(database, &delivered, REFUSING).drain(3);
    assert_blocks_its_key_only(database, &delivered, &poison).await;

    let id = poison.id.to_string();
    posthaste(&["dead", "retry", "--id", &id, "--store", &database.url()]).expect_status(0);
    relay(database, &delivered, "").drain(0);
    assert_all_delivered_once(database, &delivered).await;
    let status = posthaste_json(&["status", "--store", &database.url()]);
    for count in ["pending", "parked", "dead", "blocked_keys"] {
        assert_eq!(status[count], 0, "{status:#}");
    }
    assert_eq!(database.audited("retry").await, 1);
}

#[tokio::test]
async fn postgres_poison_blocks_its_key_and_retry_releases_it_in_order() {
    retry_releases_in_order(&Postgres::new(PostgresServer::shared(15))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_poison_blocks_its_key_and_retry_releases_it_in_order() {
    retry_releases_in_order(&Mysql::new(MysqlServer::shared(Version::MySql8))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_poison_blocks_its_key_and_retry_releases_it_in_order() {
    retry_releases_in_order(&Mysql::new(MysqlServer::shared(Version::MariaDb11))).await;
}

#[tokio::test]
async fn sqlite_poison_blocks_its_key_and_retry_releases_it_in_order() {
    retry_releases_in_order(&Sqlite::new().await).await;
}

/// While the relay runs, and with `dead skip` instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skipped_poison_lets_its_key_go_on() {
    let database = Postgres::new(PostgresServer::shared(15));
    let poison = write(&database).await;
    let delivered = Delivered::new();
    let running = RelayCommand::new(&database.url(), &delivered)
        .option(REFUSING)
        .flags(&["--attempts", "3", "--backoff", "50ms"])
        .start();
    until("a dead event", || {
        posthaste_json(&["status", "--store", &database.url()])["dead"] == 1
    })
    .await;
    posthaste(&[
        "dead",
        "skip",
        "--key",
        POISONED,
        "--store",
        &database.url(),
    ])
    .expect_status(0);
    let others = database.committed().await - 1;
    until("delivery of the others", || delivered.lines() >= others).await;
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    assert_all_but(&database, &delivered, &poison).await;
    let show = posthaste_json(&[
        "dead",
        "show",
        &poison.id.to_string(),
        "--store",
        &database.url(),
    ]);
    assert_eq!(show["events"][0]["state"], "skipped");
    assert_eq!(
        show["events"][0]["payload"].as_str().unwrap().len(),
        POISON_BYTES
    );
}

/// By policy: nothing ever waits, and the event is kept.
#[tokio::test]
async fn the_policy_skip_holds_nobody_back() {
    let database = Postgres::new(PostgresServer::shared(15));
    let poison = write(&database).await;
    let delivered = Delivered::new();
    relay(&database, &delivered, REFUSING)
        .flags(&["--on-dead", "skip"])
        .drain(0);
    assert_all_but(&database, &delivered, &poison).await;
    let show = posthaste_json(&[
        "dead",
        "show",
        &poison.id.to_string(),
        "--store",
        &database.url(),
    ]);
    assert_eq!(show["events"][0]["state"], "skipped");
}

async fn assert_all_but(database: &dyn Database, delivered: &Delivered, poison: &Fact) {
    let mut others = database.facts().await;
    others.retain(|fact| fact.id != poison.id);
    let verdict = Lives::first().compare(&others, delivered.path());
    verdict.report.assert_good();
    assert_eq!(verdict.report.duplicates, 0);
}

/// A marker stands for what waits behind a poison event: no copies, and no memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_queue_behind_a_poison_event_is_not_copied() {
    let followers = if long_form() { 200_000 } else { 20_000 };
    let database = Postgres::new(PostgresServer::shared(15));
    poison(&database).await;
    let mut writer = database.writer().await.unwrap();
    let step = Step {
        payload_bytes: 200,
        ..Step::new(POISONED, followers)
    };
    writer
        .transact(&Plan {
            steps: vec![step],
            ..Plan::default()
        })
        .await
        .unwrap();
    writer.transact(&Plan::of("other", 10)).await.unwrap();

    let delivered = Delivered::new();
    let refusing = relay(&database, &delivered, REFUSING).start();
    until("a dead event", || {
        posthaste_json(&["status", "--store", &database.url()])["dead"] == 1
    })
    .await;
    until("delivery of the other key", || delivered.lines() == 10).await;
    refusing.terminate();
    let peak = refusing.peak_memory_kib();
    refusing.wait(LIMIT).expect_status(0);
    assert!(
        peak <= MEMORY_KIB_MAX,
        "{peak} KiB while the key was blocked"
    );
    assert_eq!(database.number("select count(*) from posthaste.parked"), 1);
    assert_eq!(database.number("select count(*) from posthaste.markers"), 1);

    posthaste(&["dead", "retry", "--all", "--store", &database.url()]).expect_status(0);
    let running = relay(&database, &delivered, "").start();
    let all = database.committed().await;
    until("delivery of the whole queue", || delivered.lines() >= all).await;
    until("the key's return", || {
        database.number("select count(*) from posthaste.markers") == 0
    })
    .await;
    let peak = running.peak_memory_kib();
    println!("{followers} followers, {peak} KiB");
    assert!(peak <= MEMORY_KIB_MAX, "{peak} KiB during the release");
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    assert_eq!(database.number("select count(*) from posthaste.parked"), 1);
    assert_all_delivered_once(&database, &delivered).await;
}

/// Events that come while their key is blocked, and while it is released, find their place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_released_under_load_keeps_its_order() {
    released_under_load(Arc::new(Postgres::new(PostgresServer::shared(15)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_mysql_released_under_load_keeps_its_order() {
    released_under_load(Arc::new(Mysql::new(MysqlServer::shared(Version::MySql8)))).await;
}

async fn released_under_load(database: Arc<dyn Database>) {
    poison(&*database).await;
    let delivered = Delivered::new();
    let refusing = relay(&*database, &delivered, REFUSING).start();
    until("a dead event", || {
        posthaste_json(&["status", "--store", &database.url()])["dead"] == 1
    })
    .await;
    let load =
        posthaste_torture::load::Load::start(&database, posthaste_torture::load::OnTrouble::Fail);
    let commits = |more| load.commits() + more;
    let behind = commits(100);
    until("events behind the poison", || load.commits() >= behind).await;
    refusing.terminate();
    refusing.wait(LIMIT).expect_status(0);
    let running = relay(&*database, &delivered, "").start();
    running.wait_for_stderr("claimed", LIMIT);
    posthaste(&[
        "dead",
        "retry",
        "--key",
        POISONED,
        "--store",
        &database.url(),
    ])
    .expect_status(0);
    running.wait_for_stderr("blocked keys are released", LIMIT);
    let after = commits(100);
    until("events after the release", || load.commits() >= after).await;
    load.stop().await;
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    relay(&*database, &delivered, "").drain(0);
    assert_all_delivered_once(&*database, &delivered).await;
    let keys: HashSet<_> = lines::read(delivered.path())
        .unwrap()
        .map(|line| line.unwrap().key)
        .collect();
    assert!(keys.len() > 100, "the load was too small: {}", keys.len());
}
