//! How a relay starts, stops and says how it ended.

#[cfg(feature = "kafka")]
use std::time::Instant;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

#[cfg(feature = "kafka")]
use posthaste_testkit::servers::kafka::KafkaServer;
use posthaste_testkit::{process::run, servers::postgres::PostgresServer};
use rustix::process::{Pid, Signal, kill_process};
#[cfg(feature = "kafka")]
use uuid::Uuid;

use crate::harness::{LIMIT, World, last_json, says};

const RELAY: [&str; 3] = ["relay", "--from", "sqlite:shop.db"];

#[test]
fn both_signals_stop_in_order() {
    for interrupt in [false, true] {
        let world = World::with_outbox();
        world.emit("t", "k", "payload-1");
        let relay = world.start(&[&RELAY[..], &["--to", "stdout:"]].concat());
        relay.wait_for_stdout("payload-1", LIMIT);
        if interrupt {
            relay.interrupt()
        } else {
            relay.terminate()
        }
        let ended = relay.wait(LIMIT).expect_status(0);
        says(&ended, &["stopped destination=default accepted=1 parked=0"]);
        assert_eq!(world.json(&["status"])["relays"], serde_json::json!([]));
        // A stop in order repeats nothing.
        world.drain("file:later.jsonl", &["--retarget"], 0);
        assert!(world.delivered("later.jsonl").is_empty());
    }
}

/// Two relays would share one outbox out between two brokers.
#[test]
fn another_kind_of_destination_is_refused_unless_it_is_meant() {
    let world = World::with_outbox();
    world.emit("t", "k", "1");
    world.drain("file:out.jsonl", &[], 0);
    world.emit("t", "k", "2");
    says(
        &world.ends(&[&RELAY[..], &["--to", "stdout:"]].concat(), 2),
        &[
            "`default`",
            "file:",
            "stdout:",
            "`--destination NAME`",
            "--retarget",
        ],
    );
    let status = world.json(&["status"]);
    assert_eq!(status["relays"], serde_json::json!([]));
    let to = [
        &RELAY[..],
        &["--to", "stdout:", "--retarget", "--until-drained"],
    ]
    .concat();
    let meant = world.ends(&to, 0);
    assert!(
        meant.stdout.contains("\"2\"") && !meant.stdout.contains("\"1\""),
        "{meant}"
    );
}

#[test]
fn another_address_waits_for_the_relays_of_the_old_one() {
    let world = World::with_outbox();
    let old = world.start(&[&RELAY[..], &["--to", "file:old.jsonl", "--name", "old"]].concat());
    old.wait_for_stderr("claimed", LIMIT);
    let new = world.start(&[&RELAY[..], &["--to", "file:new.jsonl", "--name", "new"]].concat());
    new.wait_for_stderr("is delivered to `file:", LIMIT);
    for part in [
        "old.jsonl` by `old`",
        "new.jsonl`; standing by",
        "stop those relays",
    ] {
        new.wait_for_stderr(part, LIMIT);
    }
    world.emit("t", "k", "1");
    old.terminate();
    old.wait(LIMIT).expect_status(0);
    new.wait_for_stderr("claimed", LIMIT);
    world.emit("t", "k", "2");
    new.terminate();
    new.wait(LIMIT).expect_status(0);
    world.drain("file:new.jsonl", &[], 0);
    let both = [world.payloads("old.jsonl"), world.payloads("new.jsonl")].concat();
    assert_eq!(both, ["1", "2"]);
}

#[cfg(feature = "kafka")]
#[test]
fn many_missing_topics_hold_up_no_event_of_another() {
    let world = World::with_outbox();
    let server = KafkaServer::start_with(&[("auto.create.topics.enable", "false")]);
    server.create_topic("orders", 1, &[]);
    let mut database = rusqlite::Connection::open(world.path("shop.db")).unwrap();
    let tx = database.transaction().unwrap();
    let mut insert = tx
        .prepare("insert into posthaste_outbox (topic, key, payload) values (?1, ?1, ?2)")
        .unwrap();
    for n in 0..2_000 {
        insert
            .execute([format!("missing-{n}"), n.to_string()])
            .unwrap();
    }
    for n in 0..200 {
        insert
            .execute(["orders".to_owned(), n.to_string()])
            .unwrap();
    }
    drop(insert);
    tx.commit().unwrap();
    let to = format!("kafka://{}", server.bootstrap());
    // A relay that tries so many again and again is not drained for a while.
    world.drain(&to, &["--drain-timeout", "90s", "--backoff", "1min"], 3);
    assert_eq!(server.count_committed("orders"), 200);
    let status = world.json(&["status"]);
    assert_eq!(status["destinations"][0]["parked"], 2_000);
}

