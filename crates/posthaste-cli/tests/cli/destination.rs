//! `posthaste destination`: what operators want of a destination outlives every relay.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;

use crate::harness::{LIMIT, World, says};

#[test]
fn a_pause_outlives_a_restart_and_ends_with_resume() {
    let world = World::with_outbox();
    world.emit("t", "k", "1");
    world.drain("file:out.jsonl", &[], 0);
    let paused = world.on_store(&["destination", "pause", "default"], 0);
    assert!(paused.stdout.contains("is paused"), "{paused}");
    assert!(!paused.stdout.contains("Pausing"), "{paused}");

    world.emit("t", "k", "2");
    world.drain("file:out.jsonl", &["--drain-timeout", "2s"], 4);
    assert_eq!(world.payloads("out.jsonl"), ["1"]);
    let list = world.json(&["destination", "list"]);
    assert_eq!(list["destinations"][0]["state"], "paused");
    assert_eq!(list["destinations"][0]["pending"], 1);

    world.on_store(&["destination", "resume", "default"], 0);
    world.drain("file:out.jsonl", &[], 0);
    assert_eq!(world.payloads("out.jsonl"), ["1", "2"]);
}

#[test]
fn a_running_relay_heeds_pause_and_resume() {
    let world = World::with_outbox();
    let relay = world.start(&[
        "relay",
        "--from",
        "sqlite:shop.db",
        "--to",
        "stdout:",
        "--lease",
        "1s",
    ]);
    world.emit("t", "k", "first");
    relay.wait_for_stdout("first", LIMIT);
    let pausing = world.on_store(&["destination", "pause", "default"], 0);
    assert!(pausing.stdout.contains("Pausing: relay"), "{pausing}");
    relay.wait_for_stderr("paused", LIMIT);
    world.emit("t", "k", "second");
    world.on_store(&["destination", "resume", "default"], 0);
    relay.wait_for_stdout("second", LIMIT);
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}

fn until_delivered(world: &World, payloads: &[&str]) {
    let began = Instant::now();
    while world.payloads("out.jsonl") != payloads && began.elapsed() < LIMIT {}
    assert_eq!(world.payloads("out.jsonl"), payloads);
}

#[test]
fn a_place_is_paused_by_itself() {
    let world = World::with_outbox();
    let relay = [
        "relay",
        "--from",
        "sqlite:shop.db",
        "--to",
        "file:out.jsonl",
        "--lease",
        "1s",
    ];
    let running = world.start(&relay);
    world.emit("slow", "a", "1");
    until_delivered(&world, &["1"]);
    let pause = ["destination", "pause", "default", "--place", "slow"];
    let paused = world.on_store(&pause, 0);
    assert!(paused.stdout.contains("Place `slow`"), "{paused}");
    running.wait_for_stderr("just these places", LIMIT);
    world.emit("slow", "a", "2");
    world.emit("quick", "b", "3");
    until_delivered(&world, &["1", "3"]);
    let status = world.json(&["status"]);
    assert_eq!(status["destinations"][0]["paused_places"], json!(["slow"]));
    assert_eq!(status["destinations"][0]["state"], "active");
    let told = world.on_store(&["status"], 0);
    assert!(told.stdout.contains("`slow`"), "{told}");
    let resume = ["destination", "resume", "default", "--place", "slow"];
    world.on_store(&resume, 0);
    until_delivered(&world, &["1", "3", "2"]);
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    let unknown = ["destination", "pause", "none", "--place", "slow"];
    says(
        &world.on_store(&unknown, 1),
        &["no destination `none`", "default"],
    );
    let nameless = ["destination", "pause", "default", "--place", ""];
    says(&world.on_store(&nameless, 2), &["a place has a name"]);
    let name = "x".repeat(1_025);
    let endless = ["destination", "pause", "default", "--place", &name];
    says(&world.on_store(&endless, 2), &["at most 1024 bytes"]);
}

#[test]
fn a_destination_with_events_pending_is_removed_only_if_that_is_meant() {
    let world = World::with_outbox();
    world.emit("t", "k", "1");
    world.drain("file:out.jsonl", &[], 0);
    world.emit("t", "k", "2");
    says(
        &world.on_store(&["destination", "remove", "default"], 2),
        &[
            "1 pending and 0 parked or dead",
            "kept for 1d",
            "give --yes",
        ],
    );
    world.on_store(&["destination", "remove", "default", "--yes"], 0);
    // Undone as it said.
    world.drain("file:out.jsonl", &[], 0);
    assert_eq!(world.payloads("out.jsonl"), ["1", "1", "2"]);
}

