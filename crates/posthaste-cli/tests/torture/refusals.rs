//! RabbitMQ is there and takes nothing for now: a queue is full, or an alarm blocks all who
//! publish.

use std::collections::BTreeSet;

use posthaste_testkit::servers::rabbitmq::{RabbitMqMessage, RabbitMqServer};
use posthaste_torture::{
    database::{Database, Plan, Step, load_key},
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste_json, until},
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
    let plan = |topic: &str, keys: std::ops::Range<u32>| Plan {
        steps: keys
            .map(|key| Step {
                topic: topic.to_owned(),
                ..Step::new(load_key(key), 1)
            })
            .collect(),
        ..Plan::default()
    };
    writer.transact(&plan("both", 0..EVENTS)).await.unwrap();
    let url = format!("{}?exchange=events", server.url("/"));
    let relay = RelayCommand::to_url(&database.url(), &url).flags(&["--settle", "200ms"]);
    let running = relay.start();
    running.wait_for_stderr("a queue is full", LIMIT);

    let first = lanes(&server);
    // By then the records that the first lane had sent before it was refused have arrived.
    until("another lane", || lanes(&server) > first).await;
    let (before, mut repeats) = (lanes(&server), Vec::new());
    client.purge("beside");
    for round in 1..=ROUNDS {
        // Of keys that come behind all others.
        let key = EVENTS + round;
        writer.transact(&plan("alone", key..key + 1)).await.unwrap();
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
    // One at a time, and each time another one. A lane that was opened is in the log before
    // anything of it arrives; the first messages may be those of the lane before.
    let lanes = lanes(&server) - before;
    println!("{} repeats by {lanes} lanes", repeats.len());
    assert!(repeats.len() <= lanes + 1, "{} by {lanes}", repeats.len());
    let different: BTreeSet<&String> = repeats.iter().collect();
    assert_eq!(different.len(), repeats.len());

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
async fn a_quorum_queue_without_its_majority_loses_and_parks_nothing() {
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
    until("delivery by all nodes", || status()["pending"] == 0).await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let arrived: BTreeSet<String> = ids(client.consume("facts")).into_iter().collect();
    assert_eq!(arrived, committed(&database).await);
    assert_eq!(database.audited("park").await, 0);
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
