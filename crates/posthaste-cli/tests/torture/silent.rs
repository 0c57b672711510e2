//! A broker that takes events and never answers for some places, while it answers for others.

use std::collections::BTreeMap;

use posthaste_testkit::servers::{nats::NatsServer, postgres::PostgresServer};
use posthaste_torture::{
    database::{Database, Plan, Step, load_key},
    postgres::Postgres,
    relay::{LIMIT, RelayCommand, assert_no_panic, posthaste, posthaste_json, until},
};
use serde_json::json;

const SILENT: u32 = 100;
const EVENTS_OF_SILENT: u32 = 30;

/// They are three times as many as the window holds, and in front of all others. Another client
/// listens to their subjects, so that NATS neither refuses nor answers them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_silent_subjects_hold_up_no_other_and_get_all_in_order() {
    let server = NatsServer::start();
    let (mut client, mut listener) = (server.client(), server.client());
    client.create_stream("OTHERS", &["other"], &json!({}));
    listener.listen("silent.>");
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