/// Kafka names no record of a batch that it refuses, so the event is sent again, alone.
#[cfg(feature = "kafka")]
#[test]
fn a_single_event_that_is_too_large_leaves_its_destination_there() {
    let world = World::with_outbox();
    let server = KafkaServer::start();
    server.create_topic("orders", 1, &[("max.message.bytes", "1000")]);
    // Noise: the broker counts after compression.
    let noise: String = (0..100).map(|_| Uuid::new_v4().to_string()).collect();
    world.emit("orders", "k", &noise);
    let to = format!("kafka://{}", server.bootstrap());
    let options = ["--to", &to, "--attempts", "1", "--lease", "2s"];
    let relay = world.start(&[&RELAY[..], &options].concat());
    let began = Instant::now();
    let destination = loop {
        let destination = world.json(&["status"])["destinations"][0].clone();
        let is_settled = destination["dead"] == 1 && destination["breaker"] == "closed";
        if is_settled || began.elapsed() > LIMIT {
            break destination;
        }
    };
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
    assert_eq!(destination["dead"], 1, "{destination}");
    assert_eq!(destination["breaker"], "closed", "{destination}");
}

/// As after a fail-over to a cluster that has nothing of what the first accepted.
#[cfg(feature = "kafka")]
#[test]
fn another_cluster_behind_the_same_address_is_said() {
    let world = World::with_outbox();
    let (one, other) = (KafkaServer::start(), KafkaServer::start());
    for server in [&one, &other] {
        server.create_topic("orders", 1, &[]);
    }
    let to = format!("kafka://{},{}", one.bootstrap(), other.bootstrap());
    other.stop();
    for payload in ["1", "2"] {
        world.emit("orders", "k", payload);
        let drained = world.drain(&to, &[], 0);
        assert!(!drained.stderr.contains("another cluster"), "{drained}");
    }
    one.stop();
    other.start_again();
    world.emit("orders", "k", "3");
    let drained = world.drain(&to, &[], 0);
    says(&drained, &["WARN", "another cluster answers", "default"]);
    assert_eq!(
        other.consume(&["orders"]).len(),
        1,
        "what it lacks is not sent again"
    );
}

#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[test]
fn memory_is_jemallocs() {
    let world = World::empty();
    let mut command = world.command(&["--version"]);
    command.env("_RJEM_MALLOC_CONF", "stats_print:true");
    let ended = run(&mut command, LIMIT).expect_status(0);
    says(&ended, &["jemalloc statistics"]);
}

#[test]
fn brokers_that_never_answer_hold_up_no_other_destination_at_the_start() {
    let world = World::with_outbox();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    world.write(
        "relay.toml",
        &format!(
            "[destinations.silent]\nurl = \"amqp://{address}/?exchange=x\"\n\
             [destinations.sound]\nurl = \"file:out.jsonl\"\n\
             [[routes]]\nto = [\"silent\", \"sound\"]\n"
        ),
    );
    world.emit("t", "k", "1");
    let relay = world.start(&[&RELAY[..], &["--config", "relay.toml"]].concat());
    relay.wait_for_stderr("not reachable yet", LIMIT);
    assert_eq!(world.payloads("out.jsonl"), ["1"]);
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}

#[test]
fn a_stop_ends_in_time_while_the_destination_is_away() {
    let world = World::with_outbox();
    fs::create_dir(world.path("away")).unwrap();
    let relay = world.start(
        &[
            &RELAY[..],
            &["--to", "file:away/out.jsonl", "--shutdown-timeout", "5s"],
        ]
        .concat(),
    );
    relay.wait_for_stderr("delivering", LIMIT);
    fs::rename(world.path("away"), world.path("gone")).unwrap();
    world.emit("t", "k", "1");
    relay.wait_for_stderr("away/out.jsonl", LIMIT);
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
    fs::rename(world.path("gone"), world.path("away")).unwrap();
    world.drain("file:away/out.jsonl", &[], 0);
    assert_eq!(world.payloads("away/out.jsonl"), ["1"]);
}

#[test]
fn an_outage_parks_nothing_and_ends_by_itself() {
    let world = World::with_outbox();
    fs::create_dir(world.path("away")).unwrap();
    let relay = world.start(
        &[
            &RELAY[..],
            &["--to", "file:away/out.jsonl", "--attempts", "1"],
        ]
        .concat(),
    );
    relay.wait_for_stderr("delivering", LIMIT);
    fs::rename(world.path("away"), world.path("gone")).unwrap();
    world.emit("t", "k", "1");
    relay.wait_for_stderr("away/out.jsonl", LIMIT);
    fs::rename(world.path("gone"), world.path("away")).unwrap();
    let until = std::time::Instant::now() + LIMIT;
    while world.payloads("away/out.jsonl") != ["1"] {
        assert!(
            std::time::Instant::now() < until,
            "not delivered:\n{}",
            relay.stderr()
        );
        std::thread::yield_now();
    }
    let status = world.json(&["status"]);
    assert_eq!((&status["parked"], &status["dead"]), (&0.into(), &0.into()));
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}

