//! A broker goes away and comes back, again and again: stopped, killed, cut off. Nothing is lost or
//! parked, keys stay in order, delivery resumes by itself, and memory does not grow with the
//! backlog. The same with the relay killed in between and PostgreSQL crashing.
//!
//! Neither sink fences its lanes but by time, so a repeat that comes shuffled is reported, not
//! failed: first deliveries are what is judged (I3).

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use posthaste_testkit::{
    long_form,
    process::{Running, peak_memory_kib},
    servers::postgres::PostgresServer,
};

#[cfg(feature = "amqp10")]
use posthaste_torture::brokers::artemis::Artemis;
#[cfg(feature = "http")]
use posthaste_torture::brokers::http::Http;
#[cfg(feature = "kafka")]
use posthaste_torture::brokers::kafka::Kafka;
#[cfg(feature = "kinesis")]
use posthaste_torture::brokers::kinesis::Kinesis;
#[cfg(feature = "mqtt")]
use posthaste_torture::brokers::mqtt::Mqtt;
#[cfg(feature = "nats")]
use posthaste_torture::brokers::nats::Nats;
#[cfg(feature = "rabbitmq")]
use posthaste_torture::brokers::rabbitmq::RabbitMq;
#[cfg(feature = "redis")]
use posthaste_torture::brokers::redis::Redis;
#[cfg(feature = "sqs")]
use posthaste_torture::brokers::sqs::Sqs;
use posthaste_torture::{
    brokers::Broker,
    crash::crash_server,
    database::{Database, KEYS, Plan, Step, load_key},
    judge::judge,
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste, posthaste_json, until},
};

struct Size {
    restarts: u32,
    between: Duration,
    cut: Duration,
    /// Bursts of two windows each, one after the other, before any outage.
    bursts: u32,
}

impl Size {
    fn here() -> Self {
        let seconds = Duration::from_secs;
        match long_form() {
            true => Self {
                restarts: 5,
                between: seconds(5),
                cut: seconds(60),
                bursts: 4,
            },
            false => Self {
                restarts: 2,
                between: seconds(1),
                cut: seconds(5),
                bursts: 1,
            },
        }
    }
}

/// The long form's bounds: how soon delivery resumes, and how much memory an outage may add. The
/// short form runs beside other tests, where times say nothing.
const RESUMES_WITHIN: Duration = Duration::from_secs(5);
const MEMORY_GROWTH_KIB_MAX: u64 = 10 * 1_024;

#[cfg(feature = "kafka")]
fn kafka() -> Arc<dyn Broker> {
    Arc::new(Kafka::for_relays(0))
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_kafka_lose_and_park_nothing() {
    outages_lose_and_park_nothing(kafka()).await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_kafka_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(kafka()).await;
}

#[cfg(feature = "rabbitmq")]
fn rabbitmq() -> Arc<dyn Broker> {
    Arc::new(RabbitMq::for_relays(0))
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_rabbitmq_lose_and_park_nothing() {
    outages_lose_and_park_nothing(rabbitmq()).await;
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_rabbitmq_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(rabbitmq()).await;
}

#[cfg(feature = "nats")]
fn nats() -> Arc<dyn Broker> {
    Arc::new(Nats::for_relays(0))
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_nats_lose_and_park_nothing() {
    outages_lose_and_park_nothing(nats()).await;
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_nats_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(nats()).await;
}

#[cfg(feature = "redis")]
fn redis() -> Arc<dyn Broker> {
    Arc::new(Redis::for_relays(0))
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_redis_lose_and_park_nothing() {
    outages_lose_and_park_nothing(redis()).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_redis_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(redis()).await;
}

#[cfg(feature = "amqp10")]
fn artemis() -> Arc<dyn Broker> {
    Arc::new(Artemis::for_relays(0))
}

#[cfg(feature = "amqp10")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_artemis_lose_and_park_nothing() {
    outages_lose_and_park_nothing(artemis()).await;
}

#[cfg(feature = "amqp10")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_artemis_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(artemis()).await;
}

#[cfg(feature = "http")]
fn http() -> Arc<dyn Broker> {
    Arc::new(Http::for_relays(0))
}

#[cfg(feature = "http")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_http_lose_and_park_nothing() {
    outages_lose_and_park_nothing(http()).await;
}

#[cfg(feature = "http")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_http_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(http()).await;
}

