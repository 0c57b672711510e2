//! `posthaste demo`, and that its proof can fail.

use posthaste_testkit::servers::postgres::PostgresServer;
use serde_json::Value;

use crate::harness::{World, last_json};

const FIELDS: [&str; 6] = [
    "committed",
    "delivered",
    "duplicates",
    "lost",
    "out_of_order",
    "phantom",
];

fn demo(args: &[&str], status: i32) -> Value {
    let world = World::empty();
    let ended = world.ends(
        &[&["demo", "--events", "1000", "--json"], args].concat(),
        status,
    );
    let proof = last_json(&ended);
    let names: Vec<_> = proof
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(names, FIELDS, "{ended}");
    assert_eq!(proof["committed"], 1000, "{ended}");
    assert!(ended.stderr.contains("the warehouse goes away"), "{ended}");
    proof
}

#[test]
fn everything_arrives_once_and_in_order_across_the_outage() {
    let proof = demo(&[], 0);
    for (name, value) in [
        ("delivered", 1000),
        ("lost", 0),
        ("out_of_order", 0),
        ("phantom", 0),
    ] {
        assert_eq!(proof[name], value, "{proof}");
    }
}

#[test]
fn a_lost_a_swapped_and_an_invented_event_are_found() {
    let (lost, swapped, invented) = (
        demo(&["--damage", "drop"], 1),
        demo(&["--damage", "swap"], 1),
        demo(&["--damage", "invent"], 1),
    );
    assert_eq!(
        (&lost["lost"], &lost["delivered"]),
        (&1.into(), &999.into())
    );
    assert!(swapped["out_of_order"].as_u64() >= Some(1), "{swapped}");
    assert_eq!(swapped["lost"], 0);
    assert_eq!(
        (&invented["phantom"], &invented["delivered"]),
        (&1.into(), &1000.into())
    );
}

#[test]
fn a_repeat_is_told_and_allowed() {
    let proof = demo(&["--damage", "repeat"], 0);
    // The outage may repeat some as well.
    assert!(proof["duplicates"].as_u64() >= Some(1), "{proof}");
}

#[test]
fn people_get_the_proof_in_words_and_may_keep_the_files() {
    let world = World::empty();
    let ended = world.ends(&["demo", "--events", "300", "--keep"], 0);
    for part in [
        "The proof",
        "lost",
        "Every committed event arrived",
        "Next, with your own database",
    ] {
        assert!(ended.stdout.contains(part), "{part}:\n{ended}");
    }
    assert!(!ended.stdout.contains('\x1b'), "{ended}");
    let kept = ended
        .stderr
        .split("Kept in ")
        .nth(1)
        .and_then(|rest| rest.split(": ").next());
    let kept = std::path::Path::new(kept.unwrap_or_else(|| panic!("{ended}")));
    assert!(kept.join("warehouse/events.jsonl").is_file(), "{ended}");
    std::fs::remove_dir_all(kept).unwrap();
}

#[test]
fn it_runs_on_somebodys_postgres_and_leaves_nothing_behind() {
    let database = PostgresServer::shared(15).create_database();
    let world = World::empty();
    world.ends(&["init", "--store", &database.url()], 0);
    database.psql("select posthaste.emit(topic => 'theirs', payload => '{}', key => 'k')");
    let proof = demo(&["--store", &database.url()], 0);
    assert_eq!(
        (&proof["delivered"], &proof["phantom"]),
        (&1000.into(), &0.into())
    );
    let schemas =
        database.psql("select count(*) from pg_namespace where nspname like 'posthaste_demo%'");
    assert_eq!(schemas, "0");
    let ended = world.ends(
        &["destination", "list", "--store", &database.url(), "--json"],
        0,
    );
    assert_eq!(last_json(&ended)["destinations"], serde_json::json!([]));
}
