//! Several relays share a destination, in virtual time: random histories with relays killed, stopped, cut off
//! from the store or from the broker, and clocks that drift. The broker fences by time alone: what was handed
//! to the network arrives late, an aborted lane's bytes too.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    FenceKind, KeyOrder, Lane, LaneSpec, Moment, Outcome, Ownership, Record, Sink, SinkError,
    SinkInfo, Verdict,
};
use posthaste_relay::{
    Clock, Destination, Relay, RelayBuilder, Summary,
    memory::{MemoryMode, MemoryStore, NewEvent},
};
use posthaste_testkit::{
    faulty::{Call, Fault, Faulty, Script},
    long_form,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};

const MODES: [MemoryMode; 2] = [MemoryMode::Log, MemoryMode::Mark];
const LEASE: Duration = Duration::from_secs(6);
const SETTLE: Duration = Duration::from_secs(1);
/// Bytes handed to the network arrive or are gone within this: less than the settle time.
const NETWORK: Duration = Duration::from_millis(900);
const KEYS: u64 = 12;
const STORE_CALLS: [Call; 12] = [
    Call::Renew,
    Call::Claim,
    Call::Revoke,
    Call::Shares,
    Call::Withdraw,
    Call::AnnounceLeaving,
    Call::Leave,
    Call::Open,
    Call::Next,
    Call::Advance,
    Call::Due,
    Call::Report,
];
const BROKER_CALLS: [Call; 3] = [Call::CheckSink, Call::OpenLane, Call::Submit];

/// What is wrong with the relays' clocks, and with their patience.
#[derive(Debug, Clone, Copy)]
struct Time {
    /// Every other clock runs so much too fast, the others too slow.
    drift: f64,
    /// Clocks are set forth and back by minutes.
    steps: bool,
    settle: Duration,
}

impl Default for Time {
    fn default() -> Self {
        Self {
            drift: 0.0,
            steps: false,
            settle: SETTLE,
        }
    }
}

/// A relay's own clock over tokio's, which a test may pause.
struct WrongClock {
    began: Instant,
    rate: f64,
    set_forth: Arc<AtomicU64>,
}

impl Clock for WrongClock {
    fn now(&self) -> Moment {
        let set_forth = Duration::from_secs(self.set_forth.load(Relaxed));
        Moment(set_forth + self.began.elapsed().mul_f64(self.rate))
    }

    fn wall_micros(&self) -> i64 {
        0
    }
}

/// A delivery: the key, its number, and when.
#[derive(Debug, Clone)]
struct Delivery {
    key: String,
    n: u64,
    at: Instant,
}

/// A broker that accepts whatever arrives, from whichever lane.
#[derive(Clone, Default)]
struct Broker {
    log: Arc<Mutex<Vec<Delivery>>>,
    seed: u64,
}

struct NetworkLane {
    sends: mpsc::UnboundedSender<(Instant, Vec<Record>)>,
    verdicts: mpsc::UnboundedReceiver<Vec<Verdict>>,
}

fn accepted(record: &Record) -> Verdict {
    Verdict {
        ticket: record.ticket(),
        outcome: Outcome::Accepted(None),
    }
}

fn number(record: &Record) -> u64 {
    let text = std::str::from_utf8(record.value().unwrap()).unwrap();
    text.parse().unwrap()
}

