//! Retention at work while events are written and delivered, the relay killed and the server
//! crashed in between: nothing is lost, no writer waits, and what is kept in the end is the window
//! and a leaf, although a key stays blocked from the first event on.

use std::sync::Arc;

use posthaste_testkit::{long_form, process::Running, servers::postgres::PostgresServer};
use serde_json::Value;

use crate::verdict::Lives;
use posthaste_torture::{
    database::{Database, Gate, Hold, KEYS, Plan, Step, load_key},
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::{
        Delivered, LIMIT, RelayCommand, assert_no_panic, posthaste, posthaste_json, until_within,
    },
};

const WINDOW_EVENTS: u64 = 500;
const FLAGS: [&str; 4] = ["--window-events", "500", "--settle", "200ms"];
/// Far below the events that this destination refuses, far above all others.
const REFUSES: &str = "?max_event_bytes=2000";
const BLOCKED: &str = "blocked";
/// Followers of the refused event, each time that some are written.
const FOLLOWERS: u32 = 20;

struct Size {
    leaf_rows: u64,
    /// Events that wait before anything is delivered, in transactions of ten thousand.
    backlog: u64,
    commits_between_kills: u64,
    kills: u64,
}

impl Size {
    fn here() -> Self {
        // The transaction that stays open does so for some minutes in the long form.
        let (leaf_rows, backlog, commits_between_kills, kills) = if long_form() {
            (65_536, 10_000_000, 5_000, 12)
        } else {
            (1_024, 100_000, 150, 4)
        };
        Self {
            leaf_rows,
            backlog,
            commits_between_kills,
            kills,
        }
    }
}

/// Some of it is work on the whole backlog.
async fn until(what: &str, so: impl FnMut() -> bool) {
    let limit = LIMIT * if long_form() { 10 } else { 1 };
    until_within(limit, what, so).await;
}

/// The database, and the relay's command line on it.
struct Fixture {
    server: PostgresServer,
    postgres: Arc<Postgres>,
    delivered: Delivered,
}

impl Fixture {
    fn new(size: &Size) -> Self {
        // The server itself notes whoever waits longer than this for a lock.
        let server = PostgresServer::builder()
            .setting("log_lock_waits", "on")
            .setting("deadlock_timeout", "200ms")
            .start();
        let leaf_rows = size.leaf_rows.to_string();
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

    fn relay(&self) -> RelayCommand {
        RelayCommand::new(&self.url(), &self.delivered).flags(&FLAGS)
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

    /// `parked`, `dead` and `blocked_keys` of the destination that refuses.
    fn set_aside(&self) -> [u64; 3] {
        let status = self.status();
        let destinations = status["destinations"].as_array().unwrap();
        let refusing = destinations.iter().find(|d| d["name"] == "default");
        ["parked", "dead", "blocked_keys"].map(|name| refusing.unwrap()[name].as_u64().unwrap())
    }

    fn audited(&self, action: &str) -> u64 {
        let sql = format!("select count(*) from posthaste.audit where action = '{action}'");
        self.postgres.number(&sql)
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

    /// An event that is refused.
    async fn block_a_key(&self) {
        let refused = Step {
            payload_bytes: 4_000,
            ..Step::new(BLOCKED, 1)
        };
        self.write(refused).await;
    }

    async fn write_followers(&self) {
        self.write(Step::new(BLOCKED, FOLLOWERS)).await;
    }

    async fn write(&self, step: Step) {
        let mut writer = self.postgres.writer().await.unwrap();
        let steps = vec![step];
        let plan = Plan {
            steps,
            ..Plan::default()
        };
        writer.transact(&plan).await.unwrap();
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
    let fixture = Fixture::new(&size);
    let url = fixture.url();
    let database: Arc<dyn Database> = Arc::clone(&fixture.postgres) as Arc<dyn Database>;
    // Behind the blocked key and this destination everything is pinned at first.
    fixture.block_a_key().await;
    fixture.write_followers().await;
    let other = RelayCommand::to_url(&url, "null:").flags(&["--destination", "other"]);
    other.drain(0);
    fixture.write_the_backlog(size.backlog).await;

    let load = Load::start(&database, OnTrouble::Reconnect);
    let refusing = fixture.relay().option(REFUSES);
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
            fixture.server.crash();
            fixture.server.start_again();
            open = Some(Open::begin(&fixture.postgres).await);
            fixture.write_followers().await;
        }
        running = refusing.start();
    }
    until("the backlog's delivery", || {
        fixture.delivered.lines() >= size.backlog
    })
    .await;
    until("a stopped destination pins", || {
        fixture.is_pinned_by("destination", "other")
    })
    .await;
    assert!(fixture.rows() >= size.backlog, "something undelivered went");
    // From here on only the blocked key and the open transaction pin, and the key is got out of the
    // way.
    let mut other_running = other.start();
    until("the open transaction pins", || {
        fixture.is_pinned_by("transaction", "default")
    })
    .await;
    open.take().unwrap().commit().await;
    // While writing goes on: the window's events, and a leaf or two.
    until("the outbox is near its window", || {
        fixture.rows() < size.backlog / 4
    })
    .await;
    let evacuated = "select count(*) from posthaste.parked where evacuated";
    until("all old followers are set aside", || {
        fixture.postgres.number(evacuated) == u64::from(2 * FOLLOWERS)
    })
    .await;
    let [parked, dead, blocked_keys] = fixture.set_aside();
    assert_eq!(
        (parked + dead, blocked_keys),
        (u64::from(2 * FOLLOWERS) + 1, 1)
    );
    assert_no_panic(&other_running.kill9().stderr);
    other_running = other.start();
    let leaves = fixture.audited("truncate");
    until("leaves go while writers write", || {
        fixture.audited("truncate") > leaves + 4
    })
    .await;
    // Some more, of which a part may be set aside as well, while the key is released.
    fixture.write_followers().await;
    stop(running);
    posthaste(&["dead", "retry", "--store", &url, "--key", BLOCKED]).expect_status(0);
    running = fixture.relay().start();
    until("the key is released", || fixture.set_aside() == [0, 0, 0]).await;
    load.stop().await;
    until("only a leaf is left", || {
        posthaste(&["purge", "--store", &url]).expect_status(0);
        fixture.rows() <= size.leaf_rows
    })
    .await;
    stop(other_running);
    stop(running);
    fixture.relay().drain(0);

    let report = Lives::first()
        .judge(&*database, &fixture.delivered)
        .await
        .report;
    let truncated = fixture.audited("truncate");
    println!(
        "{} events, {kills} kills, {truncated} leaves went: {report}",
        report.committed
    );
    report.assert_good();
    assert!(report.duplicates <= WINDOW_EVENTS * (kills + 1), "{report}");
    // Writers and relays alike.
    assert_eq!(fixture.server.waits_for_tables(), [""; 0]);
}
