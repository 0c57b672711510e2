//! Transactions: the events that a consumer of committed records sees, whatever happens to lanes,
//! relays and connections. The tests use their lanes as a relay does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use libtest_mimic::Trial;
use posthaste_engine::{
    Cause, Lane, LaneScope, LaneSpec, Outcome, Partitions, RejectionKind, Sink, SinkError,
    StoredProgress,
};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::kafka::{Isolation, KafkaServer, SASL_USERS},
    sink_suite::{SuiteEvent, check_arrivals, impatient, lane_spec, poll_once, records},
    tls::TestCa,
};
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, BaseRecord, Producer as _},
};
use uuid::Uuid;

use super::{
    brokers::{self, Broker, fresh_topic, noise},
    driving::{
        answers, cause, event, expect_accepted, lane_with, rejection, send, sink_at, submit,
    },
    secure, trial,
};

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($test:ident),+ $(,)?) => { vec![$(trial(stringify!($test), $test)),+] };
    }
    trials![
        what_an_aborted_lane_left_is_seen_once,
        without_progress_events_are_seen_twice,
        a_destination_made_again_knows_nothing_of_the_former_one,
        a_zombie_can_not_commit_what_it_sent,
        a_zombie_can_not_send_what_it_held,
        a_chain_of_dead_owners_is_fenced,
        an_owner_that_is_left_out_of_the_chain_repeats,
        a_fence_taken_too_late_sends_nothing,
        a_partition_moves_away_and_back,
        another_number_of_partitions_finds_its_progress,
        what_is_stored_leaves_the_progress,
        the_same_id_again_is_another_event,
        an_event_to_the_progress_topic_is_refused,
        open_transactions_of_others_are_waited_for,
        a_killed_broker_repeats_nothing,
        a_progress_topic_that_forgets_is_refused,
        the_progress_topic_is_made_compacted_and_once,
        a_progress_topic_that_is_deleted_under_a_lane_is_made_again,
        missing_rights_are_named,
    ]
}

/// A topic, its progress topic, and a store whose events go there.
pub(super) struct Scene {
    pub(super) topic: String,
    pub(super) progress: String,
    store: Uuid,
    destination: i64,
}

impl Scene {
    pub(super) fn new(server: &KafkaServer) -> Self {
        let topic = fresh_topic(server, 3, &[]);
        Self {
            progress: format!("{topic}-progress"),
            topic,
            store: Uuid::new_v4(),
            destination: 1,
        }
    }

    /// The sink, by this way to the broker.
    pub(super) fn sink(&self, bootstrap: &str) -> Arc<dyn Sink> {
        let progress = &self.progress;
        let options = format!("delivery=transactional&progress_topic={progress}");
        open(&format!("kafka://{bootstrap}?{options}")).unwrap()
    }

    pub(super) fn spec(&self, relay: Uuid, partitions: Partitions, former: &[Uuid]) -> LaneSpec {
        LaneSpec {
            scope: Arc::new(LaneScope {
                store_id: self.store,
                destination: "default".to_owned(),
                destination_id: self.destination,
                registration: relay,
                partitions,
                former: former.to_vec(),
            }),
            ..lane_spec(1)
        }
    }

    pub(super) async fn lane(
        &self,
        sink: &Arc<dyn Sink>,
        relay: Uuid,
        former: &[Uuid],
    ) -> Box<dyn Lane> {
        let spec = self.spec(relay, Partitions::all_of(64).unwrap(), former);
        take_over(sink, spec).await
    }

    pub(super) fn events(&self, count: usize) -> Vec<SuiteEvent> {
        (0..count)
            .map(|n| event(&self.topic, Some(&format!("key-{}", n % 7)), format!("{n}")))
            .collect()
    }

    /// The events that a consumer sees.
    fn seen(&self, server: &KafkaServer) -> Vec<SuiteEvent> {
        server.settle_transactions();
        let messages = server.consume_as(&[&self.topic], Isolation::ReadCommitted);
        messages.iter().map(brokers::read).collect()
    }

