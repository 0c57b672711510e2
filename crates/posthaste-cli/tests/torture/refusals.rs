//! RabbitMQ is there and takes nothing for now: a queue is full, or an alarm blocks all who
//! publish.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::{Duration, Instant},
};

use posthaste_testkit::servers::{
    postgres::PostgresServer,
    rabbitmq::{HeaderValue, RabbitMqMessage, RabbitMqServer},
};
use posthaste_torture::{
    database::{Database, Plan, Step, load_key},
    postgres::Postgres,
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste_json, until, until_all_is_delivered},
    sqlite::Sqlite,
};

const EVENTS: u32 = 300;
const ROUNDS: u32 = 5;

/// An exchange routes into several queues, and one of them refuses: each attempt repeats the event
/// in the others. Such repeats are few, and events that do not go there are delivered all the
/// while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_floods_no_other_queue_with_repeats_and_holds_up_no_other_topic() {
    let server = RabbitMqServer::start();
    let client = server.client("/");
    client.declare_exchange("events", "topic");
    for (queue, topic) in [("full", "both"), ("beside", "both"), ("other", "alone")] {
        client.declare_queue(queue, &[]);
        client.bind(queue, "events", topic);
    }
    let policy = r#"{"max-length": 1, "overflow": "reject-publish"}"#;
    server.ctl(&["set_policy", "limit", "^full$", policy]);
    let database = Sqlite::new().await;
    let mut writer = database.writer().await.unwrap();
    writer.transact(&one_each("both", 0..EVENTS)).await.unwrap();
    let url = format!("{}?exchange=events", server.url("/"));
    let running = RelayCommand::to_url(&database.url(), &url).start();
    running.wait_for_stderr("a queue is full", LIMIT);

    // By then the records that were sent before the first was refused have arrived.
    let mut arrived = client.message_count("beside");
    until("attempts with single events", || {
        let before = std::mem::replace(&mut arrived, client.message_count("beside"));
        std::thread::sleep(Duration::from_millis(300));
        before == arrived
    })
    .await;
    client.purge("beside");
    let opened = lanes(&server);
    let (began, mut repeats) = (Instant::now(), Vec::new());
    for round in 1..=ROUNDS {
        // Of keys that come behind all others.
        let key = EVENTS + round;
        writer
            .transact(&one_each("alone", key..key + 1))
            .await
            .unwrap();
        until("the other topic's event", || {
            client.message_count("other") == round
        })
        .await;
        until("the next attempt", || {
            repeats.extend(ids(client.consume("beside")));
            repeats.len() >= usize::try_from(round).unwrap()
        })
        .await;
    }
    // One at a time, and each time another one: once a second or more rarely.
    println!("{} repeats in {:?}", repeats.len(), began.elapsed());
    let attempts_max = began.elapsed().as_millis() / 700 + 2;
    assert!(repeats.len() as u128 <= attempts_max, "{}", repeats.len());
    let different: BTreeSet<&String> = repeats.iter().collect();
    assert_eq!(different.len(), repeats.len());
    assert_eq!(lanes(&server), opened, "the lane goes on");

    server.ctl(&["clear_policy", "limit"]);
    until("everything to be delivered", || {
        posthaste_json(&["status", "--store", &database.url()])["pending"] == 0
    })
    .await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let arrived: BTreeSet<String> = ["full", "other"]
        .into_iter()
        .flat_map(|queue| ids(client.consume(queue)))
        .collect();
    assert_eq!(arrived, committed(&database).await);
    assert_eq!(database.audited("park").await, 0);
}

/// Events that wait for the full queue leave the window, which is smaller than they are many, and
/// come in their order once the queue takes them; meanwhile the other queue gets its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_stays_full_holds_up_no_other_and_gets_all_in_order() {
    waits_for_a_full_queue(WAITING..WAITING + 20, &[]).await;
}

/// The same, and keys that wait for the full queue have events for the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_waits_for_a_full_queue_goes_on_at_another_where_that_is_the_order() {
    waits_for_a_full_queue(0..20, &["--order", "key-and-topic"]).await;
}

/// Keys that wait for the full queue.
const WAITING: u32 = 3;