/// Cut off and silent: what moto has taken ends with its process.
#[cfg(feature = "kinesis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_kinesis_lose_and_park_nothing() {
    outages_lose_and_park_nothing(Arc::new(Kinesis::for_relays(0))).await;
}

/// Cut off and silent: what mosquitto has taken ends with its process.
#[cfg(feature = "mqtt")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_mqtt_lose_and_park_nothing() {
    outages_lose_and_park_nothing(Arc::new(Mqtt::for_relays(0))).await;
}

#[cfg(feature = "sqs")]
fn sqs() -> Arc<dyn Broker> {
    Arc::new(Sqs::for_relays(0))
}

#[cfg(feature = "sqs")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_sqs_lose_and_park_nothing() {
    outages_lose_and_park_nothing(sqs()).await;
}

#[cfg(feature = "sqs")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_sqs_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(sqs()).await;
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_over_which_each_connection_to_rabbitmq_ends_delays_its_key_alone() {
    one_event_ends_each_connection(rabbitmq(), "").await;
}

/// The client connects again by itself, and tries until an answer is late.
#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_over_which_each_connection_to_kafka_ends_delays_its_key_alone() {
    one_event_ends_each_connection(kafka(), "?compression=none").await;
}

/// A broker, or a firewall before it, ends the connection over one event and does not tell which
/// (I7).
async fn one_event_ends_each_connection(broker: Arc<dyn Broker>, option: &str) {
    let server = PostgresServer::shared(15);
    let database: Arc<dyn Database> = Arc::new(Postgres::new(server));
    let mut writer = database.writer().await.unwrap();
    let steps = (0..KEYS).map(|key| Step::new(load_key(key), 10)).collect();
    let plan = Plan {
        steps,
        ..Plan::default()
    };
    writer.transact(&plan).await.unwrap();
    let facts = database.facts().await;
    let bad = facts.iter().find(|fact| fact.n == 5).unwrap();
    broker.proxy().cut_at(bad.id.to_string().as_bytes());
    let running = relay(&database, &*broker)
        .option(option)
        .flags(&["--attempts", "1", "--settle", "200ms"])
        .flags(&["--publish-timeout", "3s"])
        .start();

    let behind = facts
        .iter()
        .filter(|fact| fact.key == bad.key && fact.n > bad.n);
    let behind = behind.count();
    until(
        "it to be set aside, and what is not behind it to be delivered",
        || {
            let status = posthaste_json(&["status", "--store", &database.url()]);
            status["dead"] == 1 && status["pending"] == behind
        },
    )
    .await;
    let dead = posthaste_json(&["dead", "list", "--store", &database.url()]);
    let events = dead["events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{dead:#}");
    assert_eq!(events[0]["id"], bad.id.to_string());
    assert_eq!(events[0]["kind"], "fails_alone", "{dead:#}");

    broker.proxy().resume();
    let retry = ["dead", "retry", "--key", &bad.key, "--store"];
    posthaste(&[&retry[..], &[&database.url()]].concat()).expect_status(0);
    delivers_the_rest(running, &*database, &*broker).await;
}

/// The relay is stopped after that, and nothing is lost, invented or out of order.
async fn delivers_the_rest(running: Running, database: &dyn Database, broker: &dyn Broker) {
    until("the rest to be delivered", || {
        let status = posthaste_json(&["status", "--store", &database.url()]);
        ["pending", "dead", "parked", "blocked_keys"]
            .iter()
            .all(|&count| status[count] == 0)
    })
    .await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let report = judge(database, broker.deliveries()).await;
    let judged = (report.lost, report.phantom, report.out_of_order);
    assert_eq!(judged, (0, 0, 0), "{report}");
}