    /// Each of these events is seen once, in its key's order, and nothing else is.
    pub(super) fn expect_once(&self, server: &KafkaServer, events: &[SuiteEvent]) {
        let all = events.iter().map(|event| event.id).collect();
        check_arrivals(events, &all, &self.seen(server)).unwrap();
    }
}

pub(super) async fn take_over(sink: &Arc<dyn Sink>, spec: LaneSpec) -> Box<dyn Lane> {
    let mut lane = lane_with(sink, spec).await;
    lane.take_over().await.unwrap();
    lane
}

pub(super) async fn expect_all_accepted(lane: &mut Box<dyn Lane>, events: &[SuiteEvent]) {
    for outcome in submit(lane, records(events, 0)).await.values() {
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
}

/// Aborted at every stage of a transaction, by a relay that knows of its fate only what it was
/// told.
async fn what_an_aborted_lane_left_is_seen_once() {
    const TURNS: usize = 24;
    let broker = Broker::take();
    let server = broker.server();
    let scene = Scene::new(server);
    let sink = scene.sink(&broker.bootstrap());
    let relay = Uuid::new_v4();
    let events = scene.events(TURNS * 50);
    let mut accepted = BTreeSet::new();
    for turn in 0..TURNS {
        let mut lane = scene.lane(&sink, relay, &[]).await;
        let pending: Vec<SuiteEvent> = events[..(turn + 1) * 50]
            .iter()
            .filter(|event| !accepted.contains(&event.id))
            .cloned()
            .collect();
        lane.submit(records(&pending, 0)).await;
        let mut answered = 0;
        // Later and later, up to when all is answered.
        for _ in 0..turn * turn * 60 {
            for verdict in poll_once(lane.outcomes()).await.unwrap_or_default() {
                assert!(matches!(verdict.outcome, Outcome::Accepted(_)));
                accepted.insert(pending[usize::try_from(verdict.ticket).unwrap()].id);
                answered += 1;
            }
            if answered == pending.len() {
                break;
            }
            tokio::task::yield_now().await;
        }
        match turn % 3 {
            0 => broker.proxy().hold_answers(),
            1 => broker.proxy().cut(),
            _ => {}
        }
        lane.abort().await;
        broker.proxy().resume();
    }
    let mut lane = scene.lane(&sink, relay, &[]).await;
    expect_all_accepted(&mut lane, &events).await;
    scene.expect_once(server, &events);
}

/// An application may emit an id again: whether the broker has the first one says nothing of the
/// second.
async fn the_same_id_again_is_another_event() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let relay = Uuid::new_v4();
    let events = scene.events(2);
    let again = SuiteEvent {
        id: events[0].id,
        ..event(&scene.topic, events[0].key.as_deref(), "again")
    };
    let mut lane = scene.lane(&sink, relay, &[]).await;
    expect_all_accepted(&mut lane, &events).await;
    expect_accepted(&mut lane, &again).await;
    lane.abort().await;
    // The next owner knows both.
    let mut lane = scene.lane(&sink, relay, &[]).await;
    let all = [events[0].clone(), events[1].clone(), again];
    expect_all_accepted(&mut lane, &all).await;
    let seen = scene.seen(server);
    assert_eq!(seen.len(), all.len(), "{seen:?}");
    assert!(all.iter().all(|event| seen.contains(event)), "{seen:?}");
}

