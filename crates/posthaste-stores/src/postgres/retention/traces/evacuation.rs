//! Evacuation beside an owner and operators that go on.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use posthaste_engine::{
    Admin, AfterFailure, Cursor, DeadAction, Due, Page, ParkedFilter, Parking, Settlement,
    StoredEvent,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::postgres::{evacuate::chunk, retention::script::StepOutcome};

const KEY: &str = "k";

/// Parked behind `event`, as dead or to be tried at once.
fn parking(page: &Page, event: &StoredEvent, retry_in: Option<Duration>) -> Parking {
    Parking {
        at: page.cursor_at(event),
        event: event.clone(),
        attempts: 1,
        kind: "invalid",
        reason: "refused".to_owned(),
        next: retry_in.map_or(AfterFailure::Dead, AfterFailure::RetryIn),
    }
}

impl Bench {
    /// Events of one key: the first is dead, the others are passed over and no transaction keeps
    /// the floors down.
    async fn blocked(&self, events: u32) -> Arc<dyn Claimed> {
        let claimed = self.open("default", Start::Oldest).await;
        self.emit(events);
        let page = claimed.next(ALL).await.unwrap();
        let head = parking(&page, &page.events[0], None);
        claimed.park(&[head]).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        let last = self.count("select max(seq) from posthaste.outbox");
        while self.count("select min(floor_min) from posthaste.cursors") < last {
            deliver(&claimed).await;
        }
        claimed
    }

    async fn chunk(&self) -> String {
        let client = self.store.housekeeping.client().await.unwrap();
        match chunk(&client, Some(self.relay)).await.unwrap() {
            StepOutcome::Done(copied) => copied.to_string(),
            StepOutcome::NothingDue => "kept".to_owned(),
            StepOutcome::InTheWay(what) => panic!("{what}"),
        }
    }

    fn copies(&self) -> u64 {
        self.count("select count(*) from posthaste.parked where evacuated")
    }
}

#[tokio::test]
async fn the_owner_settles_the_head_at_the_same_time() {
    let bench = Bench::new().await;
    let claimed = bench.blocked(5).await;
    let owner = bench.client().await;
    let settle = "begin; update posthaste.parked set state = 'delivered', settled_at = now()";
    owner.batch_execute(settle).await.unwrap();
    assert_eq!(bench.chunk().await, "kept", "it may not wait any longer");
    owner.batch_execute("commit").await.unwrap();
    assert_eq!(claimed.due(10).await.unwrap().released, [KEY]);
    assert_eq!(bench.chunk().await, "kept", "its side read may have begun");
    assert_eq!(bench.copies(), 0);
}

#[tokio::test]
async fn the_owner_moves_the_marker_at_the_same_time() {
    let bench = Bench::new().await;
    bench.blocked(5).await;
    let owner = bench.client().await;
    let moves = "begin; update posthaste.markers set since = now()";
    owner.batch_execute(moves).await.unwrap();
    assert_eq!(bench.chunk().await, "kept");
    owner.batch_execute("commit").await.unwrap();
    assert_eq!(bench.chunk().await, "4");
    assert_eq!(bench.chunk().await, "kept", "nothing is copied twice");
    let least = "select min(floor_min) from posthaste.markers";
    assert_eq!(bench.count(least), 5);
}

#[tokio::test]
async fn the_destination_is_being_removed() {
    let bench = Bench::new().await;
    bench.blocked(5).await;
    let operator = bench.client().await;
    operator
        .batch_execute("begin; select destination_id from posthaste.destination_locks for update")
        .await
        .unwrap();
    assert_eq!(bench.chunk().await, "kept");
    operator.batch_execute("commit").await.unwrap();
    assert_eq!(bench.chunk().await, "4");
}

#[tokio::test]
async fn the_relay_dies_between_two_chunks() {
    let bench = Bench::new().await;
    bench.blocked(2_500).await;
    assert_eq!(bench.chunk().await, "500");
    let copied = "select count(*) from posthaste.parked where evacuated and seq between 2 and 501";
    assert_eq!(bench.count(copied), 500);
    bench
        .database
        .psql("update posthaste.parked set state = 'delivered', due_at = null, settled_at = now()");
    let claimed = bench.open("default", Start::Oldest).await;
    let stands = claimed.next(ALL).await.unwrap();
    let mut side = claimed.side_read(&[KEY.into()]).await.unwrap();
    let mut rest = Vec::new();
    loop {
        let page = side.next(ALL, &stands.end).await.unwrap();
        rest.extend(page.events.iter().map(StoredEvent::seq));
        if page.caught_up {
            break;
        }
    }
    assert_eq!(rest, (502..=2_500).collect::<Vec<_>>());
}

