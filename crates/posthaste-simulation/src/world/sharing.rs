//! Relays share a destination while nothing fails but what a test does: how shares move, and how
//! long a key waits.

use std::sync::Mutex;

use posthaste_testkit::faulty::Call;

use super::*;
use crate::{checkers::Checker, process::SETTLE, seed::Time, seen::At, writers::KEYS};

/// Store in memory: with a cursor, and with marks.
const MODES: [u64; 2] = [0, 1];
/// The writer emits an event of each key so often.
const EVERY: Duration = Duration::from_millis(250);

/// When each delivery came, with its key.
type Deliveries = Arc<Mutex<Vec<(At, Arc<str>)>>>;

/// Notes deliveries, and finds nothing wrong with them.
struct Recorder(Deliveries);

impl Checker for Recorder {
    fn see(&mut self, at: At, seen: &Seen, _: &mut Vec<String>) {
        if let Seen::Delivered { key: Some(key), .. } = seen {
            self.0.lock().unwrap().push((at, Arc::clone(key)));
        }
    }
}

/// A world in which nothing is drawn to fail.
struct Calm {
    world: World,
    deliveries: Deliveries,
    began: Instant,
    /// Events that were written.
    written: usize,
}

impl Calm {
    fn new(number: u64) -> Self {
        let world = World::new(Seed {
            emphasis: Emphasis::Sharing,
            time: Time::Right,
            ..Seed::new(number)
        });
        world.trace.be_quiet(true);
        world.brokers[0].be_content();
        let deliveries = Deliveries::default();
        world.trace.watch(Recorder(Arc::clone(&deliveries)));
        Self {
            world,
            deliveries,
            began: Instant::now(),
            written: 0,
        }
    }

    fn start(&mut self, relays: usize) {
        (0..relays).for_each(|_| self.world.start());
    }

    async fn write(&mut self, time: Duration) {
        self.world.business.write_calmly(time).await;
        let rounds = time.as_millis() / EVERY.as_millis();
        self.written += usize::try_from(rounds).unwrap() * usize::try_from(KEYS).unwrap();
    }

    async fn write_seconds(&mut self, seconds: u64) {
        self.write(Duration::from_secs(seconds)).await;
    }

    /// How many partitions each member owns, ascending.
    async fn owned(&self) -> Vec<u16> {
        let shares = self.world.database.store().shares("d0").await.unwrap();
        let mut owned: Vec<u16> = shares.members.iter().map(|member| member.owned).collect();
        owned.sort_unstable();
        owned
    }

