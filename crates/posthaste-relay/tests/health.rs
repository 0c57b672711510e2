//! Ready means making progress, and the log says why there is none. Time is tokio's and paused, so
//! that minutes pass at once.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use std::{
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use posthaste_engine::{
    Admin, Backoff, DeliveryPolicy, DestinationState, Moment, OnDead, Route, RouteAction,
    RouteMatch, Routes, Store,
};
use posthaste_relay::{
    Clock, Destination, DestinationHealth, Health, Relay, RelayBuilder, STANDSTILL, Summary,
    memory::{MemoryMode, MemorySink, MemorySinkFault, MemoryStore, NewEvent},
};
use posthaste_testkit::faulty::{Call, Fault, Faulty, Script};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};
use tracing::{Dispatch, subscriber::DefaultGuard};

const MODES: [MemoryMode; 2] = [MemoryMode::Log, MemoryMode::Mark];
/// Every call to a store that is away.
const AWAY: [Call; 8] = [
    Call::CheckStore,
    Call::Register,
    Call::Renew,
    Call::Claim,
    Call::Open,
    Call::Next,
    Call::Due,
    Call::Advance,
];

/// tokio's clock, which a test may pause.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment(Duration::from_secs(1_000) + self.0.elapsed())
    }

    fn wall_micros(&self) -> i64 {
        0
    }
}

/// A relay that runs, and its watcher.
struct Watched {
    health: Health,
    stop: oneshot::Sender<()>,
    relay: JoinHandle<Summary>,
}

impl Watched {
    fn start(store: impl Store + 'static, destinations: Vec<Destination>) -> Self {
        Self::start_with(store, destinations, |builder| builder)
    }

    fn start_with(
        store: impl Store + 'static,
        destinations: Vec<Destination>,
        change: impl FnOnce(RelayBuilder) -> RelayBuilder,
    ) -> Self {
        let mut builder = Relay::builder(Arc::new(store)).clock(clock());
        for destination in destinations {
            builder = builder.destination(destination);
        }
        let relay = change(builder).build().unwrap();
        let (stop, stopped) = oneshot::channel();
        Self {
            health: relay.health(),
            stop,
            relay: tokio::spawn(async { relay.run(async { drop(stopped.await) }).await.unwrap() }),
        }
    }

    fn destination(&self, name: &str) -> DestinationHealth {
        let mut all = self.health.destinations().into_iter();
        all.find(|destination| destination.name == name).unwrap()
    }

    fn is_ready(&self) -> bool {
        self.health.destinations().iter().all(|d| d.is_ready)
    }