#[async_trait]
impl Sink for Broker {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "network",
            batch_events_max: 20,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: 100,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Timing,
            single_lane: false,
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let (sends, mut sent) = mpsc::unbounded_channel::<(Instant, Vec<Record>)>();
        let (tell, verdicts) = mpsc::unbounded_channel();
        let log = Arc::clone(&self.log);
        let mut random = SmallRng::seed_from_u64(self.seed ^ (spec.epoch << 20) ^ spec.number);
        // Goes on when the lane is aborted, and when its relay dies: nobody calls bytes back.
        tokio::spawn(async move {
            let mut arrives = Instant::now();
            while let Some((sent_at, batch)) = sent.recv().await {
                let travel = NETWORK.mul_f64(random.random::<f64>().powi(2));
                arrives = arrives.max(sent_at + travel);
                tokio::time::sleep_until(arrives).await;
                let at = Instant::now();
                let delivered = batch.iter().map(|record| Delivery {
                    key: record.key().unwrap().to_owned(),
                    n: number(record),
                    at,
                });
                log.lock().unwrap().extend(delivered);
                drop(tell.send(batch.iter().map(accepted).collect()));
            }
        });
        Ok(Box::new(NetworkLane { sends, verdicts }))
    }
}

#[async_trait]
impl Lane for NetworkLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        self.sends.send((Instant::now(), batch)).unwrap();
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        match self.verdicts.recv().await {
            Some(verdicts) => verdicts,
            None => std::future::pending().await,
        }
    }

    async fn abort(self: Box<Self>) {}

    async fn close(self: Box<Self>, _: Duration) -> Vec<Verdict> {
        Vec::new()
    }
}

struct Running {
    name: String,
    set_forth: Arc<AtomicU64>,
    store: Script,
    broker: Script,
    stop: oneshot::Sender<()>,
    relay: JoinHandle<Summary>,
}

struct Scene {
    store: MemoryStore,
    broker: Broker,
    numbers: BTreeMap<u64, u64>,
    started: u64,
    time: Time,
}

impl Scene {
    fn new(mode: MemoryMode, seed: u64) -> Self {
        let broker = Broker {
            seed,
            ..Broker::default()
        };
        Self {
            store: MemoryStore::new(mode),
            broker,
            numbers: BTreeMap::new(),
            started: 0,
            time: Time::default(),
        }
    }

    fn emit(&mut self, key: u64) {
        let n = self.numbers.entry(key).or_default();
        *n += 1;
        let mut transaction = self.store.begin();
        transaction.emit(NewEvent {
            topic: "t".into(),
            key: Some(format!("k{key}")),
            payload: Some(n.to_string().into_bytes()),
            ..NewEvent::default()
        });
        transaction.commit().unwrap();
    }

    fn start(&mut self) -> Running {
        self.start_with(|builder| builder)
    }

    fn start_with(&mut self, change: impl FnOnce(RelayBuilder) -> RelayBuilder) -> Running {
        self.started += 1;
        let name = format!("relay-{}", self.started);
        let (store, broker) = (Script::default(), Script::default());
        let sign = if self.started.is_multiple_of(2) {
            1.0
        } else {
            -1.0
        };
        let set_forth = Arc::new(AtomicU64::new(1_000));
        let clock = WrongClock {
            began: Instant::now(),
            rate: 1.0 + sign * self.time.drift,
            set_forth: Arc::clone(&set_forth),
        };
        let sink = Faulty::new(Arc::new(self.broker.clone()), broker.clone());
        let faulty = Faulty::new(Arc::new(self.store.clone()), store.clone());
        let builder = Relay::builder(Arc::new(faulty))
            .name(&name)
            .clock(Arc::new(clock))
            .lease(LEASE)
            .settle(self.time.settle)
            .destination(Destination::new("d", Arc::new(sink)));
        let relay = change(builder).build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let run = async { relay.run(async { drop(stopped.await) }).await.unwrap() };
        Running {
            name,
            set_forth,
            store,
            broker,
            stop,
            relay: tokio::spawn(run),
        }
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.broker.log.lock().unwrap().clone()
    }