#[test]
fn draining_ends_by_itself_and_says_how() {
    let world = World::with_outbox();
    for n in 0..2_500 {
        if n % 500 == 0 {
            world.emit("t", "k", &n.to_string());
        }
    }
    let done = world.drain("null:", &["--json"], 0);
    let said = last_json(&done);
    assert_eq!(said["drained"], true);
    assert_eq!(said["destinations"][0]["accepted"], 5);
    says(&done, &["drained destination=default accepted=5 parked=0"]);
    says(
        &world.ends(
            &[
                "relay",
                "--from",
                "sqlite:shop.db",
                "--to",
                "stdout:",
                "--json",
            ],
            2,
        ),
        &["standard output"],
    );
}

#[test]
fn a_drain_that_takes_too_long_has_a_status_of_its_own() {
    let world = World::with_outbox();
    world.drain("null:", &[], 0);
    world.on_store(&["destination", "pause", "default"], 0);
    world.emit("t", "k", "1");
    let late = world.drain("null:", &["--drain-timeout", "500ms"], 4);
    says(&late, &["not drained within --drain-timeout"]);
}

#[test]
fn logs_are_json_lines_when_asked_and_hold_no_payload() {
    let world = World::with_outbox();
    world.emit("t", "secret-key", "secret-payload");
    let done = world.drain("null:", &["--log", "json"], 0);
    for line in done.stderr.lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {done}"));
        assert!(line["level"].is_string(), "{done}");
    }
    assert!(!done.stderr.contains("secret-"), "{done}");
}

#[test]
fn a_changed_address_goes_on_where_the_name_stood() {
    let world = World::with_outbox();
    world.emit("t", "k", "1");
    world.drain("file:a.jsonl", &[], 0);
    world.emit("t", "k", "2");
    world.drain("file:b.jsonl", &[], 0);
    assert_eq!(
        (world.payloads("a.jsonl"), world.payloads("b.jsonl")),
        (vec!["1".into()], vec!["2".into()])
    );
    // Another name is another destination, with a start of its own.
    world.drain("file:c.jsonl", &["--destination", "other"], 0);
    assert_eq!(world.payloads("c.jsonl"), ["1", "2"]);
}

#[test]
fn a_second_signal_ends_at_once() {
    let world = World::with_outbox();
    // More than a pipe holds, and nobody reads it: the stop has to wait.
    for _ in 0..20 {
        world.emit("t", "k", &"x".repeat(20_000));
    }
    let args = [&RELAY[..], &["--to", "stdout:", "--shutdown-timeout", "1h"]].concat();
    let mut relay = world
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&relay);
    let mut said = BufReader::new(relay.stderr.take().unwrap()).lines();
    let mut wait_for = |text: &str| {
        let found = said.any(|line| line.unwrap().contains(text));
        assert!(found, "the relay ended without saying {text:?}");
    };
    wait_for("delivering");
    // The first byte shows that a batch is on its way, which the full pipe then holds up.
    relay.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // As `timeout` and other wrappers do: one request, and two signals.
    kill_process(pid, Signal::TERM).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    wait_for("stopping");
    thread::sleep(Duration::from_millis(500));
    let ended = relay.try_wait().unwrap();
    assert_eq!(ended, None, "the same request ended the relay at once");
    kill_process(pid, Signal::INT).unwrap();
    wait_for("a second signal");
    assert_eq!(relay.wait().unwrap().code(), Some(1));
}

#[test]
fn the_size_limit_of_files_is_an_outage_and_no_death() {
    let world = World::empty();
    let database = PostgresServer::shared(15).create_database();
    let url = database.url();
    world.ends(&["init", "--store", &url], 0);
    database.psql(
        "select count(posthaste.emit(topic => 't', payload => repeat('x', 2000), key => 'k'))
         from generate_series(1, 100)",
    );
    // 64 blocks of 512 or 1024 bytes, as the shell has it: less than the events in any case.
    let mut limited = Command::new("sh");
    let relay = "ulimit -f 64; exec \"$0\" relay --from \"$1\" --to file:out.jsonl \
                 --until-drained --drain-timeout 2s";
    limited.args(["-c", relay, env!("CARGO_BIN_EXE_posthaste"), &url]);
    let late = run(limited.current_dir(world.path("")), LIMIT).expect_status(4);
    says(&late, &["File too large"]);
    world.ends(
        &[
            "relay",
            "--from",
            &url,
            "--to",
            "file:out.jsonl",
            "--until-drained",
        ],
        0,
    );
    let mut ids: Vec<_> = world
        .delivered("out.jsonl")
        .into_iter()
        .map(|line| line.id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 100);
}
