//! Beside an SQLite file that is not used nothing lies that belongs to it.

use std::fs;

use rusqlite::Connection;

use crate::harness::{LIMIT, World, says};

const RELAY: [&str; 5] = ["relay", "--from", "sqlite:shop.db", "--to", "null:"];

impl World {
    fn log_bytes(&self) -> u64 {
        fs::metadata(self.path("shop.db-wal")).map_or(0, |log| log.len())
    }

    /// The state that a killed application leaves: its last commits, in the log alone.
    fn emit_and_leave_the_log(&self) {
        let database = Connection::open(self.path("shop.db")).unwrap();
        database
            .set_db_config(
                rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
                true,
            )
            .unwrap();
        let emit = "insert into posthaste_outbox (topic, payload) values ('t', 'x')";
        database.execute(emit, []).unwrap();
        drop(database);
        assert!(self.log_bytes() > 0);
    }
}

#[test]
fn a_file_behind_an_orderly_stop_may_be_copied_and_replaced() {
    let world = World::with_outbox();
    fs::copy(world.path("shop.db"), world.path("backup.db")).unwrap();
    let relay = world.start(&RELAY);
    relay.wait_for_stderr("claimed", LIMIT);
    for n in 0..200 {
        world.emit("t", "k", &n.to_string());
    }
    assert!(world.log_bytes() > 0);
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
    assert_eq!(world.log_bytes(), 0);

    fs::copy(world.path("shop.db"), world.path("copy.db")).unwrap();
    let copy = Connection::open(world.path("copy.db")).unwrap();
    let events = "select count(*) from posthaste_outbox";
    let copied: u32 = copy.query_row(events, [], |row| row.get(0)).unwrap();
    assert_eq!(copied, 200);

    fs::copy(world.path("backup.db"), world.path("shop.db")).unwrap();
    let restored = Connection::open(world.path("shop.db")).unwrap();
    let checked: String = restored
        .query_row("pragma integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checked, "ok");
    let left: u32 = restored.query_row(events, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    drop(restored);
    world.on_store(&["status"], 0);
}

#[test]
fn each_command_empties_the_log() {
    let world = World::with_outbox();
    assert_eq!(world.log_bytes(), 0);
    world.drain("null:", &[], 0);
    for command in [
        &["init"][..],
        &["status"],
        &["relays"],
        &["dead", "list"],
        &["destination", "list"],
        &["destination", "pause", "default"],
        &["purge"],
    ] {
        world.emit_and_leave_the_log();
        world.on_store(command, 0);
        assert_eq!(world.log_bytes(), 0, "{command:?}");
    }
    world.emit_and_leave_the_log();
    world.on_store(&["destination", "resume", "default"], 0);
    world.emit_and_leave_the_log();
    world.drain("null:", &[], 0);
    assert_eq!(world.log_bytes(), 0);
}

#[test]
fn a_log_that_somebody_reads_is_left_to_them() {
    let world = World::with_outbox();
    let reader = Connection::open(world.path("shop.db")).unwrap();
    reader
        .execute_batch("begin; select count(*) from posthaste_outbox")
        .unwrap();
    world.emit_and_leave_the_log();
    let relay = world.start(&RELAY);
    relay.wait_for_stderr("claimed", LIMIT);
    relay.terminate();
    let stopped = relay.wait(LIMIT).expect_status(0);
    says(&stopped, &["is in use: the log beside it"]);
    assert!(world.log_bytes() > 0);
    reader.execute_batch("commit").unwrap();
}
