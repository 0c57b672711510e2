//! `posthaste status`: fields are a contract.

use std::time::Instant;

use posthaste_testkit::process::run;
use serde_json::Value;

use crate::harness::{LIMIT, STORE, World, fits_a_terminal};

fn names(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn the_fields_are_those_of_the_contract() {
    let world = World::with_outbox();
    world.emit("t", "k", "1");
    let relay = world.start(&[
        "relay",
        "--from",
        "sqlite:shop.db",
        "--to",
        "file:out.jsonl",
        "--name",
        "r1",
    ]);
    relay.wait_for_stderr("delivering", LIMIT);
    let status = world.json(&["status"]);
    assert_eq!(
        names(&status),
        [
            "pending",
            "pending_exact",
            "parked",
            "dead",
            "blocked_keys",
            "oldest_pending_age_seconds",
            "destinations",
            "relays",
            "retained_bytes",
            "retention_window_seconds",
            "retention_mode",
            "retention_advice",
            "retention_debt_events",
            "retention_debt_exact",
            "pinned_by",
        ]
    );
    assert_eq!(
        names(&status["destinations"][0]),
        [
            "name",
            "kind",
            "address",
            "order",
            "state",
            "paused_places",
            "pending",
            "pending_exact",
            "parked",
            "dead",
            "blocked_keys",
            "oldest_pending_age_seconds",
            "accepted_per_second",
            "breaker",
            "last_error",
            "places_held",
            "places",
        ]
    );
    assert_eq!(
        names(&status["relays"][0]),
        ["name", "version", "state", "lease_expires_at", "partitions"]
    );
    assert_eq!(status["destinations"][0]["kind"], "file");
    // From any working directory.
    let address = format!("file:{}", world.path("out.jsonl").display());
    assert_eq!(status["destinations"][0]["address"], address);
    world.on_store(&["status", "--check"], 0);
    assert_eq!(status["relays"][0]["name"], "r1");
    assert_eq!(status["relays"][0]["state"], "live");
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}

#[test]
fn people_get_a_table_without_colours_where_there_is_no_terminal() {
    let world = World::with_outbox();
    let empty = world.on_store(&["status"], 0);
    assert!(
        empty
            .stdout
            .contains("No destination yet, so no event counts"),
        "{empty}"
    );
    world.drain("null:", &[], 0);
    world.on_store(&["destination", "pause", "default"], 0);
    world.emit("t", "k", "1");
    let status = world.on_store(&["status"], 0);
    for part in [
        "1 pending",
        "DESTINATION",
        "default",
        "null",
        "paused",
        "default: to null:",
        "then removed (delete)",
        "Attention: no relay runs: nothing is being delivered; start `posthaste relay`",
    ] {
        assert!(status.stdout.contains(part), "{part}:\n{status}");
    }
    // Only a relay that serves the destination knows its breaker.
    assert!(!status.stdout.contains("closed"), "{status}");
    fits_a_terminal(&status.stdout);
    assert!(!status.stdout.contains('\x1b'), "{status}");
    world.on_store(&["status", "--check"], 1);
    assert_eq!(world.json(&["status"])["pending"], 1);
    // Behind the subcommand or before its own arguments, the store is named the same way.
    world.ends(&[&["destination"], &STORE[..], &["list"]].concat(), 0);
}

#[test]
fn a_destination_that_accepts_nothing_is_told_unless_it_is_paused() {
    let world = World::with_outbox();
    // A port that nobody listens on: port 1 belongs to a service that no machine runs any more.
    let relay = world.start(&[
        "relay",
        "--from",
        "sqlite:shop.db",
        "--to",
        "kafka://127.0.0.1:1",
        "--lease",
        "2s",
    ]);
    // Its owner reports it at its next turn.
    let began = Instant::now();
    let told = loop {
        let status = [&["status", "--check"], &STORE[..]].concat();
        let told = run(&mut world.command(&status), LIMIT);
        if told.stdout.contains("accepts no events") || began.elapsed() > LIMIT {
            break told.expect_status(1);
        }
    };
    let attention = "Attention: `default` accepts no events; its relay tries again within seconds";
    assert!(told.stdout.contains(attention), "{told}");
    // The client's counts differ from line to line.
    assert!(told.stdout.contains("Connection refused"), "{told}");
    assert!(!told.stdout.contains("(after "), "{told}");
    world.on_store(&["destination", "pause", "default"], 0);
    world.on_store(&["status", "--check"], 0);
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}
