//! `posthaste relays`: who delivers what, and how it came to be so; fields are a contract.

use posthaste_testkit::process::Running;
use serde_json::Value;

use crate::harness::{LIMIT, World, fits_a_terminal};

fn relay(world: &World, name: &str) -> Running {
    let args = [
        "relay",
        "--from",
        "sqlite:shop.db",
        "--to",
        "file:out.jsonl",
    ];
    let relay = world.start(&[&args[..], &["--name", name]].concat());
    relay.wait_for_stderr("delivering", LIMIT);
    relay
}

fn names(value: &Value) -> Vec<&str> {
    let object = value.as_object().unwrap();
    object.keys().map(String::as_str).collect()
}

#[test]
fn a_killed_relay_and_its_successor_are_named() {
    let world = World::with_outbox();
    let first = relay(&world, "first");
    let pid = first.id();
    let before = world.json(&["relays"]);
    assert_eq!(names(&before), ["relays", "hand_overs"]);
    let shown = &before["relays"][0];
    assert_eq!(
        names(shown),
        [
            "name",
            "registration",
            "version",
            "state",
            "leaving",
            "started_at",
            "lease_expires_at",
            "host",
            "partitions",
            "destinations",
        ]
    );
    assert_eq!(names(&shown["host"]), ["boot_id", "pid_namespace", "pid"]);
    assert_eq!(shown["host"]["pid"], pid);
    assert_eq!(
        (&shown["name"], &shown["state"]),
        (&"first".into(), &"live".into())
    );
    let share = &shown["destinations"][0];
    assert_eq!(names(share), ["name", "partitions", "epoch", "reaches"]);
    assert_eq!(
        (&share["name"], &share["partitions"]),
        (&"default".into(), &64.into())
    );

    first.kill9();
    let second = relay(&world, "second");
    let after = world.json(&["relays"]);
    let owner = after["relays"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["partitions"] == 64);
    assert_eq!(owner.unwrap()["name"], "second", "{after:#}");
    for action in ["fence", "take-over"] {
        let mut lines = after["hand_overs"].as_array().unwrap().iter();
        let line = lines.find(|line| line["action"] == action);
        let line = line.unwrap_or_else(|| panic!("no {action} in {after:#}"));
        assert_eq!(
            names(line),
            ["at", "action", "relay", "destination", "detail"]
        );
        assert_eq!(line["relay"], "second", "{line}");
        assert!(line["detail"].as_str().unwrap().contains("first"), "{line}");
    }
    let text = world.on_store(&["relays"], 0);
    for part in [
        "RELAY",
        "second",
        &format!("{}@", second.id()),
        "fence",
        "take-over",
    ] {
        assert!(text.stdout.contains(part), "{part}:\n{text}");
    }
    // The history is told in full; the relays and their shares fit a terminal.
    let (now, _) = text.stdout.split_once("\nAT ").unwrap();
    fits_a_terminal(now);
    let one = world.json(&["relays", "--last", "1"]);
    assert_eq!(one["hand_overs"].as_array().unwrap().len(), 1);
    second.terminate();
    second.wait(LIMIT).expect_status(0);
}

#[test]
fn without_any_relay_that_is_said() {
    let world = World::with_outbox();
    for history in [false, true] {
        let text = world.on_store(&["relays"], 0);
        assert!(text.stdout.contains("No relay is registered"), "{text}");
        assert_eq!(text.stdout.contains("release"), history, "{text}");
        world.drain("null:", &[], 0);
    }
}
