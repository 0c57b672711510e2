//! The relay killed again and again under load (I1 to I4), and stopped in order in between.

use std::{sync::Arc, time::Duration};

use posthaste_testkit::{
    long_form,
    process::Running,
    servers::{
        mysql::{MysqlServer, Version},
        postgres::PostgresServer,
    },
};
use rand::Rng;

use crate::verdict::{After, Lives};
use posthaste_torture::{
    database::{Database, Gate, Hold, KEYS, Plan, Step, load_key},
    load::{Load, OnTrouble},
    mysql::Mysql,
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, assert_no_panic, until},
    sqlite::Sqlite,
};

/// Small, so that what a kill repeats is held to a bound that means something.
const WINDOW_EVENTS: u64 = 500;
/// Every other number keeps its default, the lease of 15 s above all: were it waited for, each kill
/// would cost that.
const FLAGS: [&str; 6] = [
    "--window-events",
    "500",
    "--batch-events",
    "100",
    "--settle",
    "200ms",
];

struct Size {
    kills: u32,
    /// Kills between two stops in order.
    kills_per_stop: u32,
    commits: u64,
    /// Events that commit while the long transaction is open, each seen delivered.
    probes: u32,
    probe_every: Duration,
}

impl Size {
    fn here() -> Self {
        if long_form() {
            let probe_every = Duration::from_secs(6);
            Self {
                kills: 40,
                kills_per_stop: 5,
                commits: 20_000,
                probes: 10,
                probe_every,
            }
        } else {
            let probe_every = Duration::from_secs(1);
            Self {
                kills: 8,
                kills_per_stop: 3,
                commits: 400,
                probes: 8,
                probe_every,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_loses_nothing_through_kills_of_the_relay() {
    let server = PostgresServer::builder().start();
    beside_a_long_transaction(Arc::new(Postgres::new(&server))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_loses_nothing_through_kills_of_the_relay() {
    let server = MysqlServer::shared(Version::MySql8);
    beside_a_long_transaction(Arc::new(Mysql::new(server))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_loses_nothing_through_kills_of_the_relay() {
    let server = MysqlServer::shared(Version::MariaDb11);
    beside_a_long_transaction(Arc::new(Mysql::new(server))).await;
}

async fn beside_a_long_transaction(database: Arc<dyn Database>) {
    let delivered = Arc::new(Delivered::new());
    let long = LongTransaction::open(&database).await;
    let probes =
        tokio::spawn(long.delays_only_itself(Arc::clone(&database), Arc::clone(&delivered)));
    let killed = torture(&database, &delivered, async { probes.await.unwrap() }).await;
    assert_eq!(
        database.audited("fence").await,
        killed,
        "every killed relay is fenced, once"
    );
}

/// A transaction that is held open stops every other writer of SQLite: no long one here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_loses_nothing_through_kills_of_the_relay() {
    let database: Arc<dyn Database> = Arc::new(Sqlite::new().await);
    let delivered = Arc::new(Delivered::new());
    let killed = torture(&database, &delivered, async {}).await;
    assert_eq!(
        database.audited("fence").await,
        killed,
        "every killed relay is fenced, once"
    );
}

/// Answers how often the relay was killed.
async fn torture(
    database: &Arc<dyn Database>,
    delivered: &Delivered,
    beside: impl Future<Output = ()>,
) -> u64 {
    let size = Size::here();
    let relay = RelayCommand::new(&database.url(), delivered).flags(&FLAGS);
    let load = Load::start(database, OnTrouble::Fail);
    let mut lives = Lives::first();
    let mut running = relay.start();
    let (mut kills, mut with_backlog) = (0, 0);
    while with_backlog < size.kills {
        let had_backlog = kill_in_a_burst(database, delivered, running, kills).await;
        kills += 1;
        with_backlog += u32::from(had_backlog);
        lives.next(After::Kill, delivered);
        running = relay.start();
        if kills % u64::from(size.kills_per_stop) == 0 {
            // The kill's repeats are over when a new event arrives.
            arrives(&**database, delivered, &format!("stop-{kills}")).await;
            stop_in_order(running);
            lives.next(After::Stop, delivered);
            running = relay.start();
        }
    }
    until("enough commits", || load.commits() >= size.commits).await;
    beside.await;
    let commits = load.stop().await;
    arrives(&**database, delivered, "last").await;
    stop_in_order(running);
    lives.next(After::Stop, delivered);
    relay.drain(0);

    let verdict = lives.judge(&**database, delivered).await;
    println!(
        "{commits} commits, {} events, {kills} kills, {} repeats, of one life at most {}",
        verdict.report.committed,
        verdict.report.duplicates,
        verdict.report.most_repeats_in_one_life
    );
    verdict.assert_good(WINDOW_EVENTS);
    kills
}

/// Answers whether something that had committed before the kill was not delivered by then.
async fn kill_in_a_burst(
    database: &Arc<dyn Database>,
    delivered: &Delivered,
    running: Running,
    number: u64,
) -> bool {
    running.wait_for_stderr("claimed", LIMIT);
    let moment = Duration::from_millis(rand::rng().random_range(0..1_200));
    tokio::time::sleep(moment).await;
    // A thousand events at once keep any relay busy for some milliseconds, in which it dies.
    let mut steps: Vec<_> = (0..KEYS)
        .step_by(4)
        .map(|key| Step::new(load_key(key), 20))
        .collect();
    let last = format!("last-of-{number}");
    steps.push(Step::new(&*last, 1));
    let mut writer = database.writer().await.unwrap();
    writer
        .transact(&Plan {
            steps,
            ..Plan::default()
        })
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(rand::rng().random_range(0..30))).await;
    let killed = running.kill9();
    assert_no_panic(&killed.stderr);
    !delivered.holds(&format!("\"{last}\""))
}

/// An event of a key of its own commits and is delivered.
async fn arrives(database: &dyn Database, delivered: &Delivered, key: &str) {
    let mut writer = database.writer().await.unwrap();
    writer.transact(&Plan::of(key, 1)).await.unwrap();
    until("delivery of a new event", || {
        delivered.holds(&format!("\"{key}\""))
    })
    .await;
}

fn stop_in_order(running: Running) {
    running.terminate();
    let stopped = running.wait(LIMIT).expect_status(0);
    assert_no_panic(&stopped.stderr);
}

/// A transaction that stays open through half of the torture.
struct LongTransaction {
    gate: Arc<Gate>,
    commits: tokio::task::JoinHandle<()>,
}

impl LongTransaction {
    async fn open(database: &Arc<dyn Database>) -> Self {
        let gate = Arc::new(Gate::default());
        let mut plan = Plan::of("long", 3);
        plan.hold = Hold::Until(Arc::clone(&gate));
        let mut writer = database.writer().await.unwrap();
        let commits = tokio::spawn(async move { writer.transact(&plan).await.unwrap() });
        gate.opened.notified().await;
        Self { gate, commits }
    }

    /// Sees later commits delivered while it is open, then closes it.
    async fn delays_only_itself(self, database: Arc<dyn Database>, delivered: Arc<Delivered>) {
        let size = Size::here();
        for probe in 0..size.probes {
            arrives(&*database, &delivered, &format!("probe-{probe}")).await;
            tokio::time::sleep(size.probe_every).await;
        }
        assert!(
            !delivered.holds(r#""long""#),
            "an open transaction's event was delivered"
        );
        self.gate.release.notify_one();
        self.commits.await.unwrap();
    }
}
