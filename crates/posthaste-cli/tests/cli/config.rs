//! Configuration: what the file, the environment and the flags may say.

use std::fs;

use posthaste_testkit::process::run;
use rusqlite::Connection;

use crate::harness::{LIMIT, World, says};

#[test]
fn an_error_names_file_line_place_and_fix() {
    let world = World::with_outbox();
    world.write(
        "relay.toml",
        "[stores.main]\nurl = \"sqlite:shop.db\"\n\n[relay]\nleese = \"15s\"\n",
    );
    let failed = world.ends(&["relay", "--config", "relay.toml", "--to", "null:"], 2);
    says(
        &failed,
        &[
            "unknown key `leese` in [relay]",
            "--> relay.toml:5:1",
            "5 | leese = …",
            "  | ^^^^^",
            "fix: did you mean `lease`?",
        ],
    );
}

#[test]
fn every_way_to_be_wrong_is_told_with_its_fix() {
    let world = World::with_outbox();
    let store = "[stores.main]\nurl = \"sqlite:shop.db\"\n";
    for (text, args, parts) in [
        (
            "[relay]\nlease = 15\n",
            &["--to", "null:"][..],
            &["a duration with its unit", "lease = \"15s\""][..],
        ),
        (
            "[relay]\nmax_partitions = 5000\n",
            &["--to", "null:"],
            &["`max_partitions` in [relay]", "a number from 1 to 4096"],
        ),
        (
            "[relay]\nwindow_size = \"8\"\n",
            &["--to", "null:"],
            &["`8` is not a size", "8MiB"],
        ),
        (
            "[destinations.a]\nurl = \"${POSTHASTE_TEST_ABSENT}\"\n",
            &[],
            &["`POSTHASTE_TEST_ABSENT` is not set", "relay.toml:4:7"],
        ),
        (
            "[destinations.a]\nurl = \"null:\"\n[[routes]]\nto = [\"b\"]\n",
            &[],
            &["leads to `b`", "[destinations.b]"],
        ),
        (
            "[destinations.a]\nurl = \"nul:\"\n",
            &[],
            &["no sink `nul`", "did you mean `null:`?"],
        ),
        (
            "[destinations.a]\nurl = \"null:\"\n[destinations.b]\nurl = \"amqp://h/?exchage=x\"\n",
            &[],
            &["destination `b`: ", "did you mean `exchange`?"],
        ),
        ("", &[], &["no destination is named", "fix: give --to URL"]),
        (
            "",
            &["--destination", "a"],
            &["--destination names the destination of --to", "fix: "],
        ),
        (
            "",
            &["--to", "null:", "--destination", "a b"],
            &["cannot name a destination", "fix: "],
        ),
        (
            "",
            &["--to", "null:", "--lease", "500ms"],
            &["the lease is shorter than 1s", "fix: "],
        ),
        (
            "",
            &["--to", "null:", "--publish-timeout", "20s"],
            &["two thirds of the lease"],
        ),
        (
            "",
            &["--to", "null:", "--lease", "15"],
            &["`15` is not a duration"],
        ),
        (
            "",
            &["--to", "null:", "--drain-timeout", "1s"],
            &["--until-drained"],
        ),
    ] {
        world.write("relay.toml", &format!("{store}{text}"));
        let failed = world.ends(&[&["relay", "--config", "relay.toml"], args].concat(), 2);
        says(&failed, parts);
    }
    says(
        &world.ends(&["relay", "--config", "absent.toml", "--to", "null:"], 2),
        &["absent.toml", "fix: "],
    );
    says(
        &world.ends(&["relay", "--to", "null:"], 2),
        &["no store is named", "POSTHASTE_FROM"],
    );
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_file() {
    let world = World::with_outbox();
    world.emit("t", "k", "1");
    world.write(
        "relay.toml",
        "[stores.main]\nurl = \"sqlite:absent.db\"\n\
         [destinations.default]\nurl = \"file:file.jsonl\"\n",
    );
    let relay = ["relay", "--config", "relay.toml", "--until-drained"];
    // The file's store does not exist: the environment's is used.
    run(
        world
            .command(&relay)
            .env("POSTHASTE_FROM", "sqlite:shop.db"),
        LIMIT,
    )
    .expect_status(0);
    assert_eq!(world.payloads("file.jsonl"), ["1"]);

    world.emit("t", "k", "2");
    let mut from_env = world.command(&relay);
    from_env
        .env("POSTHASTE_FROM", "sqlite:shop.db")
        .env("POSTHASTE_TO", "file:env.jsonl")
        .args(["--destination", "second"]);
    run(&mut from_env, LIMIT).expect_status(0);
    assert_eq!(world.payloads("env.jsonl"), ["1", "2"]);

    world.emit("t", "k", "3");
    let flags = ["--from", "sqlite:shop.db", "--to", "file:flag.jsonl"];
    let mut from_flags = world.command(&[&relay[..], &flags].concat());
    from_flags
        .env("POSTHASTE_FROM", "sqlite:absent.db")
        .env("POSTHASTE_TO", "file:env.jsonl")
        .args(["--destination", "third"]);
    run(&mut from_flags, LIMIT).expect_status(0);
    assert_eq!(world.payloads("flag.jsonl"), ["1", "2", "3"]);
    assert_eq!(world.payloads("env.jsonl"), ["1", "2"]);
    assert_eq!(world.payloads("file.jsonl"), ["1", "2", "3"]);
}

#[test]
fn nothing_but_the_file_redirects_a_destination_of_the_file() {
    let world = World::with_outbox();
    world.write(
        "relay.toml",
        "[stores.main]\nurl = \"sqlite:shop.db\"\n\
         [destinations.default]\nurl = \"file:file.jsonl\"\n",
    );
    let relay = ["relay", "--config", "relay.toml", "--until-drained"];
    let with = |to: &'static str| [&relay[..], &["--to", to]].concat();
    world.emit("t", "k", "1");
    let by_flag = world.ends(&with("file:other.jsonl"), 2);
    let goes = "destination `default` goes to file:file.jsonl by the file of --config";
    says(
        &by_flag,
        &[goes, "to file:other.jsonl by --to", "fix: take --to away"],
    );
    let mut by_environment = world.command(&relay);
    by_environment.env("POSTHASTE_TO", "file:other.jsonl");
    let by_environment = run(&mut by_environment, LIMIT).expect_status(2);
    says(&by_environment, &[goes, "by POSTHASTE_TO"]);
    assert_eq!(world.payloads("other.jsonl"), [""; 0]);
    // The same address is no redirection.
    world.ends(&with("file:file.jsonl"), 0);
    assert_eq!(world.payloads("file.jsonl"), ["1"]);
}

#[test]
fn secrets_come_from_files_and_a_password_on_the_command_line_warns() {
    let world = World::with_outbox();
    let configuration = "[stores.main]\nurl = \"${file:url.secret}\"\n";
    world.write("url.secret", "sqlite:shop.db\n");
    world.write("relay.toml", configuration);
    world.ends(&["status", "--config", "relay.toml"], 0);
    // Beside the file, as systemd and an administrator have both in folders of their own.
    fs::create_dir(world.path("etc")).unwrap();
    fs::rename(world.path("url.secret"), world.path("etc/url.secret")).unwrap();
    world.write("etc/relay.toml", configuration);
    world.ends(&["status", "--config", "etc/relay.toml"], 0);

    let warned = world.ends(&["status", "--store", "sqlite:shop.db?password=hunter2"], 2);
    says(
        &warned,
        &[
            "warning: the secret in --store can be seen",
            "set POSTHASTE_FROM instead",
        ],
    );
    assert!(!warned.stderr.contains("hunter2"), "{warned}");
}

#[test]
fn an_address_in_a_wrong_place_is_not_repeated() {
    let world = World::with_outbox();
    let address = "amqp://u:hunter2@h/";
    let flag = format!("--too={address}");
    let unknown = world.on_store(&["destination", "pause", address], 1);
    says(&unknown, &["no destination `…`", "fix: "]);
    assert!(!unknown.stderr.contains("hunter2"), "{unknown}");
    for args in [
        &[address][..],
        &["relay", address],
        &["relay", &flag],
        &["relay", "-amqp:u:hunter2@h"],
        &["relay", "--lease", address],
        &["relay", "--batch-size", address],
        &["relay", "--attempts", address],
        &["relay", "--start", address],
        &["relay", "--on-dead", address],
        &["relay", "--log", address],
        &["relay", "--http", address],
        &["relay", "--to", "null:", "--destination", address],
        &["relay", "--config", address],
        &["init", "--partitions", address],
        &["init", "--retention-mode", address],
        &["init", "--notify", address],
        &["dead", address],
        &["dead", "list", "--limit", address],
        &["purge", address],
    ] {
        let refused = world.ends(args, 2);
        says(&refused, &["error: "]);
        assert!(!refused.stderr.contains("hunter2"), "{refused}");
        assert!(!refused.stdout.contains("hunter2"), "{refused}");
    }
    let mut logging = world.command(&["relay", "--from", "sqlite:shop.db", "--to", "null:"]);
    let refused = run(logging.env("POSTHASTE_LOG", format!("a={address}")), LIMIT).expect_status(2);
    says(&refused, &["POSTHASTE_LOG=…", "fix: write a level"]);
    assert!(!refused.stderr.contains("hunter2"), "{refused}");
}

/// Nothing that a command prints or that the relay writes, in any file.
#[test]
fn a_password_in_an_address_without_slashes_is_shown_and_stored_nowhere() {
    is_shown_and_stored_nowhere(
        "amqp:shop:hunter2@127.0.0.1:1/shop?exchange=e",
        "amqp:shop:***@127.0.0.1:1/shop?exchange=e",
    );
}

#[cfg(feature = "nats")]
#[test]
fn a_token_in_an_address_is_shown_and_stored_nowhere() {
    is_shown_and_stored_nowhere("nats://hunter2@127.0.0.1:1/", "nats://***@127.0.0.1:1/");
}

fn is_shown_and_stored_nowhere(url: &str, masked: &str) {
    let world = World::with_outbox();
    let relay = world.start(&["relay", "--from", "sqlite:shop.db", "--to", url]);
    relay.wait_for_stderr("claimed", LIMIT);
    let status = world.on_store(&["status"], 0);
    relay.terminate();
    let relay = relay.wait(LIMIT);
    says(&relay, &["warning: the secret in --to can be seen"]);
    for file in fs::read_dir(world.path("")).unwrap() {
        let file = file.unwrap().path();
        let bytes = fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("hunter2"), "{}", file.display());
    }
    world.write("relay.toml", &format!("[destinations.a]\nurl = \"{url}\n"));
    let refused = world.ends(&["relay", "--config", "relay.toml"], 2);
    says(
        &refused,
        &["not valid TOML", "--> relay.toml:2:", "2 | url = …"],
    );
    let shown = world.on_store(&["destination", "list"], 0);
    // As a former version may have stored it.
    Connection::open(world.path("shop.db"))
        .unwrap()
        .execute("update posthaste_destinations set url = ?1", [url])
        .unwrap();
    let stored = world.on_store(&["status"], 0);
    let stored_json = world.on_store(&["status", "--json"], 0);
    assert!(status.stdout.contains(masked), "{status}");
    for finished in [&relay, &status, &refused, &shown, &stored, &stored_json] {
        assert!(!finished.stderr.contains("hunter2"), "{finished}");
        assert!(!finished.stdout.contains("hunter2"), "{finished}");
    }
}