#[test]
fn the_dead_events_of_a_removed_destination_are_sent_by_the_next_of_its_name() {
    let world = World::with_outbox();
    world.ends(
        &["init", "--store", "sqlite:shop.db", "--retention", "0s"],
        0,
    );
    world.emit("t", "k", "larger than ten bytes");
    let strict = "file:out.jsonl?max_event_bytes=10";
    world.drain(strict, &["--attempts", "1"], 3);
    says(
        &world.on_store(&["destination", "remove", "default"], 2),
        &["0 pending and 1 parked or dead", "`dead retry --skipped`"],
    );
    world.on_store(&["destination", "remove", "default", "--yes"], 0);
    let skipped = world.json(&["dead", "list", "--state", "skipped"]);
    assert_eq!(skipped["events"][0]["destination"], "default");
    let retry = ["dead", "retry", "--skipped", "--all"];
    says(
        &world.on_store(&retry, 1),
        &[
            "`default` was removed",
            "start a relay that names `default`",
        ],
    );
    let lenient = "file:out.jsonl";
    world.drain(lenient, &["--start", "now"], 0);
    world.on_store(&retry, 0);
    world.drain(lenient, &[], 0);
    assert_eq!(world.payloads("out.jsonl"), ["larger than ten bytes"]);
}

/// Retention removes the event afterwards: that it was sent must not be forgotten with it.
#[test]
fn an_event_that_the_next_destination_of_the_name_has_sent_is_not_retried() {
    let world = World::with_outbox();
    world.ends(
        &["init", "--store", "sqlite:shop.db", "--retention", "0s"],
        0,
    );
    for payload in ["larger than ten bytes", "2", "3"] {
        world.emit("t", "k", payload);
    }
    let strict = "file:out.jsonl?max_event_bytes=10";
    world.drain(strict, &["--attempts", "1"], 3);
    world.on_store(&["destination", "remove", "default", "--yes"], 0);
    world.drain("file:out.jsonl", &[], 0);
    world.on_store(&["purge"], 0);
    says(
        &world.on_store(&["dead", "retry", "--skipped", "--all"], 1),
        &["no skipped event matches"],
    );
    world.drain("file:out.jsonl", &[], 0);
    let sent = world.payloads("out.jsonl");
    assert_eq!(sent, ["larger than ten bytes", "2", "3"]);
}

#[test]
fn a_live_destination_is_not_removed_and_a_removed_one_begins_anew() {
    let world = World::with_outbox();
    world.emit("t", "k", "1");
    let relay = world.start(&[
        "relay",
        "--from",
        "sqlite:shop.db",
        "--to",
        "file:out.jsonl",
    ]);
    relay.wait_for_stderr("delivering", LIMIT);
    says(
        &world.on_store(&["destination", "remove", "default", "--yes"], 2),
        &[
            "`default` is held by the live relay",
            "fix: stop that relay",
        ],
    );
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);

    // The relay may have stopped before it read the event.
    world.drain("file:out.jsonl", &[], 0);
    world.on_store(&["destination", "remove", "default"], 0);
    assert_eq!(
        world.json(&["status"])["destinations"],
        serde_json::json!([])
    );
    says(
        &world.on_store(&["destination", "pause", "default"], 1),
        &["there is no destination `default`"],
    );
    // The name is a new destination now, from where it is told to start.
    world.drain("file:now.jsonl", &["--start", "now"], 0);
    assert_eq!(world.payloads("now.jsonl"), Vec::<String>::new());
    world.emit("t", "k", "2");
    world.drain("file:now.jsonl", &[], 0);
    assert_eq!(world.payloads("now.jsonl"), ["2"]);
}

/// A new name replays the events that were inserted in some time, and none else.
#[test]
fn a_destination_delivers_the_events_of_its_time_alone() {
    let world = World::with_outbox();
    let now = || {
        // The store's clock counts in whole milliseconds.
        std::thread::sleep(Duration::from_millis(20));
        let now = Timestamp::now();
        std::thread::sleep(Duration::from_millis(20));
        now.to_string()
    };
    let emit = |payload: &str| {
        world.emit("t", "k", payload);
        now()
    };
    let times = ["1", "2", "3", "4"].map(emit);
    let replay = |to: &str, args: &[&str], name: &str| {
        world.drain(to, &[&["--destination", name], args].concat(), 0);
    };
    let [first, _, third, _] = &times;
    replay(
        "file:both.jsonl",
        &["--since", first, "--until", third],
        "both",
    );
    assert_eq!(world.payloads("both.jsonl"), ["2", "3"]);
    replay("file:since.jsonl", &["--since", third], "since");
    assert_eq!(world.payloads("since.jsonl"), ["4"]);
    replay("file:until.jsonl", &["--until", first], "until");
    assert_eq!(world.payloads("until.jsonl"), ["1"]);
    let none_waits = world.json(&["status"])["pending"].clone();
    assert_eq!(none_waits, 0, "the others were passed over");

    let backwards = ["relay", "--from", "sqlite:shop.db", "--to", "null:"];
    let backwards = [&backwards[..], &["--since", third, "--until", first]].concat();
    says(
        &world.ends(&backwards, 2),
        &["no event is inserted", "fix: "],
    );
}