async fn waits_for_a_full_queue(others: Range<u32>, flags: &[&str]) {
    let server = RabbitMqServer::start();
    let client = server.client("/");
    for queue in ["full", "other"] {
        client.declare_queue(queue, &[]);
    }
    let policy = r#"{"max-length": 100, "overflow": "reject-publish"}"#;
    server.ctl(&["set_policy", "limit", "^full$", policy]);
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    let plan = |topic: &str, key: u32| Plan {
        steps: vec![Step {
            topic: topic.to_owned(),
            ..Step::new(load_key(key), 100)
        }],
        ..Plan::default()
    };
    // A window of a thousand, and three times as many in front of what goes elsewhere.
    for _ in 0..10 {
        for key in 0..WAITING {
            writer.transact(&plan("full", key)).await.unwrap();
        }
    }
    for key in others {
        writer.transact(&plan("other", key)).await.unwrap();
    }
    let target = format!("{}?exchange=", server.url("/"));
    let running = RelayCommand::to_url(&database.url(), &target)
        .flags(&["--window-events", "1000"])
        .flags(flags)
        .start();
    running.wait_for_stderr("a queue is full", LIMIT);
    until("all others to be delivered", || {
        client.message_count("other") == 2_000
    })
    .await;
    let url = database.url();
    let status = posthaste_json(&["status", "--store", &url]);
    assert_eq!(status["blocked_keys"], WAITING, "{status:#}");
    let error = status["destinations"][0]["last_error"].as_str().unwrap();
    let (topic, reason) = ("`full`", "a queue is full");
    assert!(error.contains(topic) && error.contains(reason), "{error}");
    until("the place to be told of", || {
        let status = posthaste_json(&["status", "--store", &url]);
        status["destinations"][0]["places"][0]["name"] == "full"
    })
    .await;
    let kinds = database.rows("select distinct kind, attempts from posthaste.parked");
    assert_eq!(kinds, "not_now|0");

    server.ctl(&["clear_policy", "limit"]);
    until_all_is_delivered(&url).await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let mut by_key: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for message in client.consume("full") {
        let HeaderValue::Text(key) = &message.headers["key"] else {
            panic!("{message:?}");
        };
        let number = String::from_utf8(message.body).unwrap();
        let of_key = by_key.entry(key.clone()).or_default();
        of_key.push(number.trim_end().parse().unwrap());
    }
    let in_order: Vec<u64> = (1..=1_000).collect();
    assert_eq!(by_key.len(), WAITING as usize);
    assert!(
        by_key.values().all(|of_key| *of_key == in_order),
        "{by_key:?}"
    );
}

/// A message without a confirm when the alarm comes gets none as long as it lasts, and the broker
/// says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_is_named_for_as_long_as_it_blocks() {
    let server = RabbitMqServer::start();
    let client = server.client("/");
    client.declare_exchange("events", "topic");
    client.declare_queue("facts", &[]);
    client.bind("facts", "events", "#");
    let database = Sqlite::new().await;
    let mut writer = database.writer().await.unwrap();
    let url = format!("{}?exchange=events", server.url("/"));
    let relay = RelayCommand::to_url(&database.url(), &url);
    let running = relay
        .flags(&["--settle", "200ms", "--publish-timeout", "2s"])
        .start();
    writer.transact(&Plan::of("before", 1)).await.unwrap();
    until("a first delivery", || client.message_count("facts") == 1).await;

    server.ctl(&["set_vm_memory_high_watermark", "0.00001"]);
    let steps = (0..EVENTS).map(|key| Step::new(load_key(key), 1)).collect();
    let plan = Plan {
        steps,
        ..Plan::default()
    };
    writer.transact(&plan).await.unwrap();
    let status = || posthaste_json(&["status", "--store", &database.url()]);
    let first = lanes(&server);
    let mut named = 0;
    until("a handful of lanes", || {
        let status = status();
        if let Some(reason) = status["destinations"][0]["last_error"].as_str() {
            named += 1;
            let blocks = "the broker blocks publishers: low on memory";
            assert!(reason.contains(blocks), "{reason}");
        }
        lanes(&server) >= first + 4
    })
    .await;
    assert!(named > 0);
    server.ctl(&["set_vm_memory_high_watermark", "0.6"]);
    until("everything to be delivered", || status()["pending"] == 0).await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let arrived: BTreeSet<String> = ids(client.consume("facts")).into_iter().collect();
    assert_eq!(arrived, committed(&database).await);
    assert_eq!(database.audited("park").await, 0);
}

