//! Retention at work while events are written and delivered, the relay killed and the server crashed in
//! between: nothing is lost, no writer waits, and what is kept in the end is the window and a leaf.

use std::sync::Arc;

use posthaste_testkit::{long_form, process::Running, servers::postgres::PostgresServer};
use serde_json::Value;

use crate::{
    database::{Database, Gate, Hold, KEYS, Plan, Step, load_key},
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::{Delivered, LIMIT, Relay, assert_no_panic, posthaste, posthaste_json, until},
    verdict::Lives,
};

const LEAF_ROWS: u64 = 1_024;
const WINDOW_EVENTS: u64 = 500;
const FLAGS: [&str; 4] = ["--window-events", "500", "--settle", "200ms"];
/// Far below the events that this destination refuses, far above all others.
const REFUSES: &str = "?max_event_bytes=2000";

struct Size {
    /// Events that wait before anything is delivered, in transactions of ten thousand.
    backlog: u64,
    commits_between_kills: u64,
    kills: u64,
}

impl Size {
    fn here() -> Self {
        let (backlog, commits_between_kills, kills) = if long_form() {
            (5_000_000, 5_000, 12)
        } else {
            (100_000, 150, 4)
        };
        Self {
            backlog,
            commits_between_kills,
            kills,
        }
    }
}

/// The database, and the relay's command line on it.
struct Scene {
    server: PostgresServer,
    postgres: Arc<Postgres>,
    delivered: Delivered,
}

impl Scene {
    fn new() -> Self {
        // The server itself notes whoever waits longer than this for a lock.
        let server = PostgresServer::builder()
            .setting("log_lock_waits", "on")
            .setting("deadlock_timeout", "200ms")
            .start();
        let leaf_rows = LEAF_ROWS.to_string();
        let init = ["--leaf-rows", &leaf_rows, "--retention", "1s"];
        let postgres = Postgres::with_init(&server, &init).with_paced_writers();
        Self {
            server,
            postgres: Arc::new(postgres),
            delivered: Delivered::new(),
        }
    }

    fn url(&self) -> String {
        self.postgres.url()
    }

    fn relay(&self) -> Relay {
        Relay::new(&self.url(), &self.delivered).flags(&FLAGS)
    }

    fn rows(&self) -> u64 {
        self.postgres
            .number("select count(*) from posthaste.outbox")
    }

    fn status(&self) -> Value {
        posthaste_json(&["status", "--store", &self.url()])
    }

    /// Whether something of this kind pins what is past its time.
    fn is_pinned_by(&self, kind: &str, name: &str) -> bool {
        let status = self.status();
        let pins = status["pinned_by"].as_array().unwrap();
        let named = |pin: &Value| pin["destination"] == name || pin["key"] == name;
        status["retention_debt_events"].as_u64() > Some(0)
            && pins.iter().any(|pin| pin["kind"] == kind && named(pin))
    }

    async fn write_the_backlog(&self, events: u64) {
        let mut writer = self.postgres.writer().await.unwrap();
        for _ in 0..events / 10_000 {
            let step = |key| Step {
                payload_bytes: 100,
                ..Step::new(load_key(key), 10_000 / KEYS)
            };
            let plan = Plan {
                steps: (0..KEYS).map(step).collect(),
                ..Plan::default()
            };
            writer.transact(&plan).await.unwrap();
        }
    }

    /// An event that is refused, and its followers.
    async fn block_a_key(&self) {
        let mut writer = self.postgres.writer().await.unwrap();
        let refused = Step {
            payload_bytes: 4_000,
            ..Step::new("blocked", 1)
        };
        let steps = vec![refused, Step::new("blocked", 20)];
        let plan = Plan {
            steps,
            ..Plan::default()
        };
        writer.transact(&plan).await.unwrap();
    }

    /// Writers and relays that waited too long for a table.
    fn long_waits(&self) -> Vec<String> {
        let log = self.server.log();
        let waits = log
            .lines()
            .filter(|line| line.contains("still waiting for") && line.contains("on relation"));
        waits.map(str::to_owned).collect()
    }
}