/// As many as once stopped a destination for ever. Each of those that were under way with some of
/// them waits until these were tried alone, all others do not (I7).
#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_events_over_which_each_connection_to_rabbitmq_ends_hold_up_no_other() {
    const BAD: u64 = 40;
    let broker = rabbitmq();
    let server = PostgresServer::shared(15);
    let database: Arc<dyn Database> = Arc::new(Postgres::new(server));
    let mut writer = database.writer().await.unwrap();
    let bad = (0..BAD).map(|n| Step::new(format!("ends-{n}"), 1));
    let others = (0..KEYS).map(|key| Step::new(load_key(key), 50));
    let plan = Plan {
        steps: bad.chain(others).collect(),
        ..Plan::default()
    };
    writer.transact(&plan).await.unwrap();
    broker.proxy().cut_at(b"ends-");
    let running = relay(&database, &*broker)
        .flags(&["--attempts", "1", "--settle", "200ms"])
        .flags(&["--publish-timeout", "3s"])
        .start();
    let status = || posthaste_json(&["status", "--store", &database.url()]);
    until("all others to be delivered", || {
        let status = status();
        let count = |name: &str| status[name].as_u64().unwrap();
        count("pending") + count("parked") + count("dead") == BAD
    })
    .await;

    broker.proxy().resume();
    let retry = ["dead", "retry", "--all", "--store"];
    posthaste(&[&retry[..], &[&database.url()]].concat());
    delivers_the_rest(running, &*database, &*broker).await;
}

/// The broker fails; relay and database are sound.
async fn outages_lose_and_park_nothing(broker: Arc<dyn Broker>) {
    let size = Size::here();
    let server = PostgresServer::builder().start();
    let database: Arc<dyn Database> = Arc::new(Postgres::new(&server).with_paced_writers());
    let relay = relay(&database, &*broker);
    let running = relay.start();
    for _ in 0..size.bursts {
        burst(&*database, &*broker).await;
    }
    let before = peak_memory_kib(running.id());
    let load = Load::slower(&database, OnTrouble::Fail, 0, broker.slowness());

    let restarts = if broker.is_forgetful() {
        0
    } else {
        size.restarts
    };
    for restart in 0..restarts {
        tokio::time::sleep(size.between).await;
        match restart % 2 {
            0 => broker.kill9(),
            _ => broker.stop(),
        }
        resumes(&broker, |broker| broker.start_again()).await;
    }
    tokio::time::sleep(size.between).await;
    broker.proxy().refuse();
    tokio::time::sleep(size.cut).await;
    resumes(&broker, |broker| broker.proxy().resume()).await;
    // Connections that are open and silent are another fault than none at all.
    tokio::time::sleep(size.between).await;
    broker.proxy().stall();
    tokio::time::sleep(size.cut / 2).await;
    resumes(&broker, |broker| broker.proxy().resume()).await;

    load.stop().await;
    let after = peak_memory_kib(running.id());
    println!("peak memory {before} KiB before the outages, {after} KiB after them");
    if long_form() {
        assert!(after <= before + MEMORY_GROWTH_KIB_MAX);
    }
    everything_arrives(&database, &*broker, running).await;
}