/// Two of three nodes are gone: nothing of a quorum queue is confirmed until they are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_without_its_majority_loses_nothing_and_uses_up_no_attempt() {
    let nodes = RabbitMqServer::start_cluster(3);
    let (living, dying) = nodes.split_first().unwrap();
    let client = living.client("/");
    client.declare_exchange("events", "topic");
    client.declare_queue("facts", &[("x-queue-type", "quorum".into())]);
    client.bind("facts", "events", "#");
    let database = Sqlite::new().await;
    let mut writer = database.writer().await.unwrap();
    let url = format!("{}?exchange=events", living.url("/"));
    let running = RelayCommand::to_url(&database.url(), &url)
        .flags(&["--settle", "200ms", "--publish-timeout", "2s"])
        .start();
    let of_each_key = || Plan {
        steps: (0..EVENTS).map(|key| Step::new(load_key(key), 1)).collect(),
        ..Plan::default()
    };
    let status = || posthaste_json(&["status", "--store", &database.url()]);
    writer.transact(&of_each_key()).await.unwrap();
    until("delivery by all nodes", || status()["pending"] == 0).await;

    living.sync_declarations();
    dying.iter().for_each(RabbitMqServer::kill9);
    writer.transact(&of_each_key()).await.unwrap();
    running.wait_for_stderr("a quorum queue is without", LIMIT);
    assert_eq!(status()["pending"], EVENTS);
    dying.iter().for_each(RabbitMqServer::start_again);
    until_all_is_delivered(&database.url()).await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let arrived: BTreeSet<String> = ids(client.consume("facts")).into_iter().collect();
    assert_eq!(arrived, committed(&database).await);
    assert_eq!(attempts_used_up(&database.url()), 0);
}

/// RabbitMQ reads no further on a connection over which such a queue was sent something first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_without_its_majority_holds_up_no_other_queue() {
    const HEALTHY: u32 = 3_000;
    let nodes = RabbitMqServer::start_cluster(3);
    let (living, dying) = nodes.split_first().unwrap();
    let client = living.client("/");
    client.declare_queue("lost", &[("x-queue-type", "quorum".into())]);
    client.declare_queue("healthy", &[]);
    living.sync_declarations();
    dying.iter().for_each(RabbitMqServer::kill9);
    let database = Sqlite::new().await;
    let mut writer = database.writer().await.unwrap();
    let url = format!("{}?exchange=", living.url("/"));
    let running = RelayCommand::to_url(&database.url(), &url).start();
    for round in 0..HEALTHY / 10 {
        let lost = round % 20;
        writer
            .transact(&one_each("lost", lost..lost + 1))
            .await
            .unwrap();
        writer.transact(&one_each("healthy", 20..30)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until("all others to be delivered", || {
        client.message_count("healthy") >= HEALTHY
    })
    .await;
    // The other one may be in doubt first, until it takes something over a connection beside.
    until("the report to name the topic that takes nothing", || {
        let status = posthaste_json(&["status", "--store", &database.url()]);
        let error = status["destinations"][0]["last_error"].as_str();
        error.is_some_and(|error| error.contains("`lost`"))
    })
    .await;

    dying.iter().for_each(RabbitMqServer::start_again);
    until_all_is_delivered(&database.url()).await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let queues = ["lost", "healthy"];
    let arrived = queues.map(|queue| ids(client.consume(queue)));
    let arrived: BTreeSet<String> = arrived.into_iter().flatten().collect();
    assert_eq!(arrived, committed(&database).await);
    assert_eq!(attempts_used_up(&database.url()), 0);
}

/// An event of each of these keys, to this topic.
fn one_each(topic: &str, keys: Range<u32>) -> Plan {
    let step = |key| Step {
        topic: topic.to_owned(),
        ..Step::new(load_key(key), 1)
    };
    Plan {
        steps: keys.map(step).collect(),
        ..Plan::default()
    }
}

/// By events that were parked and then delivered, which counts as an attempt itself.
fn attempts_used_up(url: &str) -> u64 {
    let select = ["--state", "delivered", "--limit", "1000"];
    let listed = posthaste_json(&[&["dead", "list", "--store", url], &select[..]].concat());
    let events = listed["events"].as_array().unwrap();
    let attempts = events
        .iter()
        .map(|event| event["attempts"].as_u64().unwrap());
    attempts.map(|attempts| attempts - 1).sum()
}

async fn committed(database: &Sqlite) -> BTreeSet<String> {
    let facts = database.facts().await;
    facts.iter().map(|fact| fact.id.to_string()).collect()
}

/// How many the relay has opened: it names its connections.
fn lanes(server: &RabbitMqServer) -> usize {
    let log = server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("authenticated and"));
    lines.filter(|line| line.contains("- posthaste")).count()
}

fn ids(messages: Vec<RabbitMqMessage>) -> Vec<String> {
    let id = |message: RabbitMqMessage| message.message_id.unwrap();
    messages.into_iter().map(id).collect()
}