/// Else whoever takes over would read it as progress.
async fn an_event_to_the_progress_topic_is_refused() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let mut lane = scene.lane(&sink, Uuid::new_v4(), &[]).await;
    let mut events = scene.events(3);
    events[1].topic.clone_from(&scene.progress);
    let outcomes = submit(&mut lane, records(&events, 0)).await;
    for at in [0, 2] {
        assert!(
            matches!(outcomes[&at], Outcome::Accepted(_)),
            "{outcomes:?}"
        );
    }
    let refused = rejection(&outcomes[&1]);
    assert_eq!(refused.kind, RejectionKind::Invalid);
    assert!(
        refused.reason.contains(&scene.progress),
        "{}",
        refused.reason
    );
    server.settle_transactions();
    let kept = server.consume_as(&[&scene.progress], Isolation::ReadUncommitted);
    let ours = scene.store.to_string();
    let is_ours = |key: &Option<Vec<u8>>| {
        key.as_deref()
            .is_some_and(|key| key.starts_with(ours.as_bytes()))
    };
    assert!(kept.iter().all(|message| is_ours(&message.key)), "{kept:?}");
    // Relays without transactions keep away from where others keep theirs.
    let plain = sink_at(&server.bootstrap());
    let mut lane = lane_with(&plain, lane_spec(1)).await;
    let refused = send(&mut lane, &event("posthaste-progress", None, "x")).await;
    assert_eq!(rejection(&refused).kind, RejectionKind::Invalid);
}

/// The control of all others: what suppresses is the progress, and nothing else.
async fn without_progress_events_are_seen_twice() {
    let server = KafkaServer::shared();
    let mut scene = Scene::new(server);
    let relay = Uuid::new_v4();
    let events = scene.events(50);
    for round in 0..2 {
        scene.progress = format!("{}-progress-{round}", scene.topic);
        let sink = scene.sink(&server.bootstrap());
        let mut lane = scene.lane(&sink, relay, &[]).await;
        expect_all_accepted(&mut lane, &events).await;
        lane.abort().await;
    }
    assert_eq!(scene.seen(server).len(), 100);
}

async fn a_destination_made_again_knows_nothing_of_the_former_one() {
    let server = KafkaServer::shared();
    let mut scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let events = scene.events(50);
    for destination in 1..=2 {
        scene.destination = destination;
        let mut lane = scene.lane(&sink, Uuid::new_v4(), &[]).await;
        expect_all_accepted(&mut lane, &events).await;
        lane.abort().await;
    }
    assert_eq!(scene.seen(server).len(), 100);
}

/// A part of its transaction stands in the topic, and the rest and its commit come later.
async fn a_zombie_can_not_commit_what_it_sent() {
    let broker = Broker::take();
    let server = broker.server();
    let scene = Scene::new(server);
    let (zombie, heir) = (Uuid::new_v4(), Uuid::new_v4());
    let events: Vec<SuiteEvent> = (0..60)
        .map(|n| {
            event(
                &scene.topic,
                Some(&format!("key-{}", n % 7)),
                noise(n, 10_000),
            )
        })
        .collect();
    let mut stopped = scene
        .lane(&scene.sink(&broker.bootstrap()), zombie, &[])
        .await;
    expect_all_accepted(&mut stopped, &events[..10]).await;
    let ends = || server.log_ends(&scene.topic).iter().sum::<i64>();
    server.settle_transactions();
    let before = ends();
    // A request a partition, and each takes a while.
    broker.proxy().slow(500_000);
    stopped.submit(records(&events[10..], 0)).await;
    while ends() == before {
        tokio::task::yield_now().await;
    }
    broker.proxy().stall();

    let direct = scene.sink(&server.direct());
    let mut lane = scene.lane(&direct, heir, &[zombie]).await;
    expect_all_accepted(&mut lane, &events).await;
    broker.proxy().resume();
    for outcome in answers(&mut stopped, 50).await.values() {
        assert_eq!(cause(outcome), Cause::LaneEnded, "{outcome:?}");
    }
    scene.expect_once(server, &events);
}

/// Nothing of its transaction has reached the broker.
async fn a_zombie_can_not_send_what_it_held() {
    let broker = Broker::take();
    let server = broker.server();
    let scene = Scene::new(server);
    let (zombie, heir) = (Uuid::new_v4(), Uuid::new_v4());
    let events = scene.events(100);
    let mut stopped = scene
        .lane(&scene.sink(&broker.bootstrap()), zombie, &[])
        .await;
    expect_all_accepted(&mut stopped, &events[..40]).await;
    broker.proxy().stall();
    stopped.submit(records(&events[40..], 0)).await;

    let direct = scene.sink(&server.direct());
    let mut lane = scene.lane(&direct, heir, &[zombie]).await;
    expect_all_accepted(&mut lane, &events).await;
    broker.proxy().resume();
    for outcome in answers(&mut stopped, 60).await.values() {
        assert_eq!(cause(outcome), Cause::LaneEnded, "{outcome:?}");
    }
    scene.expect_once(server, &events);
}

