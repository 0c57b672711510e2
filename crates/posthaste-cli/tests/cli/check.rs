//! `posthaste check`: what it sees, and with which status it ends.

#[cfg(feature = "pubsub")]
use crate::harness::LIMIT;
use crate::harness::{World, last_json};

const FROM: [&str; 2] = ["--from", "sqlite:shop.db"];

#[test]
fn what_a_check_sees_is_shown_and_nothing_is_changed() {
    let world = World::with_outbox();
    let command = |to: &'static str| [&["check"], &FROM[..], &["--to", to]].concat();
    let file = command("file:out.jsonl?max_event_bytes=2048");
    let shown = world.ends(&file, 0).stdout;
    for part in [
        "Store (sqlite): reached\n",
        "Destination `default` (file): reached\n",
        "  largest event     2.0 KiB\n",
        "  requests at once  1\n",
        "  repeats           kept\n",
        "not there yet",
    ] {
        assert!(shown.contains(part), "without {part:?}:\n{shown}");
    }
    assert!(!world.path("out.jsonl").exists());
    assert_eq!(
        world.json(&["status"])["destinations"],
        serde_json::json!([])
    );

    world.emit("t", "k", "1");
    world.drain("file:out.jsonl", &[], 0);
    let seen = last_json(&world.ends(&[&file[..], &["--json"]].concat(), 0));
    assert_eq!(seen["store"]["error"], serde_json::Value::Null);
    let destination = &seen["destinations"][0];
    assert_eq!(destination["name"], "default");
    assert_eq!(destination["limits"]["event_bytes"], 2_048);
    assert_eq!(destination["limits"]["requests"], 1);
    assert_eq!(destination["deduplication"], serde_json::Value::Null);
    let part = &destination["parts"][0];
    let bytes = std::fs::metadata(world.path("out.jsonl")).unwrap().len();
    assert_eq!(part["kind"], "file");
    assert_eq!(part["facts"]["bytes"], bytes.to_string());
    assert_eq!(destination["findings"], serde_json::json!([]));
}

#[test]
fn a_fault_sets_the_status_and_does_not_hide_the_others() {
    let world = World::with_outbox();
    world.write(
        "posthaste.toml",
        "[stores.main]\nurl = \"sqlite:shop.db\"\n\
         [destinations.good]\nurl = \"null:\"\n\
         [destinations.wrong]\nurl = \"file:absent/out.jsonl\"\n",
    );
    let shown = world
        .ends(&["check", "--config", "posthaste.toml"], 2)
        .stdout;
    assert!(
        shown.contains("Destination `good` (null): reached"),
        "{shown}"
    );
    assert!(shown.contains("absent/out.jsonl"), "{shown}");
    let away = [
        "check",
        "--from",
        "sqlite:none.db",
        "--to",
        "null:",
        "--json",
    ];
    let seen = last_json(&world.ends(&away, 2));
    assert_ne!(seen["store"]["error"], serde_json::Value::Null);
    assert_eq!(seen["destinations"][0]["error"], serde_json::Value::Null);
}

/// As a file system does that is away: the thread that opens the file never comes back.
#[cfg(feature = "pubsub")]
#[test]
fn a_command_ends_beside_a_file_that_hangs() {
    let world = World::with_outbox();
    let mut make = std::process::Command::new("mkfifo");
    make.arg(world.path("credentials"));
    posthaste_testkit::process::run(&mut make, LIMIT).expect_status(0);
    let file = world.path("credentials");
    let to = format!("pubsub://shop/orders?credentials_file={}", file.display());
    world.write(
        "posthaste.toml",
        &format!(
            "[stores.main]\nurl = \"sqlite:shop.db\"\n[destinations.default]\nurl = \"{to}\"\n"
        ),
    );
    world.ends(&["check", "--config", "posthaste.toml"], 1);
}