/// Does with one key what an engine does, and draws its luck.
struct Model {
    bench: Bench,
    writer: Client,
    claimed: Arc<dyn Claimed>,
    luck: StdRng,
    blocked: bool,
    written: u64,
    delivered: Vec<u64>,
}

fn number(event: &StoredEvent) -> u64 {
    let payload = event.payload().unwrap();
    std::str::from_utf8(payload).unwrap().parse().unwrap()
}

impl Model {
    async fn write(&mut self) {
        for _ in 0..self.luck.random_range(1..5) {
            self.written += 1;
            let emit = format!("select posthaste.emit('t', '{}', '{KEY}')", self.written);
            self.writer.batch_execute(&emit).await.unwrap();
        }
    }

    /// Parks the event, now and then.
    async fn refuse(&mut self, page: &Page, event: &StoredEvent, odds: f64) -> bool {
        if !self.luck.random_bool(odds) {
            self.delivered.push(number(event));
            return false;
        }
        let retry_in = self.luck.random_bool(0.5).then_some(Duration::ZERO);
        let parked = parking(page, event, retry_in);
        self.claimed.park(&[parked]).await.unwrap();
        true
    }

    /// Up to a place where a side read can join.
    async fn read(&mut self, odds: f64) -> Cursor {
        loop {
            let page = self.claimed.next(ALL).await.unwrap();
            for event in &page.events {
                if !self.blocked {
                    self.blocked = self.refuse(&page, event, odds).await;
                }
            }
            self.claimed.advance(&page.end, &[]).await.unwrap();
            if page.caught_up && page.joinable {
                return page.end;
            }
        }
    }

    async fn retry(&mut self, odds: f64) -> Due {
        let due = self.claimed.due(10).await.unwrap();
        assert!(due.events.len() <= 1, "{due:?}");
        for copy in &due.events {
            let failed = self.luck.random_bool(odds);
            let settlement = if failed {
                Settlement::Failed {
                    kind: "invalid",
                    reason: "refused".to_owned(),
                    next: match self.luck.random_bool(0.5) {
                        true => AfterFailure::RetryIn(Duration::ZERO),
                        false => AfterFailure::Dead,
                    },
                }
            } else {
                self.delivered.push(number(&copy.event));
                Settlement::Delivered
            };
            self.claimed.settle(copy.id, &settlement).await.unwrap();
        }
        due
    }

    async fn side_read(&mut self, stands: &Cursor, odds: f64) {
        let mut side = self.claimed.side_read(&[KEY.into()]).await.unwrap();
        loop {
            let page = side.next(ALL, stands).await.unwrap();
            for event in &page.events {
                if self.refuse(&page, event, odds).await {
                    return;
                }
            }
            if !page.events.is_empty() {
                side.advance(&page.end, &[]).await.unwrap();
            }
            if page.caught_up {
                break;
            }
        }
        self.claimed.join(&[KEY.into()], stands).await.unwrap();
        self.blocked = false;
    }

    async fn round(&mut self, odds: f64) {
        let stands = self.read(odds).await;
        if !self.blocked {
            return;
        }
        let everything = ParkedFilter::default();
        let retry = self.bench.store.act(&everything, DeadAction::Retry);
        retry.await.unwrap();
        let due = self.retry(odds).await;
        if !due.released.is_empty() {
            self.side_read(&stands, odds).await;
        }
        if self.luck.random_bool(0.1) {
            self.claimed = self.bench.open("default", Start::Oldest).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_goes_on_while_its_key_is_evacuated() {
    let bench = Bench::new().await;
    let claimed = bench.open("default", Start::Oldest).await;
    let keeper = PostgresStore::new(&bench.database.url()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let housekeeping = tokio::spawn(async move {
        let mut all = Housekeeping::default();
        while !stopped.load(Relaxed) {
            all.add(keeper.housekeep(None).await.unwrap());
        }
        all
    });
    let mut model = Model {
        writer: bench.client().await,
        bench,
        claimed,
        luck: StdRng::seed_from_u64(20_261_122),
        blocked: false,
        written: 0,
        delivered: Vec::new(),
    };
    for _ in 0..150 {
        model.write().await;
        model.round(0.3).await;
    }
    while (model.delivered.len() as u64) < model.written {
        model.round(0.0).await;
    }
    stop.store(true, Relaxed);
    let done = housekeeping.await.unwrap();
    let all: Vec<u64> = (1..=model.written).collect();
    assert_eq!(model.delivered, all, "each once, in order");
    assert_eq!(model.bench.copies(), done.evacuated);
    assert!(done.evacuated > 0, "{done:?}");
}