    /// Ready at every second of three minutes.
    async fn stays_ready(&self) {
        for second in 0..180 {
            assert!(
                self.is_ready(),
                "at {second} s: {:?}",
                self.health.destinations()
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Ready for nearly half a minute, and not ready when a minute is over; then it stays so.
    async fn turns_red(&self, name: &str) {
        let began = Instant::now();
        while self.destination(name).is_ready {
            assert!(began.elapsed() < Duration::from_secs(60), "still ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(
            began.elapsed() > Duration::from_secs(28),
            "{:?}",
            began.elapsed()
        );
        for _ in 0..180 {
            assert!(!self.destination(name).is_ready);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn turns_green(&self) {
        let began = Instant::now();
        while !self.is_ready() {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{:?}",
                self.health.destinations()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn stop(self) -> Summary {
        self.stop.send(()).unwrap();
        self.relay.await.unwrap()
    }
}

/// The warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Write for Warnings {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Warnings {
    fn listen(&self) -> DefaultGuard {
        // With a single subscriber in the process, tracing asks the thread that comes to a line
        // first, and remembers for all that nobody listens there.
        static ANOTHER: LazyLock<Dispatch> =
            LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&ANOTHER);
        let warnings = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || warnings.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    fn say(&self, part: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().unwrap()).contains(part)
    }
}

fn clock() -> Arc<TokioClock> {
    Arc::new(TokioClock(Instant::now()))
}

fn emit(store: &MemoryStore, topic: &str, key: &str, payload: &str) {
    let mut transaction = store.begin();
    transaction.emit(NewEvent {
        topic: topic.into(),
        key: Some(key.into()),
        payload: Some(payload.into()),
        ..NewEvent::default()
    });
    transaction.commit().unwrap();
}

fn destination(name: &str, sink: &MemorySink) -> Destination {
    Destination::new(name, Arc::new(sink.clone()))
}

fn faulty(store: &MemoryStore) -> (Faulty<Arc<MemoryStore>>, Script) {
    let script = Script::default();
    (Faulty::new(Arc::new(store.clone()), script.clone()), script)
}

#[tokio::test(start_paused = true)]
async fn nothing_to_do_is_ready_whatever_the_polls_and_the_destination() {
    for mode in MODES {
        for away in [false, true] {
            let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
            if away {
                sink.set_fault(MemorySinkFault::Away);
            }
            let slow = Duration::from_secs(100);
            let relay = Watched::start_with(store, vec![destination("d", &sink)], |builder| {
                builder.poll_idle(slow)
            });
            relay.stays_ready().await;
            let counted = relay.destination("d").counted;
            assert_eq!(counted.last_error.is_some(), away);
            assert!(relay.health.lease_left() > Duration::from_secs(5));
            relay.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_stands_turns_red_within_a_minute_and_green_when_it_moves() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        emit(&store, "t", "k", "delivered");
        let relay = Watched::start(store.clone(), vec![destination("d", &sink)]);
        relay.stays_ready().await;
        sink.set_fault(MemorySinkFault::Away);
        relay.stays_ready().await;
        emit(&store, "t", "k", "stands");
        relay.turns_red("d").await;
        let red = relay.destination("d");
        assert!(red.since_progress >= STANDSTILL);
        assert!(red.counted.last_error.is_some());
        sink.set_fault(MemorySinkFault::None);
        relay.turns_green().await;
        relay.stays_ready().await;
        assert!(relay.stop().await.clean);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_stands_is_named_and_others_are_ready() {
    for mode in MODES {
        let store = MemoryStore::new(mode);
        let (there, away) = (MemorySink::new(), MemorySink::new());
        away.set_fault(MemorySinkFault::Away);
        let both = vec![destination("there", &there), destination("away", &away)];
        let relay = Watched::start(store.clone(), both);
        emit(&store, "t", "k", "1");
        relay.turns_red("away").await;
        assert!(relay.destination("there").is_ready);
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn events_for_others_are_no_backlog() {
    for mode in MODES {
        let store = MemoryStore::new(mode);
        let (there, away) = (MemorySink::new(), MemorySink::new());
        away.set_fault(MemorySinkFault::Away);
        let both = vec![destination("there", &there), destination("away", &away)];
        let routes = Routes::new(vec![Route {
            matches: RouteMatch::default(),
            action: RouteAction::To(vec!["there".into()]),
            attempts: None,
            on_dead: None,
        }])
        .unwrap();
        let relay = Watched::start_with(store.clone(), both, |builder| builder.routes(routes));
        relay.stays_ready().await;
        for n in 0..3_000 {
            emit(&store, "t", "k", &n.to_string());
        }
        relay.stays_ready().await;
        assert_eq!(there.accepted().len(), 3_000);
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_or_silent_is_not_ready_since_nothing_can_be_known() {
    for fault in [Fault::Refuse, Fault::Hold] {
        let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
        let (faulty, script) = faulty(&store);
        let relay = Watched::start(faulty, vec![destination("d", &sink)]);
        relay.stays_ready().await;
        for call in AWAY {
            script.always(call, fault);
        }
        relay.turns_red("d").await;
        assert_eq!(relay.health.lease_left(), Duration::ZERO);
        if fault == Fault::Refuse {
            let counted = relay.destination("d").counted;
            assert_eq!(counted.breaker, "waiting");
            assert!(
                counted
                    .last_error
                    .unwrap()
                    .contains("a fault of the script")
            );
        }
        script.heal();
        script.release();
        relay.turns_green().await;
        relay.stays_ready().await;
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_never_answers_is_no_rest() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let (faulty, script) = faulty(&store);
    let relay = Watched::start(faulty, vec![destination("d", &sink)]);
    relay.stays_ready().await;
    script.always(Call::Next, Fault::Hold);
    relay.turns_red("d").await;
    script.heal();
    script.release();
    relay.turns_green().await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_store_at_the_start_is_no_progress() {
    for call in [Call::CheckStore, Call::Register, Call::Claim] {
        let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
        let (faulty, script) = faulty(&store);
        script.always(call, Fault::Refuse);
        let relay = Watched::start(faulty, vec![destination("d", &sink)]);
        relay.turns_red("d").await;
        assert!(relay.destination("d").counted.last_error.is_some());
        script.heal();
        relay.turns_green().await;
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn progress_that_cannot_be_stored_is_none() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let (faulty, script) = faulty(&store);
    let relay = Watched::start(faulty, vec![destination("d", &sink)]);
    relay.stays_ready().await;
    for fault in [Fault::Silent, Fault::Refuse] {
        script.always(Call::Advance, fault);
        emit(&store, "t", "k", "1");
        relay.turns_red("d").await;
        script.heal();
        relay.turns_green().await;
    }
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_a_reason_to_stand_still() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        let relay = Watched::start(store.clone(), vec![destination("d", &sink)]);
        relay.stays_ready().await;
        assert!(
            store
                .set_destination("d", DestinationState::Paused)
                .await
                .unwrap()
        );
        tokio::time::sleep(Duration::from_secs(20)).await;
        emit(&store, "t", "k", "1");
        relay.stays_ready().await;
        assert!(sink.accepted().is_empty());
        sink.set_fault(MemorySinkFault::Away);
        store
            .set_destination("d", DestinationState::Active)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!relay.is_ready(), "the pause is over");
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_known_to_last_while_the_store_says_so() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let (faulty, script) = faulty(&store);
    sink.set_fault(MemorySinkFault::Away);
    let relay = Watched::start(faulty, vec![destination("d", &sink)]);
    emit(&store, "t", "k", "read, and not sent");
    relay.turns_red("d").await;
    let paused = store.set_destination("d", DestinationState::Paused).await;
    assert!(paused.unwrap());
    relay.turns_green().await;
    relay.stays_ready().await;
    for call in AWAY {
        script.always(call, Fault::Hold);
    }
    // The lease that told of the pause lasts a while.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!relay.is_ready());
    script.heal();
    script.release();
    relay.turns_green().await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_stands_by_is_ready() {
    let store = MemoryStore::new(MemoryMode::Log);
    let sink = MemorySink::new().with_single_lane();
    let holder = Watched::start(store.clone(), vec![destination("d", &sink)]);
    holder.stays_ready().await;
    let other = Watched::start(store.clone(), vec![destination("d", &sink)]);
    other.stays_ready().await;
    assert_eq!(other.destination("d").counted.breaker, "waiting");
    // The one that holds it knows; the one that stands by has no part in it.
    sink.set_fault(MemorySinkFault::Away);
    emit(&store, "t", "k", "1");
    holder.turns_red("d").await;
    assert!(other.is_ready());
    holder.stop().await;
    other.turns_red("d").await;
    other.stop().await;
}

/// A relay repeats each of the two only every ten seconds, and neither hides the other.
#[tokio::test(start_paused = true)]
async fn a_relay_that_stands_by_says_at_once_why_it_cannot_ask() {
    let warnings = Warnings::default();
    let _listening = warnings.listen();
    let store = MemoryStore::new(MemoryMode::Log);
    let sink = MemorySink::new().with_single_lane();
    let holder = Watched::start(store.clone(), vec![destination("d", &sink)]);
    holder.stays_ready().await;
    let (faulty, script) = faulty(&store);
    let other = Watched::start(faulty, vec![destination("d", &sink)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(warnings.say("standing by"));
    script.always(Call::Shares, Fault::Refuse);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(warnings.say("a fault of the script"));
    holder.stop().await;
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_blocked_behind_a_dead_event_are_no_standing_still() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        sink.set_fault(MemorySinkFault::RejectKey("bad".into()));
        let second = Duration::from_secs(1);
        let quick = destination("d", &sink)
            .retry(Backoff {
                first: second,
                max: second,
                jitter: 0.0,
            })
            .policy(DeliveryPolicy {
                attempts: Some(2),
                on_dead: OnDead::Block,
            });
        let relay = Watched::start(store.clone(), vec![quick]);
        for payload in ["good", "bad", "bad"] {
            emit(&store, "t", payload, payload);
        }
        relay.stays_ready().await;
        emit(&store, "t", "bad", "behind");
        relay.stays_ready().await;
        let counted = relay.destination("d").counted;
        assert_eq!((counted.blocked_keys, counted.parked), (1, 1));
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_has_drained_is_ready_while_others_go_on() {
    let store = MemoryStore::new(MemoryMode::Log);
    let (there, away) = (MemorySink::new(), MemorySink::new());
    away.set_fault(MemorySinkFault::Away);
    emit(&store, "t", "k", "1");
    let both = vec![destination("there", &there), destination("away", &away)];
    let relay = Watched::start_with(store, both, |builder| builder.until_drained(true));
    relay.turns_red("away").await;
    assert!(relay.destination("there").is_ready);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_takes_nothing_is_told_of_until_it_returns() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        sink.set_fault(MemorySinkFault::FullTopic("full".to_owned()));
        let relay = Watched::start(store.clone(), vec![destination("d", &sink)]);
        emit(&store, "full", "a", "1");
        emit(&store, "other", "b", "2");
        tokio::time::sleep(Duration::from_secs(20)).await;
        let counted = relay.destination("d").counted;
        let [place] = &counted.places[..] else {
            panic!("{counted:?}");
        };
        assert_eq!((counted.places_held, counted.accepted), (1, 1));
        let told = (&*place.name, &*place.reason);
        assert_eq!(told, ("full", "the queue is full"));
        assert!(place.held_for > Duration::from_secs(15), "{place:?}");
        assert_eq!((place.in_memory, place.set_aside), (1, 0));
        // The store is told with each renewal.
        let told = store.status().await.unwrap().destinations.remove(0);
        assert_eq!(told.places_held, 1);
        assert_eq!(&*told.places[0].name, "full");
        assert!(told.places[0].held_for > Duration::from_secs(10));
        // It is known, too, when no event of it is left in memory.
        for minute in 1..5 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let told = store.status().await.unwrap().destinations.remove(0);
            let [place] = &told.places[..] else {
                panic!("{told:?}");
            };
            assert_eq!((place.in_memory, place.set_aside), (0, 1));
            assert!(
                place.held_for > Duration::from_secs(60) * minute,
                "{place:?}"
            );
        }
        sink.set_fault(MemorySinkFault::None);
        emit(&store, "full", "c", "3");
        // The longest wait of a copy, and its jitter.
        tokio::time::sleep(Duration::from_secs(400)).await;
        let counted = relay.destination("d").counted;
        assert_eq!((counted.places_held, counted.accepted), (0, 3));
        let told = store.status().await.unwrap().destinations.remove(0);
        assert_eq!(told.places, []);
        relay.stop().await;
    }
}
