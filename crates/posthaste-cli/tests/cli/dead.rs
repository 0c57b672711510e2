//! One poison event among others, from parking to each of its ends.

use serde_json::Value;

use crate::harness::{LIMIT, World, fits_a_terminal, last_json, says};

/// Refuses the poison and nothing else.
const STRICT: &str = "file:out.jsonl?max_event_bytes=20";
const PATIENT: &str = "file:out.jsonl?max_event_bytes=2000";
const POISON: &str = "poison, longer than twenty bytes";

/// Twenty events, five for each of four keys; the second of `k0` is poison. Delivered but for it.
fn poisoned() -> World {
    let world = World::with_outbox();
    for n in 0..5 {
        for key in ["k0", "k1", "k2", "k3"] {
            let poison = (key, n) == ("k0", 1);
            world.emit(
                "t",
                key,
                &if poison {
                    POISON.to_owned()
                } else {
                    format!("{key}-{n}")
                },
            );
        }
    }
    world.drain(
        STRICT,
        &[
            "--attempts",
            "2",
            "--backoff",
            "10ms",
            "--backoff-max",
            "20ms",
        ],
        3,
    );
    world
}

#[test]
fn each_event_that_dies_is_warned_about() {
    let world = World::with_outbox();
    world.emit("t", "k0", POISON);
    let drained = world.drain(STRICT, &["--attempts", "1"], 3);
    says(
        &drained,
        &[
            "to `t` is dead (too_large)",
            "its key waits",
            "`posthaste dead show",
        ],
    );
    assert!(!drained.stderr.contains("again"), "{drained}");
    let status = world.on_store(&["status"], 0);
    assert!(status.stdout.contains("`posthaste dead list`"), "{status}");
}

#[test]
fn long_keys_reasons_and_payloads_are_cut_for_people_alone() {
    let world = World::with_outbox();
    let (key, payload) = ("k".repeat(200), "p".repeat(10_000));
    world.emit(&"t".repeat(200), &key, &payload);
    world.drain(STRICT, &["--attempts", "1"], 3);
    let list = world.on_store(&["dead", "list"], 0);
    let too_wide = list.stdout.lines().find(|line| line.chars().count() > 80);
    assert_eq!(too_wide, None);
    let event = &parked(&world)[0];
    assert_eq!(event["key"], key);
    let id = event["id"].as_str().unwrap();
    let shown = world.on_store(&["dead", "show", id], 0);
    assert!(shown.stdout.contains("--json has all of it"), "{shown}");
    assert!(!shown.stdout.contains(&payload), "{shown}");
    let whole = world.json(&["dead", "show", id]);
    assert_eq!(whole["events"][0]["payload"], payload);
}

fn of_k0(world: &World) -> Vec<String> {
    let lines = world.delivered("out.jsonl").into_iter();
    let k0 = lines.filter(|line| line.key.as_deref() == Some("k0"));
    k0.map(|line| String::from_utf8(line.payload().unwrap()).unwrap())
        .collect()
}