    async fn drained(&self, limit: Duration) {
        let began = Instant::now();
        while self.world.trace.owed() > 0 {
            assert!(began.elapsed() < limit, "not drained within {limit:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops this relay in order.
    async fn stop(&mut self, at: usize) {
        let mut process = self.world.processes.remove(at);
        process.ask_to_stop();
        assert_eq!(process.ended(&self.world.trace).await, Some(true));
    }

    /// Longest time without a delivery of a key, over all keys.
    fn longest_gap(&self, since: Instant) -> Duration {
        let since = since - self.began;
        let (mut last, mut longest) = (BTreeMap::new(), Duration::ZERO);
        for (at, key) in self.deliveries.lock().unwrap().iter() {
            if *at >= since
                && let Some(before) = last.insert(Arc::clone(key), *at)
            {
                longest = longest.max(*at - before);
            }
        }
        longest
    }

    /// Stops all, and has the run judged. Answers how many deliveries were repeats.
    async fn judge(mut self) -> usize {
        self.drained(Duration::from_secs(10)).await;
        // A late repeat would come now.
        tokio::time::sleep(NETWORK).await;
        self.world.close().await;
        assert_eq!(self.world.outcome().violations, [""; 0]);
        self.deliveries.lock().unwrap().len() - self.written
    }
}

#[tokio::test(start_paused = true)]
async fn relays_come_and_go_and_nothing_is_repeated() {
    for mode in MODES {
        let mut calm = Calm::new(2 + mode);
        calm.start(1);
        calm.write_seconds(2).await;
        calm.start(1);
        calm.write_seconds(30).await;
        assert_eq!(calm.owned().await, [32, 32], "the shares become equal");
        calm.start(1);
        calm.write_seconds(30).await;
        assert_eq!(calm.owned().await, [21, 21, 22]);
        calm.stop(1).await;
        calm.write_seconds(5).await;
        assert_eq!(calm.owned().await, [32, 32]);
        calm.stop(0).await;
        calm.write_seconds(5).await;
        calm.drained(Duration::from_secs(5)).await;
        calm.stop(0).await;
        let repeats = calm.judge().await;
        assert_eq!(repeats, 0, "a planned move or stop repeats nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_planned_stop_leaves_half_a_second_and_a_death_a_lease_and_a_settle_time() {
    for mode in MODES {
        let mut calm = Calm::new(4 + mode);
        calm.start(3);
        calm.write_seconds(60).await;
        let began = Instant::now();
        let mut stopping = calm.world.processes.remove(0);
        stopping.ask_to_stop();
        calm.write_seconds(10).await;
        assert_eq!(stopping.ended(&calm.world.trace).await, Some(true));
        // The network takes its time, and the successor finishes first what it has in flight there.
        let between = EVERY + NETWORK * 2;
        let gap = calm.longest_gap(began);
        assert!(gap <= Duration::from_millis(500) + between, "{gap:?}");
        let began = Instant::now();
        calm.world.processes.remove(0).kill(&calm.world.trace);
        calm.write_seconds(20).await;
        let gap = calm.longest_gap(began);
        let bound = LEASE.mul_f64(1.1) + SETTLE + between + Duration::from_millis(100);
        assert!(gap <= bound, "{gap:?}");
        calm.judge().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_reach_the_broker_leaves_it_to_those_who_do() {
    for mode in MODES {
        let mut calm = Calm::new(6 + mode);
        calm.start(2);
        calm.write_seconds(40).await;
        calm.world.processes[0].cut_from_broker(true);
        calm.write(LEASE * 3).await;
        calm.drained(Duration::from_secs(10)).await;
        assert_eq!(calm.owned().await, [64], "only the other one serves it");
        // It asks again later, and may have its share when it reaches the broker.
        calm.world.processes[0].cut_from_broker(false);
        calm.write_seconds(60).await;
        assert_eq!(calm.owned().await, [32, 32]);
        calm.judge().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_left_its_share_to_others_stops_in_order_whatever_failed_before() {
    for mode in MODES {
        let mut calm = Calm::new(8 + mode);
        calm.start(2);
        calm.write_seconds(40).await;
        calm.world.processes[0].refuse_once(Call::Next);
        calm.world.processes[0].cut_from_broker(true);
        calm.write(LEASE * 3).await;
        assert_eq!(calm.owned().await, [64], "only the other one serves it");
        calm.stop(0).await;
        calm.drained(Duration::from_secs(10)).await;
        calm.stop(0).await;
        calm.judge().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_under_the_same_name_orphans_nothing() {
    for mode in MODES {
        let mut calm = Calm::new(10 + mode);
        calm.world.start_with(|builder| builder.name("same"));
        calm.write_seconds(2).await;
        calm.world.processes.remove(0).kill(&calm.world.trace);
        calm.world.start_with(|builder| builder.name("same"));
        calm.write(LEASE * 2).await;
        calm.drained(Duration::from_secs(5)).await;
        calm.judge().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_bound_allows_waits_and_is_found_by_who_comes() {
    let mut calm = Calm::new(12);
    calm.world.start_with(|builder| builder.partitions_max(4));
    calm.write_seconds(20).await;
    assert_eq!(calm.owned().await, [4]);
    calm.start(1);
    calm.drained(Duration::from_secs(30)).await;
    assert_eq!(calm.owned().await, [4, 60]);
    calm.judge().await;
}
