//! The speed of a healthy place while another one takes nothing: nearly that of a destination of
//! which all is well. Both are measured in turns in one run, and the best of each are compared, so
//! that a busy machine fails nothing. The short form compares nothing: it is too short for that.

use std::time::{Duration, Instant};

use posthaste_testkit::long_form;
use posthaste_testkit::servers::postgres::PostgresServer;
#[cfg(feature = "rabbitmq")]
use posthaste_testkit::servers::rabbitmq::{HeaderValue, RabbitMqMessage, RabbitMqServer};
#[cfg(feature = "kafka")]
use posthaste_torture::brokers::kafka::delivery;
use posthaste_torture::{
    database::{Database, Plan, Step, Writer, load_key},
    judge::{Delivery, judge},
    postgres::Postgres,
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste, posthaste_json, until},
};

/// Keys of the healthy place.
const HEALTHY_KEYS: u32 = 200;
/// Fewer events than a round has for the place that takes nothing: they would fill it.
const WINDOW: [&str; 2] = ["--window-events", "1000"];
/// Keys of the place that takes nothing, and events of each in a round.
const AWAY_KEYS: u32 = 100;
const AWAY_EVENTS: u32 = 15;

fn rounds() -> usize {
    if long_form() { 4 } else { 1 }
}

/// How often each is measured in a round.
fn measures() -> usize {
    if long_form() { 3 } else { 1 }
}

/// Events of each key of the healthy place in a round. A busy machine takes minutes to read those
/// of the long form.
fn healthy_events() -> u32 {
    if long_form() { 150 } else { 30 }
}

/// A transaction with a round's events for the healthy place; among them those for the other one,
/// if it gets any.
fn round(away: Option<&str>) -> Plan {
    let steps = (0..HEALTHY_KEYS + AWAY_KEYS).filter_map(|key| {
        let (topic, events) = match key % 3 {
            0 => (away?, AWAY_EVENTS),
            _ => ("here", healthy_events()),
        };
        Some(Step {
            topic: topic.to_owned(),
            ..Step::new(load_key(key), events)
        })
    });
    Plan {
        steps: steps.collect(),
        ..Plan::default()
    }
}

/// How long it takes until so many more events have arrived at the healthy place.
async fn time(writer: &mut dyn Writer, plan: &Plan, mut arrived: impl FnMut() -> u64) -> Duration {
    let before = arrived();
    let all = u64::from(HEALTHY_KEYS * healthy_events());
    writer.transact(plan).await.unwrap();
    let began = Instant::now();
    // Not more slowly the longer it takes to ask, as `until` does.
    while arrived() < before + all {
        assert!(began.elapsed() < LIMIT, "all for the healthy place");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

/// A destination of which one place takes nothing now and then.
struct Times {
    alone: Vec<Duration>,
    beside: Vec<Duration>,
}

impl Times {
    fn new() -> Self {
        let (alone, beside) = (Vec::new(), Vec::new());
        Self { alone, beside }
    }

    /// At least four fifths of the speed.
    fn check(&self) {
        let best = |times: &[Duration]| times.iter().min().unwrap().as_secs_f64();
        let share = best(&self.alone) / best(&self.beside);
        println!("{share:.2}: {:?} and {:?}", self.alone, self.beside);
        assert!(share >= 0.8 || !long_form(), "{share:.2} of the speed");
    }
}

/// Some measures with this plan, of which the best one counts.
async fn measure(
    times: &mut Vec<Duration>,
    writer: &mut dyn Writer,
    plan: &Plan,
    mut arrived: impl FnMut() -> u64,
) {
    for _ in 0..measures() {
        times.push(time(writer, plan, &mut arrived).await);
    }
}

async fn until_told(url: &str, words: &str) {
    until("the trouble to be told", || {
        let status = posthaste_json(&["status", "--store", url]);
        let error = status["destinations"][0]["last_error"].as_str();
        error.is_some_and(|error| error.contains(words))
    })
    .await;
}

/// Nobody waits for the next attempt.
async fn until_drained(url: &str) {
    until("everything to be delivered", || {
        // It fails where nothing is parked.
        posthaste(&["dead", "retry", "--all", "--store", url]);
        let status = posthaste_json(&["status", "--store", url]);
        status["pending"] == 0 && status["blocked_keys"] == 0
    })
    .await;
}

async fn check_order(database: &Postgres, deliveries: impl IntoIterator<Item = Delivery>) {
    let report = judge(database, deliveries).await;
    let judged = (report.lost, report.phantom, report.out_of_order);
    assert_eq!(judged, (0, 0, 0), "{report}");
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_as_quick_beside_a_full_one_and_that_gets_all_in_order() {
    let server = RabbitMqServer::start();
    let client = server.client("/");
    for queue in ["full", "here"] {
        client.declare_queue(queue, &[]);
    }
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    let url = database.url();
    let target = format!("{}?exchange=", server.url("/"));
    let running = RelayCommand::to_url(&url, &target).flags(&WINDOW).start();
    let (mut times, mut messages) = (Times::new(), Vec::new());
    let arrived = || u64::from(client.message_count("here"));
    for _ in 0..rounds() {
        let policy = r#"{"max-length": 1, "overflow": "reject-publish"}"#;
        server.ctl(&["set_policy", "limit", "^full$", policy]);
        let plan = round(Some("full"));
        times.beside.push(time(&mut *writer, &plan, arrived).await);
        until_told(&url, "a queue is full").await;
        measure(&mut times.beside, &mut *writer, &plan, arrived).await;

        server.ctl(&["clear_policy", "limit"]);
        until_drained(&url).await;
        measure(&mut times.alone, &mut *writer, &round(None), arrived).await;
        until_drained(&url).await;
        messages.extend(["full", "here"].map(|queue| client.consume(queue)));
    }
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let delivery = |message: RabbitMqMessage| {
        let HeaderValue::Text(key) = &message.headers["key"] else {
            panic!("{message:?}");
        };
        Delivery {
            key: key.clone(),
            n: String::from_utf8(message.body)
                .unwrap()
                .trim_end()
                .parse()
                .unwrap(),
            id: message.message_id.unwrap().parse().unwrap(),
        }
    };
    check_order(&database, messages.into_iter().flatten().map(delivery)).await;
    times.check();
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_as_quick_beside_one_without_a_leader_and_that_gets_all_in_order() {
    let (server, gone) = crate::offline::cluster();
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    let url = database.url();
    let target = format!("kafka://{}", server.bootstrap());
    let running = RelayCommand::to_url(&url, &target).flags(&WINDOW).start();
    let mut times = Times::new();
    let arrived = || u64::try_from(server.high_watermarks("here")[0]).unwrap();
    for _ in 0..rounds() {
        gone.stop();
        server.until_leaderless("away");
        let plan = round(Some("away"));
        times.beside.push(time(&mut *writer, &plan, arrived).await);
        until_told(&url, "partition 0 of topic `away` has no leader").await;
        measure(&mut times.beside, &mut *writer, &plan, arrived).await;

        gone.start_again();
        until_drained(&url).await;
        measure(&mut times.alone, &mut *writer, &round(None), arrived).await;
    }
    until_drained(&url).await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let messages = server.consume(&["away", "here"]);
    check_order(&database, messages.iter().map(delivery)).await;
    times.check();
}
