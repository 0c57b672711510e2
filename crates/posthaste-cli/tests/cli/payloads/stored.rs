//! Payloads in object storage, read where their records say.

use std::{fs, thread, time::Duration};

#[cfg(feature = "http")]
use posthaste_testkit::servers::http::WebhookServer;
use posthaste_testkit::{proxy::Proxy, servers::moto::MotoServer, unique_name};

use super::{header, unpacked};
use crate::harness::{LIMIT, World, says, wait_for};

#[test]
fn a_large_payload_is_read_where_its_record_says() {
    let world = World::with_outbox();
    fs::create_dir(world.path("objects")).unwrap();
    let storage = format!("file://{}", world.path("objects").display());
    let large = format!("{{\"text\":\"{}\"}}", "posthaste ".repeat(100_000));
    for payload in [&*large, "small", &*large] {
        world.emit("t", "k", payload);
    }
    let stored = ["--claim-check", &storage, "--compression", "gzip"];
    world.drain("file:stored.jsonl", &stored, 0);
    let lines = world.delivered("stored.jsonl");
    assert_eq!(header(&lines[1], "claim-check"), None);
    let address = header(&lines[0], "claim-check").unwrap();
    assert!(address.starts_with(&storage), "{address}");
    assert_ne!(Some(address), header(&lines[2], "claim-check"));
    assert!(lines[0].payload().unwrap().len() < 500);
    assert_eq!(
        unpacked(&world, "stored.jsonl"),
        [&*large, "small", &*large]
    );

    world.write(
        "posthaste.toml",
        &format!(
            "[stores.main]\nurl = \"sqlite:shop.db\"\n[destinations.a]\nurl = \"null:\"\n\
             claim_check = \"{storage}/absent\"\n"
        ),
    );
    let shown = world.ends(&["check", "--config", "posthaste.toml"], 1);
    for part in [
        "largest event     its own limits",
        "object storage",
        "absent",
        "fix: make the",
    ] {
        assert!(shown.stdout.contains(part), "{part}:\n{}", shown.stdout);
    }
}

/// For longer than an answer may take, several times over.
#[test]
fn storage_that_stands_still_delays_its_keys_alone_and_uses_up_no_attempt() {
    let (world, server) = (World::with_outbox(), MotoServer::shared());
    let bucket = unique_name("bucket");
    server.create_bucket(&bucket);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let storage = format!("s3://{bucket}/large?{}", server.options_through(&proxy));
    world.write(
        "posthaste.toml",
        &format!(
            "[stores.main]\nurl = \"sqlite:shop.db\"\n[relay]\nlease = \"3s\"\n\
             [destinations.default]\nurl = \"file:out.jsonl\"\n\
             claim_check = \"{storage}\"\nclaim_check_bytes = \"10KiB\"\n"
        ),
    );
    proxy.stall();
    let large = |key: &str| format!("{key} ").repeat(10_000);
    for key in ["a", "b"] {
        world.emit("t", key, &large(key));
        world.emit("t", key, "behind it");
    }
    world.emit("t", "c", "first");
    let relay = world.start(&["relay", "--config", "posthaste.toml"]);
    let keys = || -> Vec<_> {
        let lines = world.delivered("out.jsonl").into_iter();
        lines.filter_map(|line| line.key).collect()
    };
    wait_for("the small one", || {
        world.path("out.jsonl").exists() && keys() == ["c"]
    });
    wait_for("the place in doubt", || {
        let destination = &world.json(&["status"])["destinations"][0];
        destination["places"][0]["name"] == "t/claim-check"
    });
    // Some laps of trying again.
    thread::sleep(Duration::from_secs(10));
    world.emit("t", "c", "second");
    wait_for("another small one", || keys() == ["c", "c"]);
    proxy.resume();
    wait_for("all of them", || keys().len() == 6);
    relay.terminate();
    let ended = relay.wait(LIMIT).expect_status(0);
    says(&ended, &["parked=0"]);
    for key in ["a", "b"] {
        let lines = world.delivered("out.jsonl").into_iter();
        let of_key: Vec<_> = lines
            .filter(|line| line.key.as_deref() == Some(key))
            .collect();
        assert_eq!(of_key.len(), 2);
        let address = header(&of_key[0], "claim-check").expect("the large one is first");
        let name = address.strip_prefix(&format!("s3://{bucket}/")).unwrap();
        assert_eq!(server.object(&bucket, name).unwrap(), large(key).as_bytes());
        assert_eq!(of_key[1].payload().unwrap(), b"behind it");
    }
    assert_eq!(server.objects(&bucket).len(), 2);
}

/// The relay dies behind the upload, before its broker has answered.
#[cfg(feature = "http")]
#[test]
fn a_relay_that_is_killed_behind_an_upload_leaves_one_object() {
    let (world, endpoint) = (World::with_outbox(), WebhookServer::start());
    fs::create_dir(world.path("objects")).unwrap();
    let storage = format!("file://{}", world.path("objects").display());
    world.emit("t", "k", &"large ".repeat(100_000));
    endpoint.pause();
    let to = endpoint.url("place") + "?allow_private=true";
    let args = [
        "--from",
        "sqlite:shop.db",
        "--to",
        &to,
        "--claim-check",
        &storage,
    ];
    let relay = world.start(&[&["relay"], &args[..]].concat());
    let objects = || -> Vec<_> {
        let folder = fs::read_dir(world.path("objects/default"));
        let files = folder.into_iter().flatten();
        files.map(|file| file.unwrap().file_name()).collect()
    };
    wait_for("an object", || {
        let found = objects();
        !found.is_empty()
            && found
                .iter()
                .all(|name| !name.to_string_lossy().contains("unfin"))
    });
    relay.kill9();
    let first = objects();
    endpoint.resume();
    world.drain(&to, &["--claim-check", &storage], 0);
    assert_eq!(objects(), first);
    let requests = endpoint.requests("place");
    assert!(!requests.is_empty());
    for request in requests {
        assert!(request.header("ce-headers").unwrap().contains(&storage));
    }
}
