//! A fleet and a load at work, and everything that is done to them.

mod destination;
mod server;
mod standby;

use std::{
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_testkit::{process::Running, proxy::Proxy};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{
    brokers::{Broker, REFUSED_BYTES_MIN, Target},
    clocks::{self, Clocks},
    database::{Database, Gate, Hold, Plan, Step, Trouble},
    faults::Fault,
    fleet::Fleet,
    load::{Experience, Load, OnTrouble},
    relay::{LIMIT, assert_no_panic, posthaste, posthaste_json, until},
    setting::Setting,
    source::Source,
    sqlite::Sqlite,
};

/// A relay may repeat so many events. Small, so that the bound on repeats means something.
pub const WINDOW_EVENTS: u64 = 500;
/// Short, so that a fault outlasts it soon.
pub const LEASE: Duration = Duration::from_secs(3);
/// [`WINDOW_EVENTS`] and [`LEASE`] as a relay takes them, and a quick end of what is refused.
pub const FLAGS: [&str; 10] = [
    "--lease",
    "3s",
    "--window-events",
    "500",
    "--batch-events",
    "100",
    "--attempts",
    "2",
    "--backoff",
    "50ms",
];
const GIANT_KEYS: u32 = 20;

/// The options of a fixture, besides its setting.
#[derive(Debug, Clone)]
pub struct LapOptions {
    /// How many relays.
    pub relays: usize,
    /// Of everything that is drawn by lot.
    pub seed: u64,
    /// How many events a giant transaction has.
    pub giant_events: u32,
    /// Whether PostgreSQL has a hot standby, and then retention that deletes instead of
    /// truncating.
    pub standby: bool,
    /// A program that writes when called as `PROGRAM write --store URL --seed N`; without it no
    /// writer is killed.
    pub writer: Option<PathBuf>,
}

/// Relays and writers at work on a database and a destination.
pub struct LapFixture {
    setting: Setting,
    options: LapOptions,
    random: SmallRng,
    source: Arc<Source>,
    target: Arc<dyn Target>,
    fleet: Fleet,
    clocks: Option<Clocks>,
    load: Load,
    open: Option<Open>,
    giants: u32,
    poisons: usize,
    deleted_topics: usize,
    skipped: Vec<Uuid>,
    numbers_issued_again: u32,
}

/// A fixture whose relays have delivered everything and are stopped.
pub struct DrainedFixture {
    /// The database.
    pub source: Arc<Source>,
    /// The destination.
    pub target: Arc<dyn Target>,
    /// How it was to write.
    pub experience: Experience,
    /// Events that the operator skipped: they must not be there.
    pub skipped: Vec<Uuid>,
    /// Crashes after which the database issued numbers a second time.
    pub numbers_issued_again: u32,
}

impl LapFixture {
    /// Everything is up, and partitions are shared out.
    pub async fn start(setting: Setting, options: LapOptions) -> Self {
        let (source, target) = (
            Arc::new(setting.start_database(options.standby).await),
            setting.target(options.relays),
        );
        let mut fleet = Fleet::new(&source, &target, options.relays, &FLAGS);
        let clocks = setting
            .has_wrong_clocks()
            .then(|| Clocks::for_all_of(&mut fleet));
        fleet.start_all();
        fleet.is_shared_out().await;
        let slowness = target.broker().map_or(1, Broker::slowness);
        let database = source.database();
        Self {
            load: Load::slower(&database, OnTrouble::Reconnect, options.seed, slowness),
            random: SmallRng::seed_from_u64(options.seed),
            setting,
            options,
            source,
            target,
            fleet,
            clocks,
            open: None,
            giants: 0,
            poisons: 0,
            deleted_topics: 0,
            skipped: Vec::new(),
            numbers_issued_again: 0,
        }
    }

    /// Something new arrives, then this happens, until it is mended.
    pub async fn inject(&mut self, fault: Fault) {
        self.fleet.assert_nobody_ended();
        self.fleet.delivers().await;
        self.clocks.iter_mut().for_each(Clocks::step);
        match fault {
            Fault::Kill
            | Fault::Freeze
            | Fault::Two
            | Fault::Stop
            | Fault::CutDatabase
            | Fault::CutBroker
            | Fault::SilentDatabase
            | Fault::SilentBroker => self.a_relay_meets(fault).await,
            Fault::EndBackends => self.end_backends().await,
            Fault::Crash => self.crash().await,
            Fault::Restart => self.restart().await,
            Fault::RowSecurity => self.row_security().await,
            Fault::Settings => self.odd_settings_of_the_relays().await,
            Fault::StandbyReader => self.standby_reader().await,
            Fault::BrokerKill => self.broker_ends(|broker| broker.kill9()).await,
            Fault::BrokerStop => self.broker_ends(|broker| broker.stop()).await,
            Fault::BrokerPause => self.broker_stands_still().await,
            Fault::DiskFull => self.disk_full().await,
            Fault::NoFolder => self.no_folder().await,
            Fault::Rotation => self.rotation().await,
            Fault::Elsewhere => self.elsewhere().await,
            Fault::TopicsDeleted => self.topics_deleted().await,
            Fault::ClockSetBack => self.clock_set_back().await,
            Fault::Poison => self.poison().await,
            Fault::Long => self.long().await,
            Fault::Giant => self.giant().await,
            Fault::WriterKill => self.writer_is_killed().await,
        }
    }

    /// All partitions have owners again.
    pub async fn is_shared_out(&self) {
        self.fleet.is_shared_out().await;
    }

    /// Writers and faults have ended, all that waits is delivered, and the relays are stopped in
    /// order.
    pub async fn drain(mut self) -> DrainedFixture {
        self.fleet.delivers().await;
        if let Some(open) = self.open.take() {
            open.ends().await;
        }
        let experience = self.load.end().await;
        self.fleet.is_shared_out().await;
        if self.poisons + self.deleted_topics > self.skipped.len() {
            self.fleet.stop_all();
            self.target.accept_all();
            self.fleet.start_all();
            self.fleet.is_shared_out().await;
            let url = self.source.database().operators_url();
            posthaste(&["dead", "retry", "--all", "--store", &url]).expect_status(0);
        }
        self.fleet.is_drained().await;
        self.fleet.stop_all();
        DrainedFixture {
            source: self.source,
            target: self.target,
            experience,
            skipped: self.skipped,
            numbers_issued_again: self.numbers_issued_again,
        }
    }

    /// One that owns something.
    async fn a_relay_meets(&mut self, fault: Fault) {
        let who = self.fleet.an_owner(&mut self.random);
        let began = Instant::now();
        match fault {
            Fault::Kill => {
                assert_no_panic(&self.fleet.take(who).kill9().stderr);
                self.fleet.is_taken_over_from(&[who]).await;
                self.fleet.start(who);
            }
            Fault::Freeze => self.freeze(who, began, &[who]).await,
            Fault::Two => {
                let second = (who + 1) % self.fleet.size();
                assert_no_panic(&self.fleet.take(second).kill9().stderr);
                self.freeze(who, began, &[who, second]).await;
                self.fleet.start(second);
            }
            Fault::Stop => {
                stop_after_whatever(self.fleet.take(who));
                self.fleet.is_taken_over_from(&[who]).await;
                self.fleet.start(who);
            }
            // Nothing mends it but the relay itself, beside all that follows.
            Fault::SilentDatabase => self.fleet.database_way(who).freeze(),
            Fault::SilentBroker => {
                let way = self.target.proxy(who);
                way.expect("a broker that can be reached").freeze();
            }
            Fault::CutDatabase => {
                let _cut = Cut::off(self.fleet.database_way(who), &mut self.random);
                self.fleet.is_taken_over_from(&[who]).await;
                outlast(began).await;
            }
            _ => {
                let way = self
                    .target
                    .proxy(who)
                    .expect("a broker that can be cut off");
                let _cut = Cut::off(way, &mut self.random);
                // An owner on SQLite, where nothing moves between live relays, goes on trying.
                if self.source.is_shared_out() {
                    self.fleet.is_taken_over_from(&[who]).await;
                }
                outlast(began).await;
            }
        }
    }

    /// One stands still, until the others have what `gone` had.
    async fn freeze(&mut self, who: usize, began: Instant, gone: &[usize]) {
        self.fleet.running(who).pause();
        // On SQLite it may stand still with the lock that everybody needs.
        if self.source.is_shared_out() {
            self.fleet.is_taken_over_from(gone).await;
        }
        outlast(began).await;
        self.fleet.running(who).resume();
    }

    /// One event that is refused, with others behind it. Every other one is skipped; the rest are
    /// accepted in the end.
    async fn poison(&mut self) {
        self.poisons += 1;
        let (database, key) = (self.source.database(), format!("poison-{}", self.poisons));
        // Behind a giant it would be long before it is tried.
        self.fleet.catches_up().await;
        let mut writer = database.writer().await.unwrap();
        let refused = Step {
            payload_bytes: 2 * REFUSED_BYTES_MIN,
            ..Step::new(&*key, 1)
        };
        let steps = vec![refused];
        writer
            .transact(&Plan {
                steps,
                ..Plan::default()
            })
            .await
            .unwrap();
        writer.transact(&Plan::of(&*key, 20)).await.unwrap();
        let dead = self.one_is_dead(&key).await;
        if self.poisons % 2 == 1 {
            let url = database.operators_url();
            posthaste(&["dead", "skip", "--key", &key, "--store", &url]).expect_status(0);
            self.skipped.push(dead);
        }
    }

    /// Of this key alone: an answer has so many rows at the most, and those of earlier ones wait
    /// too.
    async fn one_is_dead(&self, key: &str) -> Uuid {
        let url = self.source.database().operators_url();
        let list = [
            "dead", "list", "--key", key, "--state", "dead", "--store", &url,
        ];
        let mut dead = None;
        until("a dead event", || {
            let answer = posthaste_json(&list);
            let event = answer["events"].as_array().unwrap().first();
            dead = event.map(|event| Uuid::parse_str(event["id"].as_str().unwrap()).unwrap());
            dead.is_some()
        })
        .await;
        dead.expect("a dead event")
    }

    /// A relay whose clock is an hour ahead dies with its machine. Those that follow go by the true
    /// time, and do not wait for a lease that seems to last an hour.
    async fn clock_set_back(&mut self) {
        let who = self.fleet.an_owner(&mut self.random);
        for other in 0..self.fleet.size() {
            stop_after_whatever(self.fleet.take(other));
        }
        clocks::set_ahead(&mut self.fleet, who);
        self.fleet.start(who);
        self.fleet.delivers().await;
        assert_no_panic(&self.fleet.take(who).kill9().stderr);
        self.fleet.assert_none_is_live();
        self.sqlite().machine_was_restarted().await;
        self.fleet.clear_environment(who);
        self.fleet.start_all();
        self.fleet.is_shared_out().await;
    }

    fn sqlite(&self) -> &Sqlite {
        match &*self.source {
            Source::Sqlite(file) => file,
            _ => panic!("{} is no file", self.setting),
        }
    }

    async fn long(&mut self) {
        match self.open.take() {
            Some(open) => open.ends().await,
            None => self.open = Some(Open::begin(&*self.source.database()).await.unwrap()),
        }
    }

    async fn giant(&mut self) {
        self.giants += 1;
        let step = |number| Step {
            payload_bytes: 100,
            ..Step::new(
                format!("giant-{}-{number:02}", self.giants),
                self.options.giant_events / GIANT_KEYS,
            )
        };
        let plan = Plan {
            steps: (0..GIANT_KEYS).map(step).collect(),
            ..Plan::default()
        };
        let mut writer = self.source.database().writer().await.unwrap();
        writer.transact(&plan).await.unwrap();
    }

    async fn writer_is_killed(&mut self) {
        let program = self.options.writer.as_ref().expect("a program that writes");
        let seed: u64 = self.random.random();
        let url = self.source.database().url();
        let mut command = Command::new(program);
        command.args(["write", "--store", &url, "--seed", &seed.to_string()]);
        let writer = Running::start(&mut command);
        writer.wait_for_stdout("writing", LIMIT);
        let moment = Duration::from_millis(self.random.random_range(0..1_000));
        tokio::time::sleep(moment).await;
        drop(writer.kill9());
    }
}

/// A way that leads nowhere until the value is dropped, however that comes.
struct Cut<'a>(&'a Proxy);