    /// First deliveries of each key are in order; everything is delivered; a repeat is a contiguous replay that
    /// ends with the key's last event. Answers how many deliveries were repeats, and what is wrong.
    fn judged(&self) -> (usize, Vec<String>) {
        let mut of_key: HashMap<String, (u64, u64)> = HashMap::new();
        let (mut repeats, mut faults) = (0, Vec::new());
        for Delivery { key, n, .. } in self.deliveries() {
            let (first, last) = of_key.entry(key.clone()).or_default();
            if n > *first + 1 {
                faults.push(format!(
                    "order: {key}: {n} was first delivered behind {first}"
                ));
            } else if n > *last + 1 {
                faults.push(format!("replay: {key}: {n} was delivered behind {last}"));
            }
            repeats += usize::from(n <= *first);
            *first = n.max(*first);
            *last = n;
        }
        for (key, n) in &self.numbers {
            match of_key.get(&format!("k{key}")) {
                Some((first, _)) if first != n => {
                    faults.push(format!("loss: k{key}: {first} of {n} delivered"));
                }
                None => faults.push(format!("loss: k{key}: nothing delivered")),
                Some((_, last)) if last != n => {
                    faults.push(format!("replay: k{key}: {last} came last, not {n}"));
                }
                Some(_) => {}
            }
        }
        (repeats, faults)
    }

    fn judge(&self) -> usize {
        let (repeats, faults) = self.judged();
        assert_eq!(faults, [""; 0]);
        repeats
    }

    async fn owned(&self) -> Vec<u16> {
        let shares = self.store.shares("d").await.unwrap();
        shares.members.iter().map(|member| member.owned).collect()
    }