/// A transaction that stays open until told, with an event in it.
struct Open {
    gate: Arc<Gate>,
    commits: tokio::task::JoinHandle<()>,
}

impl Open {
    async fn begin(database: &Postgres) -> Self {
        let gate = Arc::new(Gate::default());
        let mut plan = Plan::of("long", 3);
        plan.hold = Hold::Until(Arc::clone(&gate));
        let mut writer = database.writer().await.unwrap();
        let commits = tokio::spawn(async move { writer.transact(&plan).await.unwrap() });
        gate.opened.notified().await;
        Self { gate, commits }
    }

    async fn commit(self) {
        self.gate.release.notify_one();
        self.commits.await.unwrap();
    }
}

fn stop(running: Running) {
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_is_delivered_and_what_is_kept_is_the_window() {
    let size = Size::here();
    let scene = Scene::new();
    let database: Arc<dyn Database> = Arc::clone(&scene.postgres) as Arc<dyn Database>;
    // Behind the blocked key and this destination everything is pinned at first.
    scene.block_a_key().await;
    let other = Relay::to_url(&scene.url(), "null:").flags(&["--destination", "other"]);
    other.drain(0);
    scene.write_the_backlog(size.backlog).await;

    let load = Load::start(&database, OnTrouble::Reconnect);
    let refusing = scene.relay().option(REFUSES);
    let mut running = refusing.start();
    let mut kills = 0;
    let mut open = None;
    while kills < size.kills {
        running.wait_for_stderr("claimed", LIMIT);
        let commits = load.commits() + size.commits_between_kills;
        until("commits between kills", || load.commits() > commits).await;
        assert_no_panic(&running.kill9().stderr);
        kills += 1;
        if kills == size.kills / 2 {
            scene.server.crash();
            scene.server.start_again();
            open = Some(Open::begin(&scene.postgres).await);
        }
        running = refusing.start();
    }
    until("the backlog's delivery", || {
        scene.delivered.lines() >= size.backlog
    })
    .await;
    let url = scene.url();
    until("a stopped destination pins", || {
        scene.is_pinned_by("destination", "other")
    })
    .await;
    assert!(scene.rows() >= size.backlog, "something undelivered went");
    // From here on only the blocked key and the open transaction pin.
    stop(running);
    other.drain(0);
    running = refusing.start();
    until("a blocked key pins", || {
        scene.is_pinned_by("key", "blocked")
    })
    .await;
    let mut other_running = other.start();
    stop(running);
    posthaste(&["dead", "retry", "--store", &url, "--key", "blocked"]).expect_status(0);
    running = scene.relay().start();
    until("the open transaction pins", || {
        scene.is_pinned_by("transaction", "default")
    })
    .await;
    open.take().unwrap().commit().await;
    // While writing goes on: the window's events, and a leaf or two.
    until("the outbox is near its window", || {
        scene.rows() < size.backlog / 4
    })
    .await;
    assert_no_panic(&other_running.kill9().stderr);
    other_running = other.start();
    let leaves = database.audited("truncate").await;
    until("leaves go while writers write", || {
        scene
            .postgres
            .number("select count(*) from posthaste.audit where action = 'truncate'")
            > leaves + 4
    })
    .await;
    load.stop().await;
    until("only a leaf is left", || {
        posthaste(&["purge", "--store", &url]).expect_status(0);
        scene.rows() <= LEAF_ROWS
    })
    .await;
    stop(other_running);
    stop(running);
    scene.relay().drain(0);

    let report = Lives::first()
        .judge(&*database, &scene.delivered)
        .await
        .report;
    let truncated = database.audited("truncate").await;
    println!(
        "{} events, {kills} kills, {truncated} leaves went: {report}",
        report.committed
    );
    report.assert_good();
    assert!(report.duplicates <= WINDOW_EVENTS * (kills + 1), "{report}");
    assert_eq!(scene.long_waits(), [""; 0]);
}
