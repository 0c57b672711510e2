//! Payloads in the forms of a schema registry, read by the clients of its makers.

use std::{path::Path, process::Command};

use posthaste_testkit::{
    packages, process::run, proxy::Proxy, servers::registry::RegistryServer, unique_name,
};

use crate::harness::{LIMIT, World, says, wait_for};

const ORDER: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"},
    {"name": "note", "type": ["null", "string"], "default": null}]}"#;

/// The words of a text that is broken into lines by its width.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The payloads of a file, by the consumer of the documents.
fn read(world: &World, server: &RegistryServer, file: &str) -> Vec<String> {
    let examples = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/examples/python"
    ));
    let mut python = Command::new(packages::python(&examples.join("requirements-schemas.txt")));
    python
        .arg(examples.join("schemas.py"))
        .args([&server.url(), world.path(file).to_str().unwrap()]);
    let finished = run(&mut python, LIMIT).expect_status(0);
    finished.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn payloads_are_read_by_the_clients_of_the_registry() {
    let (world, server) = (World::with_outbox(), RegistryServer::shared());
    let (orders, carts) = (unique_name("orders"), unique_name("carts"));
    server.register(&format!("{orders}-value"), "AVRO", ORDER);
    server.register(
        &format!("{carts}-value"),
        "JSON",
        r#"{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Cart",
            "type": "object", "required": ["id"]}"#,
    );
    world.emit(&orders, "k", r#"{"id": 1, "note": "hi"}"#);
    world.emit(&carts, "k", r#"{"id": 2}"#);
    world.emit(&orders, "k", r#"{"id": 3}"#);
    let url = server.url();
    world.drain("file:out.jsonl", &["--schema-registry", &url], 0);
    assert_eq!(
        read(&world, server, "out.jsonl"),
        [
            r#"{"id": 1, "note": "hi"}"#,
            r#"{"id": 2}"#,
            r#"{"id": 3, "note": null}"#
        ]
    );
}

/// As long as it takes, with no attempt used up; what fits no schema is parked with its reason.
#[test]
fn a_registry_that_comes_late_parks_nothing_but_misfits() {
    let (world, server) = (World::with_outbox(), RegistryServer::shared());
    let subject = unique_name("orders");
    server.register(&subject, "AVRO", ORDER);
    // A registry that is started anew would have no schemas for a while.
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    proxy.refuse();
    world.write(
        "posthaste.toml",
        &format!(
            "[stores.main]\nurl = \"sqlite:shop.db\"\n[destinations.default]\n\
             url = \"file:out.jsonl\"\nattempts = 1\nschema_registry = \"{}\"\n\
             schema_subject = \"{subject}\"\n",
            server.url_through(&proxy)
        ),
    );
    let shown = world.ends(&["check", "--config", "posthaste.toml"], 1);
    let words = in_one_line(&shown.stdout);
    for part in [
        "schema registry",
        "events wait for their schemas",
        "fix: bring it back",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    for key in ["a", "b"] {
        world.emit("t", key, r#"{"id": 1}"#);
    }
    world.emit("t", "c", r#"{"id": "one"}"#);
    let relay = world.start(&["relay", "--config", "posthaste.toml"]);
    wait_for("the place in doubt", || {
        let destination = &world.json(&["status"])["destinations"][0];
        destination["places"][0]["name"] == "t"
    });
    proxy.resume();
    wait_for("all that fit", || {
        world.path("out.jsonl").exists() && world.delivered("out.jsonl").len() == 2
    });
    wait_for("the other one parked", || {
        world.json(&["status"])["destinations"][0]["dead"] == 1
    });
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
    let shown = world.ends(&["dead", "list", "--store", "sqlite:shop.db"], 0);
    says(&shown, &[]);
    let words = in_one_line(&shown.stdout);
    let reason = format!("the schema of the subject `{subject}`");
    assert!(words.contains(&reason), "{words}");
}

/// As many levels as JSON may have: each takes room on a stack.
#[test]
fn a_payload_of_many_levels_is_checked() {
    let (world, server) = (World::with_outbox(), RegistryServer::shared());
    let topic = unique_name("nested");
    server.register(
        &format!("{topic}-value"),
        "JSON",
        r##"{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}"##,
    );
    let payload = format!("{}{{}}{}", r#"{"a":"#.repeat(126), "}".repeat(126));
    world.emit(&topic, "k", &payload);
    world.drain("file:out.jsonl", &["--schema-registry", &server.url()], 0);
    let lines = world.delivered("out.jsonl");
    assert_eq!(lines[0].payload().unwrap()[5..], *payload.as_bytes());
}
