//! `posthaste init` on both kinds of database.

use std::fs;

use posthaste_testkit::servers::postgres::PostgresServer;
use rusqlite::Connection;

use crate::harness::{World, last_json, says};

#[test]
fn sqlite_is_made_once_and_said() {
    let world = World::empty();
    let made = world.ends(
        &["init", "--store", "sqlite:shop.db", "--retention", "48h"],
        0,
    );
    assert!(made.stdout.contains("outbox created"), "{made}");
    assert!(made.stdout.contains("kept for 2d"), "{made}");
    let again = world.ends(&["init", "--store", "sqlite:shop.db"], 0);
    assert!(again.stdout.contains("the outbox is there"), "{again}");
    let json = last_json(&world.ends(&["init", "--store", "sqlite:shop.db", "--json"], 0));
    assert_eq!(json["applied"], serde_json::json!([]));
    assert!(json["version"].as_u64() >= Some(1));
}

#[test]
fn the_printed_sql_makes_the_same_outbox() {
    let world = World::empty();
    let sql = world.ends(&["init", "--store", "sqlite:shop.db", "--sql"], 0);
    assert!(!world.path("shop.db").exists(), "{sql}");
    Connection::open(world.path("shop.db"))
        .unwrap()
        .execute_batch(&sql.stdout)
        .unwrap();
    world.emit("t", "k", "1");
    world.drain("file:out.jsonl", &[], 0);
    assert_eq!(world.payloads("out.jsonl"), ["1"]);

    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let sql = world.ends(&["init", "--store", &database.url(), "--sql"], 0);
    database.psql(&sql.stdout);
    world.ends(&["status", "--store", &database.url()], 0);
}

#[test]
fn tables_of_others_with_names_of_ours_are_refused_and_left() {
    let tables = [
        "create table NAMEoutbox (id integer)",
        "create table NAMEmigrations (id integer)",
        "create table NAMEmigrations (version integer, name text, min_relay integer)",
        "create table NAMEmigrations (version text, name text, min_relay text);
         insert into NAMEmigrations values ('one', '', '')",
        "create table NAMEmigrations (version integer, name text, min_relay integer);
         insert into NAMEmigrations values (3, '', 0)",
        "create view NAMEsettings as select 1 as name",
    ];
    for table in tables {
        let world = World::empty();
        Connection::open(world.path("theirs.db"))
            .unwrap()
            .execute_batch(&table.replace("NAME", "posthaste_"))
            .unwrap();
        let before = fs::read(world.path("theirs.db")).unwrap();
        let refused = world.ends(&["init", "--store", "sqlite:theirs.db"], 2);
        says(
            &refused,
            &[
                "theirs.db: ",
                "not posthaste's",
                "posthaste_",
                "give another",
            ],
        );
        assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
        let files = fs::read_dir(world.path("")).unwrap().count();
        assert_eq!(
            (fs::read(world.path("theirs.db")).unwrap(), files),
            (before, 1)
        );
    }

    let world = World::empty();
    let server = PostgresServer::shared(15);
    for table in tables {
        let database = server.create_database();
        database.psql("create schema posthaste");
        database.psql(&table.replace("NAME", "posthaste."));
        let refused = world.ends(&["init", "--store", &database.url()], 2);
        says(
            &refused,
            &["not posthaste's", "schema `posthaste`", "another database"],
        );
        assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
        let left = database
            .psql("select count(*) from pg_class where relnamespace = 'posthaste'::regnamespace");
        assert_eq!(left.trim(), "1");
    }
}

#[test]
fn what_a_kind_of_store_cannot_do_is_refused() {
    let world = World::empty();
    for (flag, value) in [
        ("--writer", "app"),
        ("--relay", "mover"),
        ("--leaf-rows", "1024"),
    ] {
        let refused = world.ends(&["init", "--store", "sqlite:shop.db", flag, value], 2);
        says(&refused, &[flag, "fix: "]);
    }
    let refused = world.ends(
        &["init", "--store", "sqlite:shop.db", "--partitions", "65"],
        2,
    );
    says(&refused, &["power of two"]);
    assert!(!world.path("shop.db").exists());
    says(
        &world.ends(&["init", "--store", "sqlite:no/such/shop.db"], 2),
        &["no such directory"],
    );
}

#[test]
fn roles_get_what_they_need_and_no_more() {
    let world = World::empty();
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let (writer, relay) = (
        format!("{}_app", database.name()),
        format!("{}_mover", database.name()),
    );
    database.psql(&format!(
        "create role {writer} login; create role {relay} login"
    ));
    let url = database.url();
    let made = world.ends(
        &[
            "init", "--store", &url, "--writer", &writer, "--relay", &relay,
        ],
        0,
    );
    for said in [
        "outbox created",
        "may write events, and nothing else",
        "may run a relay",
    ] {
        assert!(made.stdout.contains(said), "{made}");
    }

    // The writer writes, and cannot read; the relay delivers.
    let sql = "select posthaste.emit(topic => 't', payload => '{}', key => 'k')";
    posthaste_testkit::process::run(
        std::process::Command::new(PostgresServer::client_programs().join("psql")).args([
            "-X",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            &database.url_for(&writer),
            "-c",
            sql,
        ]),
        crate::harness::LIMIT,
    )
    .expect_status(0);
    let as_writer = database.url_for(&writer);
    let refused = world.ends(&["relay", "--from", &as_writer, "--to", "null:"], 2);
    says(&refused, &["posthaste init", "--relay"]);
    let as_relay = database.url_for(&relay);
    let to = ["--to", "file:out.jsonl", "--until-drained"];
    world.ends(
        &[&["relay", "--from", as_relay.as_str()], &to[..]].concat(),
        0,
    );
    assert_eq!(world.payloads("out.jsonl"), ["{}"]);
    world.ends(&["status", "--store", &as_relay], 0);
}
