//! A part of Kafka is gone: the only broker of a topic, while another one holds the rest.

use std::collections::BTreeSet;

use posthaste_testkit::servers::{
    kafka::{KafkaMessage, KafkaServer, MoreBroker},
    postgres::PostgresServer,
};
use posthaste_torture::{
    brokers::kafka::delivery,
    database::{Database, Plan, Step, load_key},
    judge::judge,
    postgres::Postgres,
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste_json, until, until_all_is_delivered},
};

/// Keys of the topic whose broker is gone.
const AWAY: u32 = 200;
/// Keys of the other topic.
const HERE: u32 = 20;
/// Transactions of each key.
const ROUNDS: u32 = 20;

/// A cluster whose second broker has the topic `away` for itself.
pub(crate) fn cluster() -> (KafkaServer, MoreBroker) {
    let server = KafkaServer::start();
    let gone = server.add_broker(2);
    for (topic, broker) in [("away", 2), ("here", 1)] {
        server.create_replicated(topic, &[broker], &[]);
    }
    (server, gone)
}

/// An event of each key.
fn round() -> Plan {
    let steps = (0..AWAY + HERE).map(|key| Step {
        topic: if key < AWAY { "away" } else { "here" }.to_owned(),
        ..Step::new(load_key(key), 1)
    });
    Plan {
        steps: steps.collect(),
        ..Plan::default()
    }
}

async fn until_all_others_arrived(server: &KafkaServer) {
    until("all others to be delivered", || {
        arrived(&server.consume(&["here"])) == HERE * ROUNDS
    })
    .await;
}

/// All of them, each key in order, and none given up.
async fn check(database: &Postgres, messages: &[KafkaMessage]) {
    let report = judge(database, messages.iter().map(delivery)).await;
    let judged = (report.lost, report.phantom, report.out_of_order);
    assert_eq!(judged, (0, 0, 0), "{report}");
    let status = posthaste_json(&["status", "--store", &database.url()]);
    assert_eq!(status["dead"], 0);
}

/// Events for the topic whose broker is away wait, and come in their order when it is back;
/// meanwhile the other topic gets all its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_without_a_leader_holds_up_no_other_and_gets_all_in_order() {
    let (server, gone) = cluster();
    gone.stop();
    server.until_leaderless("away");
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    let round = round();
    for _ in 0..ROUNDS {
        writer.transact(&round).await.unwrap();
    }
    let url = database.url();
    let target = format!("kafka://{}", server.bootstrap());
    let running = RelayCommand::to_url(&url, &target).start();
    running.wait_for_stderr("partition 0 of topic `away` has no leader", LIMIT);
    until_all_others_arrived(&server).await;

    gone.start_again();
    until_all_is_delivered(&url).await;
    // No lane has ended: there is no repeat.
    let messages = server.consume(&["away", "here"]);
    assert_eq!(arrived(&messages) as usize, messages.len());
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    check(&database, &messages).await;
}

/// The broker is killed under load: the lane whose events are under way there ends, and the next
/// one goes on with all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_loses_its_leader_under_load_holds_up_no_other() {
    let (server, gone) = cluster();
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    let round = round();
    let url = database.url();
    let target = format!("kafka://{}", server.bootstrap());
    let running = RelayCommand::to_url(&url, &target)
        .flags(&["--settle", "200ms", "--publish-timeout", "2s"])
        .start();
    let status = || posthaste_json(&["status", "--store", &url]);
    writer.transact(&round).await.unwrap();
    until("delivery by both brokers", || status()["pending"] == 0).await;

    gone.kill9();
    for _ in 1..ROUNDS {
        writer.transact(&round).await.unwrap();
    }
    until_all_others_arrived(&server).await;
    until("the reason to be told", || {
        let status = status();
        let error = status["destinations"][0]["last_error"].as_str();
        error.is_some_and(|error| error.contains("partition 0 of topic `away` has no leader"))
    })
    .await;

    gone.start_again();
    until_all_is_delivered(&url).await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let messages = server.consume(&["away", "here"]);
    check(&database, &messages).await;
}

/// Events, without repeats.
fn arrived(messages: &[KafkaMessage]) -> u32 {
    let ids: BTreeSet<_> = messages
        .iter()
        .map(|message| delivery(message).id)
        .collect();
    u32::try_from(ids.len()).unwrap()
}
