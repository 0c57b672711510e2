//! The relay's connections ended, cut, stalled and half closed under load.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_testkit::{
    long_form, process::Running, proxy::Proxy, servers::postgres::PostgresServer,
};

use crate::verdict::{Lives, Verdict};
use posthaste_torture::{
    database::{Database, Plan},
    load::{Load, OnTrouble},
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
            ended += postgres.number(
                "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
                 where application_name = 'posthaste' and datname = current_database()",
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (said, _) = under_load(&postgres, &relay, &delivered, OnTrouble::Fail, faults).await;
    assert_said_seldom(&said, began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_stalled_and_half_closed_connections_cost_neither_events_nor_order() {
    let server = PostgresServer::builder().start();
    let postgres = Arc::new(Postgres::new(&server));
    let delivered = Delivered::new();
    let (proxy, url) = proxied(&server, &postgres);
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
                delivers(&postgres, &delivered).await;
            }
        }
    };
    let (said, _) = under_load(&postgres, &relay, &delivered, OnTrouble::Fail, faults).await;
    assert_said_seldom(&said, began.elapsed());
}

/// So it looks when a pooler or a load balancer survives a hard fail-over of what stood behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_never_answer_again_are_replaced() {
    let server = PostgresServer::builder().start();
    let postgres = Arc::new(Postgres::new(&server));
    let delivered = Delivered::new();
    let (proxy, url) = proxied(&server, &postgres);
    let relay = RelayCommand::new(&url, &delivered).flags(&FLAGS);
    let began = Instant::now();
    let rounds = if long_form() { 20 } else { 3 };
    let faults = async |_: &Running, _: &Load| {
        for _ in 0..rounds {
            proxy.freeze();
            delivers(&postgres, &delivered).await;
        }
    };
    let (said, _) = under_load(&postgres, &relay, &delivered, OnTrouble::Fail, faults).await;
    assert!(said.contains("no answer within"), "{said}");
    assert_said_seldom(&said, began.elapsed());
}

/// New connections are taken, and nothing comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_end_where_the_server_never_answers() {
    let server = PostgresServer::builder().start();
    let postgres = Postgres::new(&server);
    let (proxy, url) = proxied(&server, &postgres);
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
fn proxied(server: &PostgresServer, postgres: &Postgres) -> (Proxy, String) {
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = postgres.url().replace(
        &format!(":{}/", server.port()),
        &format!(":{}/", proxy.port()),
    );
    (proxy, url)
}

/// Runs writers and a relay beside the faults, then asserts that all is there; answers what the
/// relay said, and what was repeated.
pub(crate) async fn under_load(
    postgres: &Arc<Postgres>,
    relay: &RelayCommand,
    delivered: &Delivered,
    on_trouble: OnTrouble,
    faults: impl AsyncFnOnce(&Running, &Load),
) -> (String, Verdict) {
    let database: Arc<dyn Database> = Arc::clone(postgres) as Arc<dyn Database>;
    let load = Load::start(&database, on_trouble);
    let mut running = relay.start();
    running.wait_for_stderr("claimed", LIMIT);
    faults(&running, &load).await;
    delivers(postgres, delivered).await;
    assert!(
        running.is_running(),
        "the relay ended:\n{}",
        running.stderr()
    );
    load.stop().await;
    running.terminate();
    let stopped = running.wait(LIMIT).expect_status(0);
    relay.drain(0);
    let verdict = Lives::first().judge(&*database, delivered).await;
    println!("{}", verdict.report);
    verdict.report.assert_good();
    assert_no_panic(&stopped.stderr);
    (stopped.stderr, verdict)
}

/// A fresh event arrives.
pub(crate) async fn delivers(postgres: &Postgres, delivered: &Delivered) {
    let key = format!("after-{}", uuid::Uuid::new_v4());
    postgres
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