fn parked(world: &World) -> Vec<Value> {
    world.json(&["dead", "list"])["events"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn poison_is_parked_its_key_blocked_and_all_others_are_delivered() {
    let world = poisoned();
    assert_eq!(world.delivered("out.jsonl").len(), 16);
    assert_eq!(of_k0(&world), ["k0-0"]);
    let events = parked(&world);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["key"], "k0");
    assert_eq!(events[0]["destination"], "default");
    assert_eq!(events[0]["kind"], "too_large");
    assert_eq!(events[0]["payload_bytes"], POISON.len());
    let status = world.json(&["status"]);
    assert_eq!(status["blocked_keys"], 1);
    assert_eq!(
        status["parked"].as_u64().unwrap() + status["dead"].as_u64().unwrap(),
        1
    );

    // A list tells no payload, and fits a terminal; `show` tells it.
    let list = world.on_store(&["dead", "list"], 0);
    fits_a_terminal(&list.stdout);
    assert!(
        list.stdout.contains("too_large") && !list.stdout.contains(POISON),
        "{list}"
    );
    assert!(list.stdout.contains(", holds its key"), "{list}");
    assert!(list.stdout.contains("`dead retry`, `dead skip`"), "{list}");
    assert_eq!(events[0]["holds_key"], true);
    let id = events[0]["id"].as_str().unwrap().to_owned();
    let shown = world.on_store(&["dead", "show", &id], 0);
    assert!(shown.stdout.contains(POISON), "{shown}");
    assert_eq!(
        world.json(&["dead", "show", &id])["events"][0]["payload"],
        POISON
    );
}

#[test]
fn retry_after_the_fix_releases_the_key_in_order() {
    let world = poisoned();
    let retried = world.on_store(&["dead", "retry", "--key", "k0"], 0);
    assert!(
        retried.stdout.contains("1 event: will be tried again"),
        "{retried}"
    );
    world.drain(PATIENT, &[], 0);
    assert_eq!(of_k0(&world), ["k0-0", POISON, "k0-2", "k0-3", "k0-4"]);
    assert_eq!(world.delivered("out.jsonl").len(), 20);
    assert_eq!(parked(&world), Vec::<Value>::new());
    assert_eq!(
        world.json(&["dead", "list", "--state", "delivered"])["events"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn retry_without_a_fix_blocks_the_key_again() {
    let world = poisoned();
    world.on_store(&["dead", "retry", "--all"], 0);
    world.drain(STRICT, &["--attempts", "1"], 3);
    assert_eq!(of_k0(&world), ["k0-0"]);
    assert_eq!(parked(&world)[0]["state"], "dead");
}

#[test]
fn skip_lets_the_key_go_on_and_keeps_the_event() {
    let world = poisoned();
    let id = parked(&world)[0]["id"].as_str().unwrap().to_owned();
    let skipped = world.on_store(&["dead", "skip", "--id", &id], 0);
    assert!(
        skipped.stdout.contains("1 event: skipped and kept"),
        "{skipped}"
    );
    world.drain(STRICT, &[], 0);
    assert_eq!(of_k0(&world), ["k0-0", "k0-2", "k0-3", "k0-4"]);
    let shown = world.json(&["dead", "show", &id]);
    assert_eq!(
        (
            shown["events"][0]["state"].as_str(),
            shown["events"][0]["payload"].as_str()
        ),
        (Some("skipped"), Some(POISON))
    );
}

#[test]
fn skipping_is_undone_while_the_event_is_kept() {
    let world = poisoned();
    let id = parked(&world)[0]["id"].as_str().unwrap().to_owned();
    world.on_store(&["dead", "skip", "--id", &id], 0);
    world.drain(STRICT, &[], 0);
    says(
        &world.on_store(&["dead", "retry", "--id", &id], 1),
        &["no parked or dead event matches"],
    );
    world.on_store(&["dead", "retry", "--skipped", "--id", &id], 0);
    world.emit("t", "k0", "k0-5");
    world.drain("file:out.jsonl", &[], 0);
    let expected = ["k0-0", "k0-2", "k0-3", "k0-4"];
    let delivered = of_k0(&world);
    assert_eq!(delivered[..4], expected, "its key had gone on");
    let mut rest = delivered[4..].to_vec();
    rest.sort();
    let mut both = [POISON, "k0-5"];
    both.sort_unstable();
    assert_eq!(rest, both);
}

#[test]
fn a_dead_event_is_something_that_is_not_delivered() {
    let world = World::with_outbox();
    world.emit("t", "k0", POISON);
    world.drain(STRICT, &["--attempts", "1"], 3);
    let relay = world.start(&["relay", "--from", "sqlite:shop.db", "--to", STRICT]);
    relay.wait_for_stderr("claimed", LIMIT);
    world.on_store(&["status", "--check"], 1);
    world.on_store(&["dead", "skip", "--all", "--yes"], 0);
    world.on_store(&["status", "--check"], 0);
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}

#[test]
fn giving_up_all_needs_to_be_meant() {
    let world = poisoned();
    for (action, undone) in [
        ("skip", "`dead retry --skipped`"),
        ("discard", "nothing undoes"),
    ] {
        for which in [&["--all"][..], &["--destination", "default"]] {
            let args = [&["dead", action], which].concat();
            says(
                &world.on_store(&args, 2),
                &[
                    "would give up at most 1 event, at `default`",
                    undone,
                    "give --yes",
                ],
            );
        }
    }
    assert_eq!(parked(&world).len(), 1, "nothing was changed");
}

#[test]
fn discard_lets_the_key_go_on_and_erases_the_payload() {
    let world = poisoned();
    let id = parked(&world)[0]["id"].as_str().unwrap().to_owned();
    let answer = last_json(&world.on_store(
        &[
            "dead",
            "discard",
            "--destination",
            "default",
            "--yes",
            "--json",
        ],
        0,
    ));
    assert_eq!(
        (answer["action"].as_str(), answer["events"].as_u64()),
        (Some("discard"), Some(1))
    );
    world.drain(STRICT, &[], 0);
    assert_eq!(of_k0(&world), ["k0-0", "k0-2", "k0-3", "k0-4"]);
    let shown = world.json(&["dead", "show", &id]);
    assert_eq!(
        (&shown["events"][0]["state"], &shown["events"][0]["payload"]),
        (&Value::from("discarded"), &Value::Null)
    );
}

#[test]
fn a_skipped_event_is_discarded_where_that_is_meant() {
    let world = poisoned();
    world.on_store(&["dead", "skip", "--all", "--yes"], 0);
    let discard = ["dead", "discard", "--skipped", "--all"];
    says(
        &world.on_store(&discard, 2),
        &["would erase the payloads", "give --yes"],
    );
    let discarded = world.on_store(&[&discard[..], &["--yes"]].concat(), 0);
    assert!(
        discarded.stdout.contains("discarded, the payload erased."),
        "{discarded}"
    );
    says(
        &world.on_store(&discard, 1),
        &["no skipped event matches", "nothing was changed"],
    );
}

#[test]
fn by_policy_a_dead_event_is_skipped_and_recorded() {
    let world = World::with_outbox();
    for payload in ["1", POISON, "3"] {
        world.emit("t", "k0", payload);
    }
    world.drain(STRICT, &["--attempts", "1", "--on-dead", "skip"], 0);
    assert_eq!(of_k0(&world), ["1", "3"]);
    assert_eq!(
        world.json(&["dead", "list", "--state", "skipped"])["events"][0]["key"],
        "k0"
    );
}

#[test]
fn a_decision_needs_to_know_on_what() {
    let world = poisoned();
    for action in ["retry", "skip", "discard"] {
        says(
            &world.on_store(&["dead", action], 2),
            &["needs to know which events", "fix: give --id"],
        );
        says(
            &world.on_store(&["dead", action, "--key", "other"], 1),
            &["nothing was changed", "dead list"],
        );
    }
    world.on_store(&["dead", "retry", "--all", "--key", "k0"], 2);
    world.on_store(&["dead", "show", "00000000-0000-7000-8000-000000000000"], 1);
    assert_eq!(parked(&world).len(), 1);
}

#[test]
fn a_row_that_breaks_the_tables_checks_is_parked_and_all_others_go_on() {
    let world = World::with_outbox();
    for n in 0..7 {
        world.emit("t", &format!("k{n}"), &format!("e{n}"));
    }
    let database = rusqlite::Connection::open(world.path("shop.db")).unwrap();
    database
        .execute_batch(
            "pragma ignore_check_constraints = on;
             update posthaste_outbox set headers = 'x', inserted_at = 'now' where seq = 2;
             update posthaste_outbox set id = 'odd', payload = 7 where seq = 3;
             update posthaste_outbox set key = x'ff', occurred_at = 'now' where seq = 5;
             update posthaste_outbox set inserted_at = 1e300 where seq = 7",
        )
        .unwrap();
    let drained = world.drain(PATIENT, &[], 3);
    says(&drained, &["is dead (undecodable)"]);
    assert_eq!(world.payloads("out.jsonl"), ["e0", "e3", "e5"]);
    let events = parked(&world);
    let reasons: Vec<_> = events
        .iter()
        .map(|event| (event["kind"].as_str(), event["reason"].as_str()))
        .collect();
    for (reason, column) in reasons
        .iter()
        .zip(["headers", "payload", "key", "inserted_at"])
    {
        assert_eq!(reason.0, Some("undecodable"), "{reasons:?}");
        let named = format!("`{column}` breaks the table's own checks");
        assert!(reason.1.unwrap().contains(&named), "{reasons:?}");
    }
    assert_eq!(reasons.len(), 4);
    let copied: u32 = database
        .query_row(
            "select count(*) from posthaste_parked as p join posthaste_outbox as o using (seq)
             where (o.id, o.headers, o.payload, o.occurred_at, o.inserted_at)
                is (p.event_id, p.headers, p.payload, p.occurred_at, p.inserted_at)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(copied, 4, "every byte is kept");
    // No attempt reads more of them: dead again, and no loop.
    world.on_store(&["dead", "retry", "--all"], 0);
    world.drain(PATIENT, &[], 3);
    assert_eq!(parked(&world).len(), 4);
    world.on_store(&["dead", "skip", "--all", "--yes"], 0);
    world.drain(PATIENT, &[], 0);
    world.on_store(&["init", "--retention", "0s"], 0);
    let purge = || {
        let purged = world.on_store(&["purge"], 0);
        let left = "select count(*) from posthaste_outbox";
        let left: u32 = database.query_row(left, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "{purged}");
    };
    purge();
    // Nor does the oldest one stop `status` while it is pending, or retention afterwards.
    world.emit("t", "k7", "e7");
    database
        .execute_batch("update posthaste_outbox set inserted_at = x'00'")
        .unwrap();
    assert_eq!(world.json(&["status"])["pending"], 1);
    world.drain(PATIENT, &[], 3);
    world.on_store(&["dead", "skip", "--all", "--yes"], 0);
    world.drain(PATIENT, &[], 0);
    purge();
}