/// The broker, the relay and the database fail, each in turn.
async fn outages_and_crashes_lose_and_park_nothing(broker: Arc<dyn Broker>) {
    let size = Size::here();
    // Commits without a waiting client stay unwritten, so that the crash takes aborted numbers with
    // it.
    let server = PostgresServer::builder()
        .setting("wal_writer_delay", "10s")
        .start();
    let postgres = Arc::new(Postgres::new(&server).with_paced_writers());
    let database: Arc<dyn Database> = Arc::clone(&postgres) as Arc<dyn Database>;
    let relay = relay(&database, &*broker);
    let mut running = relay.start();
    let load = Load::slower(&database, OnTrouble::Reconnect, 0, broker.slowness());
    until("a first delivery", || broker.arrived() > 0).await;
    let mut again = 0;
    for restart in 0..size.restarts {
        tokio::time::sleep(size.between).await;
        match restart % 2 {
            0 => broker.kill9(),
            _ => broker.stop(),
        }
        assert_no_panic(&running.kill9().stderr);
        let paused = load.pause().await;
        running = crash_server(&(&server, &*postgres), &mut again, || relay.start()).await;
        drop(paused);
        broker.start_again();
        delivers(&*broker).await;
    }
    broker.proxy().refuse();
    tokio::time::sleep(size.cut).await;
    assert_no_panic(&running.kill9().stderr);
    running = relay.start();
    broker.proxy().resume();
    delivers(&*broker).await;
    load.stop().await;
    assert!(
        again > 0,
        "no crash issued a number again: it proved nothing"
    );
    everything_arrives(&database, &*broker, running).await;
}

fn relay(database: &Arc<dyn Database>, broker: &dyn Broker) -> RelayCommand {
    RelayCommand::to_url(&database.url(), &broker.url())
}

/// Two windows of events at once (less where the broker is slow), until they are delivered. Several
/// of these show what the relay holds at full load: each of its threads keeps what it has once
/// held, and in an outage another thread may be the one that reads a window than before.
async fn burst(database: &dyn Database, broker: &dyn Broker) {
    let mut writer = database.writer().await.unwrap();
    let of_key = 50 / broker.slowness();
    for _ in 0..2 {
        let steps = (0..KEYS).map(|key| Step::new(load_key(key), of_key));
        let steps = steps.collect();
        let plan = Plan {
            steps,
            ..Plan::default()
        };
        writer.transact(&plan).await.unwrap();
    }
    let committed = database.committed().await;
    until("a burst to be delivered", || broker.arrived() >= committed).await;
}

/// Something new arrives.
async fn delivers(broker: &dyn Broker) {
    let before = broker.arrived();
    until("delivery after the fault", || broker.arrived() > before).await;
}

/// Heals the broker, while a bare client tries beside it, and sees delivery resume.
async fn resumes(broker: &Arc<dyn Broker>, heal: impl FnOnce(&dyn Broker) + Send + 'static) {
    let probing = Arc::clone(broker);
    let probe = thread::spawn(move || {
        let since = Instant::now();
        while !probing.probe() {
            assert!(since.elapsed() < LIMIT, "the bare client never got through");
        }
        Instant::now()
    });
    let healing = Arc::clone(broker);
    let healed = tokio::task::spawn_blocking(move || heal(&*healing));
    let (first, ()) = tokio::task::spawn_blocking(move || (probe.join().unwrap(), ()))
        .await
        .unwrap();
    healed.await.unwrap();
    delivers(&**broker).await;
    let took = first.elapsed();
    println!("delivery resumed {took:?} after a bare client's first success, at the latest");
    if long_form() {
        assert!(took <= RESUMES_WITHIN, "delivery resumed after {took:?}");
    }
}

/// Everything committed is delivered, in order for each key, and no attempt was used up.
async fn everything_arrives(database: &Arc<dyn Database>, broker: &dyn Broker, running: Running) {
    let committed = database.committed().await;
    until("everything to be delivered", || {
        let status = posthaste_json(&["status", "--store", &database.url()]);
        broker.arrived() >= committed && status["pending"] == 0
    })
    .await;
    let status = posthaste_json(&["status", "--store", &database.url()]);
    for count in ["parked", "dead", "blocked_keys"] {
        assert_eq!(status[count], 0, "{status:#}");
    }
    // An event that stays unanswered where others are answered is set aside for a moment, as on a
    // busy machine.
    println!("set aside for a while: {}", database.audited("park").await);
    assert_eq!(database.parked_with_an_attempt().await, 0);
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let report = judge(&**database, broker.deliveries()).await;
    println!("{report}");
    let judged = (report.lost, report.phantom, report.out_of_order);
    assert_eq!(judged, (0, 0, 0), "{report}");
}
