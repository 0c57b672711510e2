//! The relay over the memory store and sink, in both ways of recording progress. Time is tokio's
//! and paused, so that minutes pass at once.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use posthaste_engine::{
    Admin, Backoff, ClaimOutcome, ClaimRequest, DeadAction, DeliveryPolicy, DestinationState,
    DestinationStatus, HostIdentity, Leases, Moment, OnDead, Ownership, ParkedEvent, ParkedFilter,
    ParkedState, Record, Registered, Registration, Start, Want,
};
use posthaste_relay::{
    Clock, Destination, Relay, RelayBuilder, Summary,
    memory::{MemoryMode, MemorySink, MemorySinkFault, MemoryStore, NewEvent},
};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

const MODES: [MemoryMode; 2] = [MemoryMode::Log, MemoryMode::Mark];

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

fn emit(store: &MemoryStore, key: &str, payload: &str) {
    emit_to(store, "orders", key, payload);
}

fn emit_to(store: &MemoryStore, topic: &str, key: &str, payload: &str) {
    let mut transaction = store.begin();
    transaction.emit(NewEvent {
        topic: topic.into(),
        key: Some(key.into()),
        payload: Some(payload.into()),
        ..NewEvent::default()
    });
    transaction.commit().unwrap();
}

fn emit_many(store: &MemoryStore, range: std::ops::Range<u32>) {
    for n in range {
        emit(store, &format!("k{}", n % 7), &n.to_string());
    }
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn payload(record: &Record) -> String {
    String::from_utf8(record.value().unwrap().to_vec()).unwrap()
}

fn payloads(sink: &MemorySink) -> Vec<String> {
    sink.accepted().iter().map(payload).collect()
}

fn payloads_of_key(sink: &MemorySink, key: &str) -> Vec<String> {
    sink.accepted()
        .iter()
        .filter(|r| r.key() == Some(key.as_bytes()))
        .map(payload)
        .collect()
}

fn relay_to(store: &MemoryStore, destination: Destination) -> RelayBuilder {
    Relay::builder(Arc::new(store.clone()))
        .clock(Arc::new(TokioClock(Instant::now())))
        .destination(destination)
}

fn destination(sink: &MemorySink) -> Destination {
    Destination::new("default", Arc::new(sink.clone()))
}

fn relay(store: &MemoryStore, sink: &MemorySink) -> RelayBuilder {
    relay_to(store, destination(sink))
}

/// Three attempts, a second apart.
fn quick(sink: &MemorySink, on_dead: OnDead) -> Destination {
    let second = Duration::from_secs(1);
    destination(sink)
        .retry(Backoff {
            first: second,
            max: second,
            jitter: 0.0,
        })
        .policy(DeliveryPolicy {
            attempts: Some(3),
            on_dead,
        })
}

struct Running {
    stop: oneshot::Sender<()>,
    relay: JoinHandle<Summary>,
}

impl Running {
    fn start(builder: RelayBuilder) -> Self {
        let (stop, stopped) = oneshot::channel();
        let relay = builder.build().unwrap();
        let shutdown = async { drop(stopped.await) };
        Self {
            stop,
            relay: tokio::spawn(async { relay.run(shutdown).await.unwrap() }),
        }
    }

    async fn stop(self) -> Summary {
        self.stop.send(()).unwrap();
        self.relay.await.unwrap()
    }
}

async fn drained(builder: RelayBuilder) -> Summary {
    let relay = builder.until_drained(true).build().unwrap();
    let limit = Duration::from_secs(600);
    tokio::time::timeout(limit, relay.run(std::future::pending()))
        .await
        .unwrap()
        .unwrap()
}

/// Virtual seconds.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), wait)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

async fn status(store: &MemoryStore) -> DestinationStatus {
    store.status().await.unwrap().destinations.remove(0)
}

async fn parked(store: &MemoryStore, state: Option<ParkedState>) -> Vec<ParkedEvent> {
    store
        .parked(
            &ParkedFilter {
                state,
                ..ParkedFilter::default()
            },
            10,
        )
        .await
        .unwrap()
}

async fn act(store: &MemoryStore, action: DeadAction) -> u64 {
    store.act(&ParkedFilter::default(), action).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn everything_is_delivered_in_order_and_a_second_run_repeats_nothing() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        emit_many(&store, 0..5_000);
        let summary = drained(relay(&store, &sink)).await;
        assert!(summary.drained && summary.clean);
        assert_eq!(payloads(&sink), numbers(0..5_000));
        emit_many(&store, 5_000..5_001);
        drained(relay(&store, &sink)).await;
        assert_eq!(sink.accepted().len(), 5_001);
        assert_eq!(status(&store).await.pending, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_planned_stop_in_mid_flow_repeats_nothing() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        for round in 0..20 {
            emit_many(&store, round * 500..(round + 1) * 500);
            let builder = relay(&store, &sink).batch(50, 1 << 20).window(200, 1 << 20);
            let running = Running::start(builder);
            let goal = 300 * (round as usize + 1);
            until("some are delivered", || sink.accepted().len() >= goal).await;
            assert!(running.stop().await.clean);
        }
        drained(relay(&store, &sink)).await;
        assert_eq!(payloads(&sink), numbers(0..10_000));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_parks_nothing_and_delivery_resumes_within_seconds() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        sink.set_fault(MemorySinkFault::Away);
        emit_many(&store, 0..300);
        let running = Running::start(relay(&store, &sink));
        pass(60).await;
        assert_eq!(sink.accepted().len(), 0);
        assert_eq!(status(&store).await.breaker, "open");
        assert!(status(&store).await.last_error.is_some());
        sink.set_fault(MemorySinkFault::None);
        let healed = Instant::now();
        until("delivery resumes", || sink.accepted().len() == 300).await;
        assert!(
            healed.elapsed() < Duration::from_secs(8),
            "{:?}",
            healed.elapsed()
        );
        assert!(running.stop().await.clean);
        let status = status(&store).await;
        assert_eq!(
            (status.pending, status.parked, &*status.breaker),
            (0, 0, "closed")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_poison_event_blocks_its_key_alone_and_is_released_in_order() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        let poison = "x".repeat(101);
        sink.set_fault(MemorySinkFault::RejectLarger(100));
        emit(&store, "bad", "first");
        emit(&store, "bad", &poison);
        for n in 0..50 {
            emit(&store, "bad", &format!("behind {n}"));
            emit(&store, "good", &n.to_string());
        }
        let running = Running::start(relay_to(&store, quick(&sink, OnDead::Block)));
        until("the good key is delivered", || sink.accepted().len() == 51).await;
        pass(30).await;
        let waiting = parked(&store, None).await;
        assert_eq!(waiting.len(), 1, "followers are not copied");
        assert_eq!(
            (waiting[0].state, waiting[0].attempts),
            (ParkedState::Dead, 3)
        );
        let before = status(&store).await;
        assert_eq!(
            (before.dead, before.blocked_keys, before.pending),
            (1, 1, 50)
        );
        emit(&store, "bad", "later");
        sink.set_fault(MemorySinkFault::None);
        pass(30).await;
        assert_eq!(
            sink.accepted().len(),
            51,
            "a dead event waits for an operator"
        );
        assert_eq!(act(&store, DeadAction::Retry).await, 1);
        until("the key is released", || sink.accepted().len() == 103).await;
        emit(&store, "bad", "last");
        until("the key is the main group's again", || {
            sink.accepted().len() == 104
        })
        .await;
        let mut expected = vec!["first".to_owned(), poison];
        expected.extend((0..50).map(|n| format!("behind {n}")));
        expected.extend(["later".to_owned(), "last".to_owned()]);
        assert_eq!(payloads_of_key(&sink, "bad"), expected);
        assert!(running.stop().await.clean);
        let after = status(&store).await;
        assert_eq!((after.dead, after.blocked_keys, after.pending), (0, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_poison_event_behind_the_first_moves_the_block() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        sink.set_fault(MemorySinkFault::RejectLarger(10));
        for payload in ["a", "first too large", "b", "second too large", "c"] {
            emit(&store, "k", payload);
        }
        let running = Running::start(relay_to(&store, quick(&sink, OnDead::Block)));
        pass(20).await;
        assert_eq!(parked(&store, Some(ParkedState::Dead)).await.len(), 1);
        assert_eq!(act(&store, DeadAction::Skip).await, 1);
        pass(20).await;
        assert_eq!(payloads(&sink), ["a", "b"]);
        assert_eq!(parked(&store, Some(ParkedState::Dead)).await.len(), 1);
        assert_eq!(act(&store, DeadAction::Discard).await, 1);
        until("the rest is delivered", || sink.accepted().len() == 3).await;
        assert_eq!(payloads(&sink), ["a", "b", "c"]);
        assert!(running.stop().await.clean);
        let discarded = parked(&store, Some(ParkedState::Discarded)).await;
        assert_eq!(discarded[0].event.payload(), None);
    }
}

/// Time is virtual: what passes is what the relay waits for by itself.
#[tokio::test(start_paused = true)]
async fn released_keys_do_not_wait_for_the_idle_poll_one_by_one() {
    // Few enough not to look like a destination that rejects everything.
    const KEYS: usize = 20;
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        sink.set_fault(MemorySinkFault::RejectLarger(10));
        for n in 0..KEYS {
            emit(&store, &format!("k{n}"), "too large to take");
            emit(&store, &format!("k{n}"), "behind");
        }
        let running = Running::start(relay_to(&store, quick(&sink, OnDead::Block)));
        pass(30).await;
        assert_eq!(status(&store).await.blocked_keys, KEYS as u64);
        assert_eq!(act(&store, DeadAction::Skip).await, KEYS as u64);
        let released = Instant::now();
        until("all are delivered", || sink.accepted().len() == KEYS).await;
        assert!(
            released.elapsed() < Duration::from_secs(8),
            "{:?}",
            released.elapsed()
        );
        assert!(running.stop().await.clean);
        assert_eq!(status(&store).await.blocked_keys, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_planned_stop_in_the_middle_of_a_release_repeats_nothing() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        sink.set_fault(MemorySinkFault::RejectLarger(10));
        emit(&store, "k", "too large to take");
        for n in 0..1_000 {
            emit(&store, "k", &n.to_string());
        }
        let builder = || relay_to(&store, quick(&sink, OnDead::Block)).batch(7, 1 << 20);
        let running = Running::start(builder());
        pass(20).await;
        assert!(running.stop().await.clean);
        assert_eq!(act(&store, DeadAction::Skip).await, 1);
        let mut rounds = 0;
        while sink.accepted().len() < 1_000 {
            let (running, before) = (Running::start(builder()), sink.accepted().len());
            // No sleep: virtual time stands still while the release is under way.
            while sink.accepted().len() == before {
                tokio::task::yield_now().await;
            }
            assert!(running.stop().await.clean);
            rounds += 1;
        }
        assert!(rounds > 3, "the release was stopped in its middle");
        drained(builder()).await;
        assert_eq!(payloads(&sink), numbers(0..1_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fenced_relay_registers_anew_and_goes_on() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let running = Running::start(relay(&store, &sink).name("ours"));
    emit_many(&store, 0..10);
    until("ten are delivered", || sink.accepted().len() == 10).await;
    let by = store.register(&registration("other")).await.unwrap();
    let ours = store.registration_of("ours").unwrap();
    store.fence(by, ours, "a test").await.unwrap();
    emit_many(&store, 10..20);
    until("the rest is delivered", || sink.accepted().len() == 20).await;
    assert_ne!(store.registration_of("ours"), Some(ours));
    assert!(running.stop().await.clean);
    assert_eq!(payloads(&sink), numbers(0..20));
}

fn registration(name: &str) -> Registration {
    Registration {
        name: name.into(),
        version: "0".into(),
        host: HostIdentity::default(),
        lease: Duration::from_secs(15),
    }
}

#[tokio::test(start_paused = true)]
async fn with_skip_the_key_goes_on_by_itself() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        sink.set_fault(MemorySinkFault::RejectLarger(10));
        for payload in ["a", "too large to take", "b", "c"] {
            emit(&store, "k", payload);
        }
        let running = Running::start(relay_to(&store, quick(&sink, OnDead::Skip)));
        until("the key goes on", || sink.accepted().len() == 3).await;
        assert_eq!(payloads(&sink), ["a", "b", "c"]);
        assert!(running.stop().await.clean);
        assert_eq!(parked(&store, Some(ParkedState::Skipped)).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_destination_parks_a_bounded_number() {
    // The breaker knows nothing of stores: one will do.
    let (store, sink) = (MemoryStore::new(MODES[0]), MemorySink::new());
    sink.set_fault(MemorySinkFault::RejectLarger(0));
    for n in 0..6_000 {
        emit(&store, &format!("k{n}"), "x");
    }
    let running = Running::start(relay(&store, &sink));
    pass(50).await;
    let before = status(&store).await;
    assert_eq!(before.breaker, "open");
    assert!(
        (1_000..6_000).contains(&before.parked),
        "{} parked",
        before.parked
    );
    sink.set_fault(MemorySinkFault::None);
    until("all are delivered", || sink.accepted().len() == 6_000).await;
    assert!(running.stop().await.clean);
    assert_eq!(status(&store).await.pending, 0);
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_database_repeats_at_most_the_window() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        let running = Running::start(relay(&store, &sink).batch(10, 1 << 20).window(40, 1 << 20));
        for round in 0..20 {
            emit_many(&store, round * 100..(round + 1) * 100);
            let goal = round as usize * 100 + 30;
            until("some are delivered", || sink.accepted().len() >= goal).await;
            store.crash();
        }
        until("the rest is delivered", || {
            let mut ids: Vec<_> = sink.accepted().iter().map(|r| r.event().id()).collect();
            ids.sort_unstable();
            ids.dedup();
            ids.len() == 2_000
        })
        .await;
        running.stop().await;
        assert!(
            sink.accepted().len() <= 2_000 + 20 * 40,
            "{}",
            sink.accepted().len()
        );
        for key in 0..7 {
            let mut seen = None;
            for n in payloads_of_key(&sink, &format!("k{key}")) {
                let n: u32 = n.parse().unwrap();
                let next = seen.map_or(key, |seen| seen + 7);
                assert!(n <= next, "key {key}: {n} before {next}");
                seen = seen.max(Some(n));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_relay_stands_by_and_takes_over() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let first = Running::start(relay(&store, &sink).name("first"));
    pass(1).await;
    assert_eq!(status(&store).await.relay.as_deref(), Some("first"));
    let second = Running::start(relay(&store, &sink).name("second"));
    pass(60).await;
    let both = Some("first, second");
    assert_eq!(status(&store).await.relay.as_deref(), both);
    assert!(first.stop().await.clean);
    pass(2).await;
    assert_eq!(status(&store).await.relay.as_deref(), Some("second"));
    emit_many(&store, 0..10);
    until("it delivers", || sink.accepted().len() == 10).await;
    assert!(second.stop().await.clean);
}

/// A rolling deploy with a changed address: events go to one broker at a time.
#[tokio::test(start_paused = true)]
async fn two_relays_do_not_split_an_outbox_between_two_addresses() {
    let store = MemoryStore::new(MemoryMode::Log);
    let (old, new) = (MemorySink::new(), MemorySink::new());
    let at = |sink: &MemorySink, address: &str, name: &str| {
        let destination = destination(sink).address(address);
        Running::start(relay_to(&store, destination).name(name))
    };
    let first = at(&old, "kafka://old", "first");
    pass(1).await;
    let second = at(&new, "kafka://new", "second");
    emit_many(&store, 0..100);
    pass(60).await;
    assert_eq!((old.accepted().len(), new.accepted().len()), (100, 0));
    let known = status(&store).await;
    assert_eq!(known.address, "kafka://old");
    assert_eq!(known.relay.as_deref(), Some("first"));
    let third = at(&old, "kafka://old", "third");
    assert!(first.stop().await.clean);
    emit_many(&store, 100..200);
    pass(60).await;
    assert_eq!((old.accepted().len(), new.accepted().len()), (200, 0));
    assert!(third.stop().await.clean);
    pass(2).await;
    emit_many(&store, 200..300);
    until("the new one is delivered to", || {
        new.accepted().len() == 100
    })
    .await;
    assert_eq!(status(&store).await.address, "kafka://new");
    let late = at(&old, "kafka://old", "late");
    pass(60).await;
    emit_many(&store, 300..400);
    until("it goes on", || new.accepted().len() == 200).await;
    assert!(late.stop().await.clean && second.stop().await.clean);
    assert_eq!(old.accepted().len(), 200);
}

#[tokio::test(start_paused = true)]
async fn another_kind_of_broker_ends_the_start_unless_it_is_meant() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let to = |address: &str| destination(&sink).address(address);
    drained(relay_to(&store, to("kafka://broker"))).await;
    let other = relay_to(&store, to("amqp://broker")).build().unwrap();
    let refused = other.run(std::future::pending()).await.unwrap_err();
    let said = refused.to_string();
    for part in ["`kafka://broker`", "`amqp://broker`", "--retarget"] {
        assert!(said.contains(part), "{said}");
    }
    emit_many(&store, 0..10);
    let summary = drained(relay_to(&store, to("amqp://broker").retarget())).await;
    assert!(summary.drained && summary.clean);
    assert_eq!(sink.accepted().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_refused_delays_no_other() {
    let store = MemoryStore::new(MemoryMode::Log);
    let (well, refused) = (MemorySink::new(), MemorySink::new());
    let other =
        |address: &str| Destination::new("other", Arc::new(refused.clone())).address(address);
    drained(relay_to(&store, other("kafka://broker"))).await;
    let running = Running::start(relay(&store, &well).destination(other("amqp://broker")));
    emit_many(&store, 0..10);
    until("one is delivered to", || well.accepted().len() == 10).await;
    pass(120).await;
    assert_eq!(refused.accepted().len(), 0);
    running.stop().await;
}

/// As after a fail-over to a standby server that brought back what the relay had given up.
#[tokio::test(start_paused = true)]
async fn a_standby_that_is_made_the_owner_behind_its_back_delivers() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let other = store.register(&registration("other")).await.unwrap();
    let all = ClaimRequest {
        destination: "default",
        address: "memory:",
        retarget: false,
        start: Start::Oldest,
        want: Want::All,
        partitions_max: u16::MAX,
        settle: Duration::ZERO,
        unsettled: Duration::ZERO,
    };
    store.claim(other, &all).await.unwrap();
    let running = Running::start(relay(&store, &sink).name("ours"));
    pass(1).await;
    let registration = store.registration_of("ours").unwrap();
    store.leave(other, Duration::ZERO).await.unwrap();
    let claimed = store.claim(Registered { registration }, &all).await;
    assert!(matches!(claimed.unwrap(), ClaimOutcome::Owned(_)));
    emit_many(&store, 0..10);
    until("it delivers", || sink.accepted().len() == 10).await;
    assert!(running.stop().await.clean);
}

#[tokio::test(start_paused = true)]
async fn a_paused_destination_delivers_nothing_until_it_is_resumed() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    emit_many(&store, 0..10);
    let running = Running::start(relay(&store, &sink));
    until("ten are delivered", || sink.accepted().len() == 10).await;
    assert!(
        store
            .set_destination("default", DestinationState::Paused)
            .await
            .unwrap()
    );
    pass(20).await;
    emit_many(&store, 10..20);
    pass(20).await;
    assert_eq!(sink.accepted().len(), 10);
    running.stop().await;
    let running = Running::start(relay(&store, &sink));
    pass(20).await;
    assert_eq!(sink.accepted().len(), 10, "a restart does not resume it");
    assert!(
        store
            .set_destination("default", DestinationState::Active)
            .await
            .unwrap()
    );
    until("the rest is delivered", || sink.accepted().len() == 20).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_place_gets_nothing_until_it_is_resumed() {
    for mode in MODES {
        let (store, sink) = (MemoryStore::new(mode), MemorySink::new());
        let emit_some = |topic: &str, payloads: std::ops::Range<u32>| {
            for number in payloads {
                let key = format!("{topic} {}", number % 3);
                emit_to(&store, topic, &key, &number.to_string());
            }
        };
        let topics = |topic: &str| {
            let accepted = sink.accepted();
            accepted
                .iter()
                .filter(|event| event.topic() == topic)
                .count()
        };
        emit_some("paused", 0..10);
        let running = Running::start(relay(&store, &sink));
        until("ten are delivered", || sink.accepted().len() == 10).await;
        assert!(store.set_place("default", "paused", true).await.unwrap());
        pass(20).await;
        emit_some("paused", 10..20);
        emit_some("other", 0..10);
        until("all others are delivered", || topics("other") == 10).await;
        running.stop().await;
        let running = Running::start(relay(&store, &sink));
        pass(20).await;
        emit_some("other", 10..20);
        until("all others are delivered", || topics("other") == 20).await;
        assert_eq!(topics("paused"), 10, "a restart does not resume it");
        let told = status(&store).await;
        assert_eq!((told.blocked_keys, told.places_held), (3, 1));
        assert!(store.set_place("default", "paused", false).await.unwrap());
        until("the rest is delivered", || topics("paused") == 20).await;
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn operators_see_how_fast_events_are_accepted() {
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    let running = Running::start(relay(&store, &sink));
    // The lease is of 15 s, and is renewed every third of it, less some jitter.
    for n in 0..200 {
        emit(&store, "k", &n.to_string());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let rate = status(&store).await.accepted_per_second.unwrap();
    assert!((9.0..=11.0).contains(&rate), "{rate}");
    pass(15).await;
    assert_eq!(status(&store).await.accepted_per_second, Some(0.0));
    running.stop().await;
    assert_eq!(status(&store).await.accepted_per_second, None);
}

#[tokio::test(start_paused = true)]
async fn a_dead_destination_delays_only_itself() {
    let store = MemoryStore::new(MemoryMode::Log);
    let (well, ill) = (MemorySink::new(), MemorySink::new());
    ill.set_fault(MemorySinkFault::Away);
    emit_many(&store, 0..100);
    let ill_destination = Destination::new("ill", Arc::new(ill.clone()));
    let running = Running::start(relay(&store, &well).destination(ill_destination));
    until("one is delivered to", || well.accepted().len() == 100).await;
    assert_eq!(ill.accepted().len(), 0);
    ill.set_fault(MemorySinkFault::None);
    until("the other one, too", || ill.accepted().len() == 100).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_setup_is_checked() {
    let wrong = |builder: RelayBuilder| builder.build().err().unwrap().to_string();
    let (store, sink) = (MemoryStore::new(MemoryMode::Log), MemorySink::new());
    assert!(wrong(Relay::builder(Arc::new(store.clone()))).contains("at least one"));
    let twice = relay(&store, &sink).destination(destination(&sink));
    assert!(wrong(twice).contains("`default` is named twice"));
    assert!(wrong(relay(&store, &sink).lease(Duration::from_millis(1))).contains("lease"));
    assert!(wrong(relay(&store, &sink).batch(0, 1)).contains("batch events"));
}