/// The first is stopped with events under way, the second dies before it has taken the first one's
/// fence.
async fn chain(former: fn(first: Uuid, second: Uuid) -> Vec<Uuid>) -> usize {
    let broker = Broker::take();
    let server = broker.server();
    let scene = Scene::new(server);
    let [first, second, third] = std::array::from_fn(|_| Uuid::new_v4());
    let events = scene.events(50);
    let mut stopped = scene
        .lane(&scene.sink(&broker.bootstrap()), first, &[])
        .await;
    // Questions about the topic before the first transaction do not belong to it.
    expect_accepted(&mut stopped, &event(&scene.topic, Some("key-0"), "first")).await;
    broker.proxy().stall();
    stopped.submit(records(&events, 0)).await;

    let direct = scene.sink(&server.direct());
    let all = Partitions::all_of(64).unwrap();
    drop(lane_with(&direct, scene.spec(second, all, &[first])).await);
    let mut lane = scene.lane(&direct, third, &former(first, second)).await;
    expect_all_accepted(&mut lane, &events).await;
    broker.proxy().resume();
    answers(&mut stopped, events.len()).await;
    scene.seen(server).len() - 1
}

async fn a_chain_of_dead_owners_is_fenced() {
    assert_eq!(chain(|first, second| vec![first, second]).await, 50);
}

/// The control: why owners must be remembered until their fences were taken.
async fn an_owner_that_is_left_out_of_the_chain_repeats() {
    assert_eq!(chain(|_, second| vec![second]).await, 100);
}

/// A relay that was stopped before it opened a lane takes its own fence again, after its heir has:
/// it is told by the database, and never takes over.
async fn a_fence_taken_too_late_sends_nothing() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let (late, heir) = (Uuid::new_v4(), Uuid::new_v4());
    let events = scene.events(50);
    let mut first = scene.lane(&sink, late, &[]).await;
    expect_all_accepted(&mut first, &events[..20]).await;
    first.abort().await;
    let mut lane = scene.lane(&sink, heir, &[late]).await;
    expect_all_accepted(&mut lane, &events[..30]).await;

    let all = Partitions::all_of(64).unwrap();
    let mut too_late = lane_with(&sink, scene.spec(late, all, &[])).await;
    for outcome in submit(&mut too_late, records(&events, 0)).await.values() {
        assert_eq!(cause(outcome), Cause::LaneEnded, "{outcome:?}");
    }
    expect_all_accepted(&mut lane, &events[30..]).await;
    scene.expect_once(server, &events);
}

pub(super) fn some(count: u16, owned: &[u16]) -> Partitions {
    let mut partitions = Partitions::none_of(count).unwrap();
    assert!(owned.iter().all(|&partition| partitions.insert(partition)));
    partitions
}

/// Of two relays, and neither is dead.
async fn a_partition_moves_away_and_back() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let (home, away) = (Uuid::new_v4(), Uuid::new_v4());
    let both = some(2, &[0, 1]);
    let (stays, moves): (Vec<_>, Vec<_>) = scene
        .events(120)
        .into_iter()
        .partition(|event| both.partition_of(event.slot()) == 0);
    assert!(stays.len() > 10 && moves.len() > 10, "both have events");
    let mut lane = take_over(&sink, scene.spec(home, both.clone(), &[])).await;
    expect_all_accepted(&mut lane, &stays).await;
    expect_all_accepted(&mut lane, &moves[..5]).await;
    lane.abort().await;

    // The mover's own record must tell of what it inherited.
    let mut lane = take_over(&sink, scene.spec(away, some(2, &[1]), &[])).await;
    expect_all_accepted(&mut lane, &moves[5..]).await;
    lane.abort().await;

    let mut lane = take_over(&sink, scene.spec(home, both, &[away])).await;
    expect_all_accepted(&mut lane, &stays).await;
    expect_all_accepted(&mut lane, &moves).await;
    scene.expect_once(server, &[stays, moves].concat());
}

