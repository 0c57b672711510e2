//! How long the events of a partition wait while it changes hands, by the broker's clock.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use posthaste_testkit::long_form;
use tokio::task::JoinHandle;

use posthaste_torture::{
    brokers::{
        Broker, Brokered, Target,
        kafka::{Kafka, delivery},
    },
    database::{Database, Plan, Step, load_key},
    fixture::stop_in_order,
    fleet::Fleet,
    judge::judge,
    relay::until,
    source::Source,
};

/// Enough keys that each relay has some.
const KEYS: u32 = 16;
const EVERY: Duration = Duration::from_millis(25);
/// The default. An answer of the broker may take a third of it before its lane breaks, which
/// repeats: a second is not enough on a busy machine.
const LEASE: Duration = Duration::from_secs(15);
/// The default: a sixth of the lease.
const SETTLE: Duration = Duration::from_millis(2_500);
/// For the long form, which runs alone; beside other tests times say nothing.
const SLACK: Duration = Duration::from_secs(2);

/// Writes an event of each key, again and again, as a clock whose ticks can be missed.
struct Pacer {
    ticks: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    writing: JoinHandle<()>,
}

impl Pacer {
    async fn start(database: &Arc<dyn Database>) -> Self {
        let (ticks, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut writer = database.writer().await.unwrap();
        let (counted, stopped) = (Arc::clone(&ticks), Arc::clone(&stop));
        let writing = tokio::spawn(async move {
            let mut times = tokio::time::interval(EVERY);
            while !stopped.load(Relaxed) {
                times.tick().await;
                let steps = (0..KEYS).map(|key| Step::new(load_key(key), 1));
                let plan = Plan {
                    steps: steps.collect(),
                    ..Plan::default()
                };
                writer.transact(&plan).await.unwrap();
                counted.fetch_add(1, Relaxed);
            }
        });
        Self {
            ticks,
            stop,
            writing,
        }
    }

    fn ticks(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// So much is written after now.
    async fn passes(&self, ticks: u64) {
        let until_then = self.ticks() + ticks;
        until("further events", || self.ticks() >= until_then).await;
    }

    async fn stop(self) {
        self.stop.store(true, Relaxed);
        self.writing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_stop_repeats_nothing_and_a_take_over_keeps_its_time() {
    let kafka = Arc::new(Kafka::for_relays(2));
    let target: Arc<dyn Target> = Arc::new(Brokered(Arc::clone(&kafka)));
    let source = Arc::new(Source::postgres());
    let database = source.database();
    let mut fleet = Fleet::new(&source, &target, 2, &[]);
    fleet.start_all();
    fleet.is_balanced().await;
    let pacer = Pacer::start(&database).await;
    pacer.passes(20).await;

    let mut spans = Vec::new();
    let stops: &[usize] = if long_form() { &[0, 1, 0, 1] } else { &[0] };
    for &who in stops {
        let from = before(&pacer);
        stop_in_order(fleet.take(who));
        fleet.is_taken_over_from(&[who]).await;
        pacer.passes(20).await;
        spans.push(("planned stop", from..pacer.ticks()));
        fleet.start(who);
        fleet.is_balanced().await;
    }
    let stopped_until = pacer.ticks();
    // Far behind that is what a kill may repeat.
    pacer.passes(60).await;

    let from = before(&pacer);
    drop(fleet.take(1).kill9());
    let killed = Instant::now();
    fleet.is_taken_over_from(&[1]).await;
    println!("owned again {:?} after a kill", killed.elapsed());
    pacer.passes(20).await;
    spans.push(("kill", from..pacer.ticks()));
    fleet.start(1);
    fleet.is_balanced().await;

    let from = before(&pacer);
    fleet.running(0).pause();
    let stood = Instant::now();
    fleet.is_taken_over_from(&[0]).await;
    println!("owned again {:?} after a standstill", stood.elapsed());
    // The settle time is waited for before anything is sent.
    until("delivery of what waited", || {
        fleet.status()["pending"].as_u64() < Some(u64::from(KEYS) * 4)
    })
    .await;
    pacer.passes(20).await;
    spans.push(("standstill", from..pacer.ticks()));
    fleet.running(0).resume();
    fleet.is_balanced().await;
    pacer.stop().await;
    fleet.is_drained().await;
    fleet.stop_all();

    let report = judge(&*database, kafka.deliveries()).await;
    println!("{report}");
    let judged = (report.lost, report.phantom, report.out_of_order);
    assert_eq!(judged, (0, 0, 0), "{report}");
    let arrivals = Arrivals::read(&kafka);
    let repeats = arrivals.repeats_up_to(stopped_until);
    assert_eq!(repeats, 0, "a planned stop repeats nothing");
    for (what, ticks) in spans {
        let gap = arrivals.longest_gap(&ticks);
        println!("{what}: the events of a key waited {gap:?} at the most");
        let bound = match what {
            "planned stop" => Duration::from_millis(500),
            _ => LEASE * 11 / 10 + SETTLE,
        };
        if long_form() {
            assert!(gap <= bound + SLACK, "{what}: {gap:?}");
        }
    }
}

/// The events in flight, and a few more.
fn before(pacer: &Pacer) -> u64 {
    pacer.ticks().saturating_sub(20)
}

/// When the broker took what, in milliseconds by its clock.
struct Arrivals(HashMap<String, Vec<(u64, i64)>>);

impl Arrivals {
    fn read(kafka: &Kafka) -> Self {
        let mut arrivals: HashMap<_, Vec<_>> = HashMap::new();
        for message in kafka.messages() {
            let event = delivery(&message);
            let at = message.timestamp_ms.expect("the broker's time");
            arrivals.entry(event.key).or_default().push((event.n, at));
        }
        Self(arrivals)
    }

    /// Events that came more than once, of these up to a number of their keys.
    fn repeats_up_to(&self, n_max: u64) -> usize {
        let repeats = |events: &Vec<(u64, i64)>| {
            let mut numbers: Vec<u64> = events.iter().map(|(n, _)| *n).collect();
            numbers.retain(|&n| n <= n_max);
            let all = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            all - numbers.len()
        };
        self.0.values().map(repeats).sum()
    }

    /// Between two successive first arrivals of a key.
    fn longest_gap(&self, ticks: &std::ops::Range<u64>) -> Duration {
        let gap = |events: &Vec<(u64, i64)>| {
            let mut firsts: HashMap<u64, i64> = HashMap::new();
            for (n, at) in events {
                firsts.entry(*n).or_insert(*at);
            }
            let mut firsts: Vec<(u64, i64)> = firsts.into_iter().collect();
            firsts.retain(|(n, _)| ticks.contains(n));
            firsts.sort_unstable();
            let gaps = firsts.windows(2).map(|pair| pair[1].1 - pair[0].1);
            gaps.max().unwrap_or(0)
        };
        let longest = self.0.values().map(gap).max().expect("keys");
        Duration::from_millis(u64::try_from(longest).unwrap_or(0))
    }
}
