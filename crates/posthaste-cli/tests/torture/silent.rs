//! A broker that takes events and never answers for some places, while it answers for others.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use posthaste_testkit::{
    long_form,
    servers::{
        nats::{NatsClient, NatsMessage, NatsServer},
        postgres::PostgresServer,
    },
};
use posthaste_torture::{
    database::{Database, Plan, Step, load_key},
    postgres::Postgres,
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste, posthaste_json, until},
};
use serde_json::json;

const SILENT: u32 = 100;
const EVENTS_OF_SILENT: u32 = 30;

/// A server with a stream, its client, and another one that listens to subjects without a stream,
/// so that NATS neither refuses nor answers what is sent there.
fn with_silent_subjects() -> (NatsServer, NatsClient, NatsClient) {
    let server = NatsServer::start();
    let (mut client, mut listener) = (server.client(), server.client());
    client.create_stream("OTHERS", &["other"], &json!({}));
    listener.listen("silent.>");
    (server, client, listener)
}

/// They are three times as many as the window holds, and in front of all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_silent_subjects_hold_up_no_other_and_get_all_in_order() {
    let (server, mut client, _listener) = with_silent_subjects();
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    let plan = |topic: String, key: u32, events: u32| Plan {
        steps: vec![Step {
            topic,
            ..Step::new(load_key(key), events)
        }],
        ..Plan::default()
    };
    for key in 0..SILENT {
        let topic = format!("silent.{key}");
        let silent = plan(topic, key, EVENTS_OF_SILENT);
        writer.transact(&silent).await.unwrap();
    }
    for key in SILENT..SILENT + 20 {
        let other = plan("other".to_owned(), key, 100);
        writer.transact(&other).await.unwrap();
    }
    let url = database.url();
    let target = format!("{}?subject={{topic}}", server.url());
    let running = RelayCommand::to_url(&url, &target)
        .flags(&["--window-events", "1000"])
        .start();
    running.wait_for_stderr("no answer for subject", LIMIT);
    until("all others to be delivered", || {
        client.stream_state("OTHERS").0 == 2_000
    })
    .await;
    let kinds = database.rows("select distinct kind, attempts from posthaste.parked");
    assert_eq!(kinds, "not_now|0");

    client.create_stream("SILENT", &["silent.>"], &json!({}));
    until("everything to be delivered", || {
        // It fails where nothing is parked.
        posthaste(&["dead", "retry", "--all", "--store", &url]);
        let status = posthaste_json(&["status", "--store", &url]);
        status["pending"] == 0 && status["blocked_keys"] == 0
    })
    .await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let mut by_subject: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for message in client.messages("SILENT") {
        let number = String::from_utf8(message.payload).unwrap();
        let of_subject = by_subject.entry(message.subject).or_default();
        of_subject.push(number.trim_end().parse().unwrap());
    }
    let in_order: Vec<u32> = (1..=EVENTS_OF_SILENT).collect();
    assert_eq!(by_subject.len(), SILENT as usize);
    for (subject, events) in by_subject {
        assert_eq!(events, in_order, "{subject}");
    }
}

/// Ten events of as many keys, and two of silent ones, each fiftieth part of a second.
fn part_of_a_stream(number: u32) -> Plan {
    let silent = (0..2).map(|n| (number * 2 + n) % SILENT);
    let healthy = (0..10).map(|n| SILENT + (number * 10 + n) % 500);
    let step = |key: u32| Step {
        topic: if key < SILENT {
            format!("silent.{key}")
        } else {
            "other".to_owned()
        },
        ..Step::new(load_key(key), 1)
    };
    let mut keys: Vec<u32> = silent.chain(healthy).collect();
    keys.sort_unstable();
    Plan {
        steps: keys.into_iter().map(step).collect(),
        ..Plan::default()
    }
}

/// When an event was made, and how much later the stream took it.
fn made_and_taken(message: &NatsMessage) -> (Timestamp, Duration) {
    let made = message
        .headers
        .iter()
        .find(|(name, _)| name == "occurred-at");
    let made: Timestamp = made.unwrap().1.parse().unwrap();
    // The subject of an acknowledgement says it in nanoseconds, before how many are pending.
    let taken = message
        .reply
        .as_deref()
        .unwrap()
        .rsplit('.')
        .nth(1)
        .unwrap();
    let taken = Timestamp::from_nanosecond(taken.parse().unwrap()).unwrap();
    (
        made,
        taken.duration_since(made).try_into().unwrap_or_default(),
    )
}

/// The long form looks at what is made behind the first minute; the short one is too short for
/// that, and loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_silent_subjects_delay_no_steady_stream() {
    let (server, mut client, _listener) = with_silent_subjects();
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    let url = database.url();
    let target = format!("{}?subject={{topic}}", server.url());
    let running = RelayCommand::to_url(&url, &target).start();
    let seconds = if long_form() { 180 } else { 5 };
    let mut beat = tokio::time::interval(Duration::from_millis(20));
    let began = Timestamp::now();
    for part in 0..seconds * 50 {
        beat.tick().await;
        writer.transact(&part_of_a_stream(part)).await.unwrap();
    }
    let all = u64::from(seconds * 500);
    until("all others to be delivered", || {
        client.stream_state("OTHERS").0 == all
    })
    .await;
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    let messages = client.messages("OTHERS");
    let waits = messages.iter().map(made_and_taken);
    let later = waits.filter(|(made, _)| made.duration_since(began).as_secs() >= 60);
    let mut waits: Vec<Duration> = later.map(|(_, wait)| wait).collect();
    waits.sort_unstable();
    if long_form() {
        let p99 = waits[waits.len() * 99 / 100];
        println!(
            "p99 of {}: {p99:?}, the longest {:?}",
            waits.len(),
            waits.last()
        );
        assert!(
            waits.len() > 50_000 && p99 <= Duration::from_secs(1),
            "{p99:?}"
        );
    }
}