async fn another_number_of_partitions_finds_its_progress() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let relay = Uuid::new_v4();
    let events = scene.events(60);
    for (turn, count) in [4, 64, 1, 16].into_iter().enumerate() {
        let all = Partitions::all_of(count).unwrap();
        let mut lane = take_over(&sink, scene.spec(relay, all, &[])).await;
        expect_all_accepted(&mut lane, &events[..(turn + 1) * 15]).await;
        lane.abort().await;
    }
    scene.expect_once(server, &events);
}

async fn what_is_stored_leaves_the_progress() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let relay = Uuid::new_v4();
    let one = || Partitions::all_of(1).unwrap();
    let events = scene.events(30);
    let mut lane = take_over(&sink, scene.spec(relay, one(), &[])).await;
    expect_all_accepted(&mut lane, &events[..20]).await;
    lane.progressed(StoredProgress::Finished(0..10));
    // Of what was learned nothing is left over: all of it was submitted here.
    lane.progressed(StoredProgress::CaughtUp);
    lane.submit(records(&events[20..21], 20)).await;
    lane.outcomes().await;
    lane.abort().await;
    assert_eq!(progress(server, &scene), ids(&events[10..21]));

    // Inherited: ids leave when they were submitted and stored, or never submitted.
    let mut lane = take_over(&sink, scene.spec(relay, one(), &[])).await;
    expect_all_accepted(&mut lane, &events[10..15]).await;
    lane.progressed(StoredProgress::Finished(0..3));
    lane.progressed(StoredProgress::CaughtUp);
    lane.submit(records(&events[21..22], 30)).await;
    lane.outcomes().await;
    lane.abort().await;
    let left = [&events[13..15], &events[21..22]].concat();
    assert_eq!(progress(server, &scene), ids(&left));
    // An event that is stored is not suppressed any more; any other is.
    let mut lane = take_over(&sink, scene.spec(relay, one(), &[])).await;
    expect_all_accepted(&mut lane, &events[..22]).await;
    assert_eq!(scene.seen(server).len(), 22 + 22 - left.len());
}

fn ids(events: &[SuiteEvent]) -> BTreeSet<Uuid> {
    events.iter().map(|event| event.id).collect()
}

/// The ids that the latest records tell of.
fn progress(server: &KafkaServer, scene: &Scene) -> BTreeSet<Uuid> {
    server.settle_transactions();
    let messages = server.consume_as(&[&scene.progress], Isolation::ReadCommitted);
    let latest: BTreeMap<_, _> = messages
        .into_iter()
        .map(|message| (message.key, message.value.unwrap()))
        .collect();
    latest
        .into_values()
        .flat_map(|value| {
            assert_eq!(value[0], 2, "the version");
            let events = value[1..].chunks_exact(24);
            let id = |event: &[u8]| Uuid::from_slice(&event[..16]).unwrap();
            events.map(id).collect::<Vec<_>>()
        })
        .collect()
}

/// A consumer is given nothing behind the first open transaction of any producer: the end
/// of the progress is behind it.
async fn open_transactions_of_others_are_waited_for() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let (former, heir) = (Uuid::new_v4(), Uuid::new_v4());
    let events = scene.events(60);
    let sink = scene.sink(&server.bootstrap());
    let mut lane = scene.lane(&sink, former, &[]).await;
    let limit = crate::trial::HANG;
    let other: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", server.bootstrap())
        .set("transactional.id", format!("other-{}", scene.store))
        .create()
        .unwrap();
    other.init_transactions(limit).unwrap();
    other.begin_transaction().unwrap();
    let record = BaseRecord::<str, str>::to(&scene.progress)
        .key("other")
        .payload("x");
    other.send(record).map_err(|(error, _)| error).unwrap();
    other.flush(limit).unwrap();
    expect_all_accepted(&mut lane, &events).await;
    lane.abort().await;

    let all = Partitions::all_of(64).unwrap();
    let mut early = lane_with(&sink, impatient(scene.spec(heir, all, &[former]))).await;
    let error = early.take_over().await.unwrap_err();
    assert!(
        error.is_retryable() && error.to_string().contains("open transactions"),
        "{error}"
    );
    early.abort().await;
    other.commit_transaction(limit).unwrap();
    let mut lane = scene.lane(&sink, heir, &[former]).await;
    expect_all_accepted(&mut lane, &events).await;
    scene.expect_once(server, &events);
}