    /// Waits until everything is delivered.
    async fn drained(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let mut last: HashMap<String, u64> = HashMap::new();
            for delivery in self.deliveries() {
                let n = last.entry(delivery.key).or_default();
                *n = delivery.n.max(*n);
            }
            let all = |(key, n): (&u64, &u64)| last.get(&format!("k{key}")) == Some(n);
            if self.numbers.iter().all(all) {
                return began.elapsed();
            }
            assert!(began.elapsed() < limit, "not drained within {limit:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Running {
    async fn stop(self) -> Summary {
        self.stop.send(()).unwrap();
        self.relay.await.unwrap()
    }

    async fn kill(self) {
        self.relay.abort();
        drop(self.relay.await);
    }

    fn heal(&self) {
        self.store.heal();
        self.broker.heal();
    }

    fn cut(script: &Script, calls: &[Call]) {
        for call in calls {
            script.always(*call, Fault::Refuse);
        }
    }
}

async fn for_a_while(scene: &mut Scene, time: Duration) {
    let until = Instant::now() + time;
    let mut key = 0;
    while Instant::now() < until {
        key = (key + 5) % KEYS;
        scene.emit(key);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn relays_come_and_go_and_nothing_is_repeated() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 1);
        let one = scene.start();
        for_a_while(&mut scene, Duration::from_secs(2)).await;
        let two = scene.start();
        for_a_while(&mut scene, Duration::from_secs(30)).await;
        assert_eq!(
            scene.owned().await,
            [32, 32],
            "the shares are equal after a while"
        );
        let three = scene.start();
        for_a_while(&mut scene, Duration::from_secs(30)).await;
        let mut owned = scene.owned().await;
        owned.sort_unstable();
        assert_eq!(owned, [21, 21, 22]);
        assert!(two.stop().await.clean);
        for_a_while(&mut scene, Duration::from_secs(5)).await;
        assert_eq!(scene.owned().await, [32, 32]);
        assert!(one.stop().await.clean);
        for_a_while(&mut scene, Duration::from_secs(5)).await;
        scene.drained(Duration::from_secs(5)).await;
        assert!(three.stop().await.clean);
        assert_eq!(scene.judge(), 0, "a planned move or stop repeats nothing");
    }
}

/// Longest time without a delivery of a key, over all keys.
fn longest_gap(deliveries: &[Delivery], since: Instant) -> Duration {
    let mut last: HashMap<&str, Instant> = HashMap::new();
    let mut longest = Duration::ZERO;
    for delivery in deliveries.iter().filter(|delivery| delivery.at >= since) {
        if let Some(before) = last.insert(&delivery.key, delivery.at) {
            longest = longest.max(delivery.at - before);
        }
    }
    longest
}

#[tokio::test(start_paused = true)]
async fn a_planned_stop_leaves_half_a_second_and_a_death_a_lease_and_a_settle_time() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 2);
        let (one, two, three) = (scene.start(), scene.start(), scene.start());
        for_a_while(&mut scene, Duration::from_secs(60)).await;
        let began = Instant::now();
        let stopping = tokio::spawn(one.stop());
        for_a_while(&mut scene, Duration::from_secs(10)).await;
        assert!(stopping.await.unwrap().clean);
        // The writer emits an event of each key four times a second, the network takes its time, and who takes
        // over finishes first what it has in flight there.
        let between = Duration::from_millis(20) * 12 + NETWORK * 2;
        let gap = longest_gap(&scene.deliveries(), began);
        assert!(gap <= Duration::from_millis(500) + between, "{gap:?}");
        let began = Instant::now();
        two.kill().await;
        for_a_while(&mut scene, Duration::from_secs(20)).await;
        let gap = longest_gap(&scene.deliveries(), began);
        let bound = LEASE.mul_f64(1.1) + SETTLE + between + Duration::from_millis(100);
        assert!(gap <= bound, "{gap:?}");
        scene.drained(Duration::from_secs(5)).await;
        three.stop().await;
        scene.judge();
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_reach_the_broker_leaves_it_to_those_who_do() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 3);
        let (one, two) = (scene.start(), scene.start());
        for_a_while(&mut scene, Duration::from_secs(40)).await;
        Running::cut(&one.broker, &BROKER_CALLS);
        for_a_while(&mut scene, LEASE * 3).await;
        scene.drained(Duration::from_secs(10)).await;
        assert_eq!(scene.owned().await, [64], "only the other one serves it");
        // It asks again later, and may have its share when it reaches the broker.
        one.broker.heal();
        for_a_while(&mut scene, Duration::from_secs(60)).await;
        assert_eq!(scene.owned().await, [32, 32]);
        scene.drained(Duration::from_secs(10)).await;
        one.stop().await;
        two.stop().await;
        scene.judge();
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_left_its_share_to_others_stops_in_order_whatever_failed_before() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 6);
        let (one, two) = (scene.start(), scene.start());
        for_a_while(&mut scene, Duration::from_secs(40)).await;
        one.store.once(Call::Next, Fault::Refuse);
        Running::cut(&one.broker, &BROKER_CALLS);
        for_a_while(&mut scene, LEASE * 3).await;
        assert_eq!(scene.owned().await, [64], "only the other one serves it");
        assert!(one.stop().await.clean);
        scene.drained(Duration::from_secs(10)).await;
        assert!(two.stop().await.clean);
        scene.judge();
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_under_the_same_name_orphans_nothing() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 4);
        let one = scene.start_with(|builder| builder.name("same"));
        for_a_while(&mut scene, Duration::from_secs(2)).await;
        one.kill().await;
        let again = scene.start_with(|builder| builder.name("same"));
        for_a_while(&mut scene, LEASE * 2).await;
        scene.drained(Duration::from_secs(5)).await;
        again.stop().await;
        scene.judge();
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_bound_allows_waits_and_is_found_by_who_comes() {
    let mut scene = Scene::new(MemoryMode::Log, 5);
    let small = scene.start_with(|builder| builder.partitions_max(4));
    for_a_while(&mut scene, Duration::from_secs(20)).await;
    assert_eq!(scene.owned().await, [4]);
    let other = scene.start();
    scene.drained(Duration::from_secs(30)).await;
    let mut owned = scene.owned().await;
    owned.sort_unstable();
    assert_eq!(owned, [4, 60]);
    small.stop().await;
    other.stop().await;
    scene.judge();
}