#[test]
fn templates_and_routes_shape_what_arrives() {
    let world = World::with_outbox();
    world.emit("orders.new", "k", "1");
    world.emit("debug.x", "k", "2");
    world.emit("stock", "k", "3");
    world.write(
        "relay.toml",
        r#"
[stores.main]
url = "sqlite:shop.db"
[destinations.orders]
url = "file:orders.jsonl"
topic = "shop.{topic}"
key = "{{{key}}}"
[destinations.rest]
url = "file:rest.jsonl"
[[routes]]
topic = "orders.*"
to = ["orders", "rest"]
[[routes]]
topic = "debug.*"
drop = true
[[routes]]
to = ["rest"]
"#,
    );
    world.ends(&["relay", "--config", "relay.toml", "--until-drained"], 0);
    let orders = world.delivered("orders.jsonl");
    assert_eq!(orders.len(), 1);
    assert_eq!(
        (orders[0].topic.as_str(), orders[0].key.as_deref()),
        ("shop.orders.new", Some("{k}"))
    );
    assert_eq!(world.payloads("rest.jsonl"), ["1", "3"]);
}

#[test]
fn events_that_no_route_takes_are_warned_about_and_counted() {
    let world = World::with_outbox();
    world.emit("orders", "k", "1");
    world.emit("stock", "k", "2");
    world.write(
        "relay.toml",
        "[stores.main]\nurl = \"sqlite:shop.db\"\n[destinations.a]\nurl = \"file:a.jsonl\"\n\
         [[routes]]\ntopic = \"orders\"\nto = [\"a\"]\n",
    );
    let done = world.ends(
        &[
            "relay",
            "--config",
            "relay.toml",
            "--until-drained",
            "--json",
        ],
        0,
    );
    says(&done, &["WARN", "add a last route without conditions"]);
    let counted = crate::harness::last_json(&done);
    assert_eq!(counted["destinations"][0]["unrouted"], 1, "{done}");
    assert_eq!(world.payloads("a.jsonl"), ["1"]);
}
