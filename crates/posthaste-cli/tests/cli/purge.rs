//! `posthaste purge`, and the window that it goes by.

use std::time::Instant;

use posthaste_testkit::{process::assert_none_ended, servers::postgres::PostgresServer};

use crate::harness::{LIMIT, STORE, World, last_json, says};

fn keep(world: &World, window: &str) {
    let init = world.ends(
        &[&["init"], &STORE[..], &["--retention", window]].concat(),
        0,
    );
    assert!(init.stdout.contains("the outbox is there"), "{init}");
}

#[test]
fn what_is_past_its_time_goes_and_what_pins_the_rest_is_said() {
    let world = World::with_outbox();
    for n in 0..5 {
        world.emit("t", "k", &n.to_string());
    }
    keep(&world, "0s");
    let none = world.on_store(&["purge"], 0);
    says_out(
        &none.stdout,
        &[
            "No event that was delivered",
            "5 events are kept",
            "no destination",
        ],
    );

    world.drain("null:", &[], 0);
    world.on_store(&["destination", "pause", "default"], 0);
    world.emit("t", "k", "5");
    keep(&world, "1h");
    let young = world.json(&["purge"]);
    assert_eq!(young["events_at_most"], 0);
    assert_eq!(young["retention_window_seconds"], 3_600);
    assert_eq!(young["retention_debt_events"], 0);

    keep(&world, "0s");
    let status = world.json(&["status"]);
    assert_eq!(status["retention_debt_events"], 1);
    assert_eq!(status["pinned_by"][0]["kind"], "destination");
    assert_eq!(status["pinned_by"][0]["destination"], "default");
    let gone = world.on_store(&["purge"], 0);
    says_out(
        &gone.stdout,
        &[
            "Removed 5 delivered events",
            "kept for 0s",
            "1 event is kept",
            "`default`: it is paused",
        ],
    );
    let text = world.on_store(&["status"], 0);
    says_out(
        &text.stdout,
        &["1 event is kept beyond that", "it is paused"],
    );
    let again = world.json(&["purge"]);
    assert_eq!(again["events_at_most"], 0);
    assert_eq!(again["in_the_way"], serde_json::Value::Null);

    world.on_store(&["destination", "resume", "default"], 0);
    world.drain("null:", &[], 0);
    assert_eq!(world.json(&["purge"])["events_at_most"], 1);
    assert_eq!(world.json(&["status"])["pinned_by"], serde_json::json!([]));
}

fn says_out(stdout: &str, parts: &[&str]) {
    for part in parts {
        assert!(stdout.contains(part), "{part}:\n{stdout}");
    }
}

#[test]
fn a_window_is_whole_seconds() {
    let world = World::with_outbox();
    let refused = world.on_store(&["init", "--retention", "1500ms"], 2);
    says(&refused, &["1.5s is not whole seconds"]);
    let refused = world.on_store(&["init", "--retention", "200years"], 2);
    says(&refused, &["at most 100 years"]);
}

#[test]
fn leaves_of_the_ring_go_as_a_whole() {
    let world = World::empty();
    // Alone, so that nobody else's transaction keeps anything.
    let server = PostgresServer::builder().start();
    let database = server.create_database();
    let url = database.url();
    let window = ["--leaf-rows", "1024", "--retention", "0s"];
    world.ends(&[&["init", "--store", &url], &window[..]].concat(), 0);
    database.psql(
        "insert into posthaste.outbox (topic, payload)
         select 't', convert_to(i::text, 'UTF8') from generate_series(1, 5000) i",
    );
    let relay = world
        .start(&["relay", "--from", &url, "--to", "file:out.jsonl"])
        .goes_on();
    // Floors follow while the relay runs; nobody sleeps longer than it takes.
    let since = Instant::now();
    while database.psql("select count(*) from posthaste.outbox") != "0" {
        assert_none_ended();
        assert!(since.elapsed() < LIMIT, "the outbox stays");
        world.ends(&["purge", "--store", &url], 0);
    }
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
    assert_eq!(world.payloads("out.jsonl").len(), 5_000);
    let lines = "select count(*) from posthaste.audit where action = 'truncate'";
    assert!(database.psql(lines).parse::<u64>().unwrap() >= 4);
    let nothing = last_json(&world.ends(&["purge", "--store", &url, "--json"], 0));
    assert_eq!(nothing["leaves"], 0);
    assert_eq!(nothing["retention_mode"], "truncate");

    let delete = ["init", "--store", &url, "--retention-mode", "delete"];
    let told = world.ends(&delete, 0);
    assert!(told.stdout.contains("small deletes"), "{told}");
    let now = last_json(&world.ends(&["purge", "--store", &url, "--json"], 0));
    assert_eq!(now["retention_mode"], "delete");
    let refused = world.ends(&["init", "--store", &url, "--retention-mode", "both"], 2);
    says(&refused, &["`truncate` or `delete`"]);
}