impl<'a> Cut<'a> {
    /// Connections end, or stay open and silent, or half of them does.
    fn off(proxy: &'a Proxy, random: &mut SmallRng) -> Self {
        let ways = [
            Proxy::refuse,
            Proxy::stall,
            Proxy::hold_answers,
            Proxy::half_close,
        ];
        ways.choose(random).expect("a way")(proxy);
        Self(proxy)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// Until the lease of whoever could not renew it since then is over.
async fn outlast(began: Instant) {
    let left = (LEASE + LEASE / 3).saturating_sub(began.elapsed());
    tokio::time::sleep(left.max(Duration::from_millis(100))).await;
}

/// A relay that is stopped while it claims anew after a crash of the database does not know what
/// the lost claim stored, and says so.
fn stop_after_whatever(running: Running) {
    running.terminate();
    let stopped = running.wait(LIMIT);
    assert_no_panic(&stopped.stderr);
    if !stopped
        .stderr
        .contains("some events will be delivered again")
    {
        stopped.expect_status(0);
    }
}

/// SIGTERM, and a good end.
///
/// # Panics
///
/// When it ends otherwise.
pub fn stop_in_order(running: Running) {
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
}

/// A transaction that stays open.
struct Open {
    gate: Arc<Gate>,
    commits: JoinHandle<Result<(), Trouble>>,
}

impl Open {
    async fn begin(database: &dyn Database) -> Result<Self, Trouble> {
        let gate = Arc::new(Gate::default());
        let mut plan = Plan::of("long", 3);
        plan.hold = Hold::Until(Arc::clone(&gate));
        let mut writer = database.writer().await?;
        let commits = tokio::spawn(async move { writer.transact(&plan).await });
        gate.opened.notified().await;
        Ok(Self { gate, commits })
    }

    /// Commits, unless the server has crashed meanwhile.
    async fn ends(self) {
        self.gate.release.notify_one();
        // Either is right: the business tables say which.
        drop(self.commits.await.expect("the long transaction's task"));
    }
}
