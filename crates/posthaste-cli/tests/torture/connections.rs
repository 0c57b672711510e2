//! The relay's connections ended, cut, stalled and half closed under load.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_testkit::{
    long_form,
    process::Running,
    proxy::Proxy,
    servers::{
        mysql::{MysqlServer, Version},
        postgres::PostgresServer,
    },
};

use crate::verdict::{Lives, Verdict};
use posthaste_torture::{
    database::{Database, Plan},
    load::{Load, OnTrouble},
    mysql::Mysql,
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, assert_no_panic, posthaste, until},
};

const FLAGS: [&str; 6] = [
    "--window-events",
    "500",
    "--lease",
    "3s",
    "--settle",
    "200ms",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_backends_cost_neither_events_nor_order() {
    let server = PostgresServer::builder().start();
    let postgres = Arc::new(Postgres::new(&server));
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&postgres.url(), &delivered).flags(&FLAGS);
    let began = Instant::now();
    let rounds = if long_form() { 200 } else { 30 };
    let faults = async |_: &Running, _: &Load| {
        let mut ended = 0;
        while ended < rounds {
            ended += postgres.end_connections();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let database = Arc::clone(&postgres) as _;
    let (said, _) = under_load(&database, &relay, &delivered, OnTrouble::Fail, faults).await;
    assert_said_seldom(&said, began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_stalled_and_half_closed_connections_cost_neither_events_nor_order() {
    let server = PostgresServer::builder().start();
    cut_stalled_and_half_closed(Arc::new(Postgres::new(&server)), server.port()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_stalled_and_half_closed_connections_to_mysql_cost_neither_events_nor_order() {
    let server = MysqlServer::shared(Version::MySql8);
    cut_stalled_and_half_closed(Arc::new(Mysql::new(server)), server.port()).await;
}

async fn cut_stalled_and_half_closed(database: Arc<dyn Database>, port: u16) {
    let delivered = Delivered::new();
    let (proxy, url) = proxied(&*database, port);
    let relay = RelayCommand::new(&url, &delivered).flags(&FLAGS);
    let began = Instant::now();
    let rounds = if long_form() { 5 } else { 1 };
    let faults = async |_: &Running, _: &Load| {
        for _ in 0..rounds {
            for _ in 0..5 {
                proxy.cut();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            // Each beyond the lease of 3 s.
            for fault in [
                Proxy::stall,
                Proxy::hold_answers,
                Proxy::half_close,
                Proxy::refuse,
            ] {
                fault(&proxy);
                tokio::time::sleep(Duration::from_secs(4)).await;
                proxy.resume();
                delivers(&*database, &delivered).await;
            }
        }
    };
    let (said, _) = under_load(&database, &relay, &delivered, OnTrouble::Fail, faults).await;
    assert_said_seldom(&said, began.elapsed());
}

/// So it looks when a pooler or a load balancer survives a hard fail-over of what stood behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_never_answer_again_are_replaced() {
    let server = PostgresServer::builder().start();
    never_answer_again(Arc::new(Postgres::new(&server)), server.port()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_mariadb_that_never_answer_again_are_replaced() {
    let server = MysqlServer::shared(Version::MariaDb11);
    never_answer_again(Arc::new(Mysql::new(server)), server.port()).await;
}

async fn never_answer_again(database: Arc<dyn Database>, port: u16) {
    let delivered = Delivered::new();
    let (proxy, url) = proxied(&*database, port);
    let relay = RelayCommand::new(&url, &delivered).flags(&FLAGS);
    let began = Instant::now();
    let rounds = if long_form() { 20 } else { 3 };
    let faults = async |_: &Running, _: &Load| {
        for _ in 0..rounds {
            proxy.freeze();
            delivers(&*database, &delivered).await;
        }
    };
    let (said, _) = under_load(&database, &relay, &delivered, OnTrouble::Fail, faults).await;
    assert!(said.contains("no answer within"), "{said}");
    assert_said_seldom(&said, began.elapsed());
}

/// New connections are taken, and nothing comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_end_where_the_server_never_answers() {
    let server = PostgresServer::builder().start();
    commands_end(&Postgres::new(&server), server.port());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_end_where_mysql_never_answers() {
    let server = MysqlServer::shared(Version::MySql8);
    commands_end(&Mysql::new(server), server.port());
}

fn commands_end(database: &dyn Database, port: u16) {
    let (proxy, url) = proxied(database, port);
    proxy.stall();
    std::thread::scope(|scope| {
        for command in [
            &["init"][..],
            &["status"],
            &["relays"],
            &["dead", "list"],
            &["destination", "list"],
            &["purge"],
        ] {
            let args = [command, &["--store", &url]].concat();
            scope.spawn(move || {
                let ended = posthaste(&args).expect_status(1);
                assert!(ended.stderr.contains("did not answer within"), "{ended}");
            });
        }
    });
}

/// A way to the database that can be broken.
fn proxied(database: &dyn Database, port: u16) -> (Proxy, String) {
    let proxy = Proxy::to_local_port(port).unwrap();
    let there = format!(":{}/", proxy.port());
    let url = database.url().replace(&format!(":{port}/"), &there);
    (proxy, url)
}

/// Runs writers and a relay beside the faults, then asserts that all is there; answers what the
/// relay said, and what was repeated.
pub(crate) async fn under_load(
    database: &Arc<dyn Database>,
    relay: &RelayCommand,
    delivered: &Delivered,
    on_trouble: OnTrouble,
    faults: impl AsyncFnOnce(&Running, &Load),
) -> (String, Verdict) {
    let load = Load::start(database, on_trouble);
    let mut running = relay.start();
    running.wait_for_stderr("claimed", LIMIT);
    faults(&running, &load).await;
    delivers(&**database, delivered).await;
    assert!(
        running.is_running(),
        "the relay ended:\n{}",
        running.stderr()
    );
    load.stop().await;
    running.terminate();
    let stopped = running.wait(LIMIT).expect_status(0);
    relay.drain(0);
    let verdict = Lives::first().judge(&**database, delivered).await;
    println!("{}", verdict.report);
    verdict.report.assert_good();
    assert_no_panic(&stopped.stderr);
    (stopped.stderr, verdict)
}

/// A fresh event arrives.
pub(crate) async fn delivers(database: &dyn Database, delivered: &Delivered) {
    let key = format!("after-{}", uuid::Uuid::new_v4());
    database
        .writer()
        .await
        .unwrap()
        .transact(&Plan::of(&*key, 1))
        .await
        .unwrap();
    until("delivery after a fault", || delivered.holds(&key)).await;
}

/// Trouble is said, and each kind of it about once in ten seconds.
fn assert_said_seldom(stderr: &str, took: Duration) {
    let mut said: HashMap<&str, u64> = HashMap::new();
    for line in stderr.lines() {
        let Some((_, message)) = line.split_once(" WARN ") else {
            continue;
        };
        // The action and the server's answer may differ; the speaker does not.
        let speaker = match message {
            _ if message.contains("is unavailable") => "the breaker",
            _ if message.contains("claiming it anew") => "the claim",
            _ if message.contains("the lease was not renewed") => "the lease",
            _ => message,
        };
        *said.entry(speaker).or_default() += 1;
    }
    assert!(!said.is_empty(), "nothing was said:\n{stderr}");
    let most = took.as_secs() / 10 + 2;
    assert!(
        said.values().all(|times| *times <= most),
        "in {took:?}: {said:?}\n{stderr}"
    );
}