/// One history: what happens to whom is drawn.
async fn history(mode: MemoryMode, seed: u64, time: Time) -> (usize, Vec<String>) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut scene = Scene::new(mode, seed);
    scene.time = time;
    let mut relays = vec![scene.start()];
    for _ in 0..random.random_range(4..12) {
        for_a_while(
            &mut scene,
            Duration::from_millis(random.random_range(10..9_000)),
        )
        .await;
        let at = random.random_range(0..relays.len().max(1));
        match random.random_range(0..10) {
            0..=2 if relays.len() < 4 => relays.push(scene.start()),
            3 if !relays.is_empty() => drop(tokio::spawn(relays.swap_remove(at).stop())),
            4 if !relays.is_empty() => relays.swap_remove(at).kill().await,
            5 if !relays.is_empty() => Running::cut(&relays[at].store, &STORE_CALLS),
            6 if !relays.is_empty() => Running::cut(&relays[at].broker, &BROKER_CALLS),
            7 if !relays.is_empty() && time.steps => {
                let seconds = random.random_range(0..2_000);
                relays[at].set_forth.store(seconds, Relaxed);
            }
            // A lane breaks with other batches on their way.
            8 if !relays.is_empty() => relays[at].broker.once(Call::Submit, Fault::Refuse),
            _ => relays.iter().for_each(Running::heal),
        }
    }
    relays.iter().for_each(Running::heal);
    relays.push(scene.start());
    // Who waits for a moment waits for long when its clock was set back.
    let set_back = Duration::from_secs(if time.steps { 2_000 } else { 0 });
    scene.drained(LEASE * 20 + set_back).await;
    // A late repeat would come now.
    tokio::time::sleep(NETWORK).await;
    let judged = scene.judged();
    for relay in relays {
        let name = relay.name.clone();
        let ended = tokio::time::timeout(Duration::from_secs(60), relay.stop()).await;
        assert!(ended.is_ok(), "{name} does not stop");
    }
    judged
}

/// Runs histories; answers the seeds of those whose faults count.
fn histories(time: Time, seeds: u64, counts: impl Fn(&str) -> bool) -> Vec<u64> {
    let first: u64 = std::env::var("POSTHASTE_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    let (mut all_repeats, mut failed) = (0, Vec::new());
    for seed in first..first + seeds {
        for mode in MODES {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            let history =
                std::panic::AssertUnwindSafe(|| runtime.block_on(history(mode, seed, time)));
            let (repeats, faults) = std::panic::catch_unwind(history)
                .unwrap_or_else(|_| (0, vec!["liveness: it panicked".to_owned()]));
            all_repeats += repeats;
            let faults: Vec<String> = faults.into_iter().filter(|fault| counts(fault)).collect();
            if !faults.is_empty() {
                println!("POSTHASTE_TEST_SEED={seed} {mode:?} {time:?}: {faults:?}");
                failed.push(seed);
            }
        }
    }
    println!("{} histories, {all_repeats} repeats, {time:?}", 2 * seeds);
    failed
}

fn seeds() -> u64 {
    if long_form() { 2_000 } else { 12 }
}

#[test]
fn random_histories_keep_order_and_lose_nothing() {
    assert_eq!(histories(Time::default(), seeds(), |_| true), [0; 0]);
}

#[test]
fn clocks_that_drift_by_one_percent_change_nothing() {
    let time = Time {
        drift: 0.01,
        ..Time::default()
    };
    assert_eq!(histories(time, seeds(), |_| true), [0; 0]);
}

#[test]
fn clocks_that_are_set_shuffle_repeats_at_the_most() {
    let time = Time {
        steps: true,
        ..Time::default()
    };
    let counts = |fault: &str| !fault.starts_with("replay");
    assert_eq!(histories(time, seeds(), counts), [0; 0]);
}

/// The histories can fail: they do when nobody waits for the bytes of a lane that is gone.
#[test]
fn without_a_settle_time_a_late_repeat_is_found() {
    let time = Time {
        settle: Duration::ZERO,
        ..Time::default()
    };
    let found = histories(time, 20, |fault| fault.starts_with("replay"));
    assert_ne!(found, [0; 0]);
}