async fn a_killed_broker_repeats_nothing() {
    const BATCH: usize = 300;
    let server = KafkaServer::start();
    let scene = Scene::new(&server);
    let sink = scene.sink(&server.bootstrap());
    let relay = Uuid::new_v4();
    let events = scene.events(3_000);
    let all = Partitions::all_of(64).unwrap();
    let mut open = take_over(&sink, impatient(scene.spec(relay, all, &[]))).await;
    for (turn, batch) in events.chunks(BATCH).enumerate() {
        open.submit(records(batch, (turn * BATCH) as u64)).await;
    }
    let known = answers(&mut open, BATCH).await.len();
    server.kill9();
    answers(&mut open, events.len() - known).await;
    open.abort().await;
    server.start_again();
    // Loading its state the broker may be a while.
    let mut lane = loop {
        let all = Partitions::all_of(64).unwrap();
        match sink.open_lane(scene.spec(relay, all, &[])).await {
            Ok(mut lane) => match lane.take_over().await {
                Ok(_) => break lane,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            },
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    expect_all_accepted(&mut lane, &events).await;
    scene.expect_once(&server, &events);
}

async fn a_progress_topic_that_forgets_is_refused() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    for (policy, refused) in [
        ("delete", true),
        ("compact,delete", true),
        ("compact", false),
    ] {
        let config = [("cleanup.policy", policy), ("segment.bytes", "8388608")];
        brokers::create_topic(server, &scene.progress, 1, &config);
        let sink = scene.sink(&server.bootstrap());
        let checked = sink.check().await;
        let opened = sink
            .open_lane(scene.spec(Uuid::new_v4(), some(1, &[0]), &[]))
            .await;
        for result in [checked.map(drop), opened.map(drop)] {
            match result {
                Err(error @ SinkError::Misconfigured { .. }) if refused => {
                    assert!(error.to_string().contains("set it to `compact`"), "{error}");
                }
                Ok(()) if !refused => {}
                other => panic!("{policy}: {other:?}"),
            }
        }
        server.delete_topic(&scene.progress);
    }
}

async fn the_progress_topic_is_made_compacted_and_once() {
    // A broker that makes topics makes them to forget.
    let server = KafkaServer::start_with(&[("auto.create.topics.enable", "true")]);
    let scene = Scene::new(&server);
    let sink = scene.sink(&server.bootstrap());
    sink.check().await.unwrap();
    assert!(!brokers::topics(&server).contains(&scene.progress));
    let spec = || scene.spec(Uuid::new_v4(), some(1, &[0]), &[]);
    let (one, other) = (
        scene.sink(&server.bootstrap()),
        scene.sink(&server.bootstrap()),
    );
    let (one, other) = tokio::join!(one.open_lane(spec()), other.open_lane(spec()));
    for lane in [one, other] {
        let mut lane = lane.unwrap();
        lane.take_over().await.unwrap();
        let outcome = send(&mut lane, &event(&scene.topic, Some("k"), "x")).await;
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    sink.check().await.unwrap();
}

async fn a_progress_topic_that_is_deleted_under_a_lane_is_made_again() {
    let server = KafkaServer::shared();
    let scene = Scene::new(server);
    let sink = scene.sink(&server.bootstrap());
    let relay = Uuid::new_v4();
    let events = scene.events(2);
    let mut lane = scene.lane(&sink, relay, &[]).await;
    expect_all_accepted(&mut lane, &events[..1]).await;
    server.delete_topic(&scene.progress);
    lane.abort().await;
    let reopened = async {
        loop {
            let spec = scene.spec(relay, Partitions::all_of(64).unwrap(), &[]);
            let mut lane = lane_with(&sink, spec).await;
            match lane.take_over().await {
                Ok(_) => return lane,
                Err(error) => {
                    assert!(error.to_string().contains(&scene.progress), "{error}");
                    lane.abort().await;
                }
            }
        }
    };
    let mut lane = tokio::time::timeout(crate::trial::HANG, reopened)
        .await
        .expect("wedged");
    expect_all_accepted(&mut lane, &events[1..]).await;
    lane.abort().await;
    assert!(brokers::topics(server).contains(&scene.progress));
}

async fn missing_rights_are_named() {
    let ca = TestCa::new();
    let server = KafkaServer::start_secure(&ca);
    let scene = Scene::new(&server);
    let user = SASL_USERS[0];
    let sink = || {
        let address = secure::address(&server, user, user.password, &ca);
        let progress = &scene.progress;
        open(&format!(
            "{address}&delivery=transactional&progress_topic={progress}"
        ))
        .unwrap()
    };
    let relay = Uuid::new_v4();
    let spec = || scene.spec(relay, some(4, &[0, 1, 2, 3]), &[]);
    let expect_denied = async |fix: &str| {
        for refused in [
            sink().check().await.map(drop),
            sink().open_lane(spec()).await.map(drop),
        ] {
            match refused {
                Err(error @ SinkError::Denied { .. }) => {
                    assert!(error.to_string().contains(fix), "{error}");
                }
                other => panic!("{fix}: {other:?}"),
            }
        }
    };
    expect_denied("make it with `kafka-topics.sh --create").await;
    brokers::create_topic(
        &server,
        &scene.progress,
        1,
        &[("cleanup.policy", "compact"), ("segment.bytes", "8388608")],
    );
    server.allow_write(user.name, &scene.progress);
    expect_denied("DESCRIBE_CONFIGS").await;
    server.allow_read(user.name, &scene.progress);
    sink().check().await.unwrap();
    let Err(error) = sink().open_lane(spec()).await else {
        panic!("opened without a right to the transactional id");
    };
    assert!(
        error.to_string().contains("transactional ids that begin"),
        "{error}"
    );
    server.allow_transactions(user.name, "posthaste.");

    // A topic that is denied while others are not: found though the whole transaction fails.
    let (allowed, denied) = (&scene.topic, fresh_topic(&server, 2, &[]));
    server.allow_write(user.name, allowed);
    server.allow_write(user.name, &denied);
    server.deny_write(user.name, &denied);
    let events: Vec<SuiteEvent> = (0..40)
        .map(|n| match n % 2 {
            0 => event(&denied, Some("denied"), "x"),
            _ => event(allowed, Some("allowed"), "x"),
        })
        .collect();
    let sink = sink();
    let (mut accepted, mut rejected) = (BTreeSet::new(), BTreeSet::new());
    while accepted.len() + rejected.len() < events.len() {
        let mut lane = take_over(&sink, spec()).await;
        let left = events.iter().filter(|event| !rejected.contains(&event.id));
        let left: Vec<SuiteEvent> = left.cloned().collect();
        for (at, outcome) in submit(&mut lane, records(&left, 0)).await {
            let id = left[at].id;
            match outcome {
                Outcome::Accepted(_) => drop(accepted.insert(id)),
                Outcome::Rejected(why) => {
                    assert_eq!(why.kind, RejectionKind::Denied, "{why:?}");
                    assert_eq!(left[at].topic, denied);
                    rejected.insert(id);
                }
                Outcome::Unavailable(_) => {}
                Outcome::Later(why) => panic!("{why:?}"),
            }
        }
        lane.abort().await;
    }
    assert_eq!((accepted.len(), rejected.len()), (20, 20));
    let allowed = events.iter().filter(|event| event.topic == *allowed);
    scene.expect_once(&server, &allowed.cloned().collect::<Vec<_>>());
}
