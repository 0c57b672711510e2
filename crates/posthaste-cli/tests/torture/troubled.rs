//! A PostgreSQL that has no room, no connection or no lock for the relay, that turns read-only, or
//! whose outbox is altered beside it.

use std::{sync::Arc, time::Duration};

use posthaste_testkit::{long_form, process::Running, servers::postgres::PostgresServer};

use crate::{
    connections::{delivers, under_load},
    verdict::Lives,
};
use posthaste_torture::{
    database::{Database, Hold, Plan},
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, until},
};

const LEASE: &str = "3s";
const BEYOND_LEASE: Duration = Duration::from_secs(4);
const FLAGS: [&str; 6] = [
    "--window-events",
    "500",
    "--lease",
    LEASE,
    "--settle",
    "200ms",
];

/// The server's answer to a writer while its disk is full.
const FULL: &str = "
    create function full_disk() returns trigger language plpgsql as $$ begin
        raise exception 'could not extend file: No space left on device'
            using errcode = 'disk_full';
    end $$;
    create trigger full_disk before insert or update or delete on posthaste.cursors
        for each row execute function full_disk();
    create trigger full_disk before insert or update or delete on posthaste.relays
        for each row execute function full_disk();
    create trigger full_disk before insert or update or delete on posthaste.audit
        for each row execute function full_disk()";
const ROOM_AGAIN: &str = "drop function full_disk() cascade";

const LOCKS: &str =
    "begin; lock table posthaste.cursors, posthaste.relays in access exclusive mode";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_connections_or_locks_costs_neither_events_nor_order() {
    let server = PostgresServer::builder().start();
    server.psql("postgres", "create role relay login");
    let postgres = Arc::new(Postgres::with_init(&server, &["--relay", "relay"]));
    let delivered = Delivered::new();
    let url = server.url("relay", postgres.name());
    let relay = RelayCommand::new(&url, &delivered).flags(&FLAGS);
    let troubles = async |running: &Running, _: &Load| {
        postgres.rows(FULL);
        running.wait_for_stderr("No space left on device", LIMIT);
        tokio::time::sleep(BEYOND_LEASE).await;
        postgres.rows(ROOM_AGAIN);
        delivers(&*postgres, &delivered).await;

        postgres.rows("alter role relay connection limit 0");
        postgres
            .rows("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'relay'");
        running.wait_for_stderr("too many connections", LIMIT);
        tokio::time::sleep(BEYOND_LEASE).await;
        postgres.rows("alter role relay connection limit -1");
        delivers(&*postgres, &delivered).await;

        let holder = postgres.client().await.unwrap();
        holder.batch_execute(LOCKS).await.unwrap();
        tokio::time::sleep(2 * BEYOND_LEASE).await;
        holder.batch_execute("rollback").await.unwrap();
        delivers(&*postgres, &delivered).await;
    };
    under_load(
        &(Arc::clone(&postgres) as _),
        &relay,
        &delivered,
        OnTrouble::Fail,
        troubles,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_turns_read_only_and_back_costs_neither_events_nor_order() {
    let server = PostgresServer::builder().start();
    let postgres = Arc::new(Postgres::new(&server));
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&postgres.url(), &delivered).flags(&FLAGS);
    let turn = async |running: &Running, load: &Load| {
        let _failing = load.failing();
        server.demote();
        running.wait_for_stderr("read replica", LIMIT);
        server.promote();
    };
    under_load(
        &(Arc::clone(&postgres) as _),
        &relay,
        &delivered,
        OnTrouble::Reconnect,
        turn,
    )
    .await;
}

/// Each in a transaction of its own, as a DBA would type it.
const DDL: [&str; 12] = [
    "alter table posthaste.outbox add column note text",
    "create index on posthaste.outbox (key)",
    "create index concurrently on posthaste.outbox_00 (topic)",
    "alter table posthaste.outbox alter column note set default 'x'",
    "reindex table posthaste.outbox",
    "reindex table concurrently posthaste.cursors",
    "vacuum full posthaste.outbox_00",
    "cluster posthaste.outbox_00 using outbox_00_seq_idx",
    "vacuum full posthaste.cursors",
    "alter table posthaste.outbox_00 set (fillfactor = 90)",
    "analyze posthaste.outbox",
    "alter table posthaste.outbox drop column note",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_is_altered_beside_a_relay_loses_and_reorders_nothing() {
    let postgres = Arc::new(Postgres::new(PostgresServer::shared(15)));
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&postgres.url(), &delivered).flags(&FLAGS);
    let alter = async |_: &Running, _: &Load| {
        for statement in DDL {
            postgres.rows(statement);
            delivers(&*postgres, &delivered).await;
        }
    };
    let (_, verdict) = under_load(
        &(Arc::clone(&postgres) as _),
        &relay,
        &delivered,
        OnTrouble::Fail,
        alter,
    )
    .await;
    verdict.assert_good(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_pins_the_horizon_delays_nothing() {
    let postgres = Arc::new(Postgres::new(PostgresServer::shared(15)));
    let reader = postgres.client().await.unwrap();
    reader
        .batch_execute("begin isolation level repeatable read; select count(*) from facts")
        .await
        .unwrap();
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&postgres.url(), &delivered).flags(&FLAGS);
    let database: Arc<dyn Database> = Arc::clone(&postgres) as Arc<dyn Database>;
    let load = Load::start(&database, OnTrouble::Fail);
    let running = relay.start();
    running.wait_for_stderr("claimed", LIMIT);
    let minutes = Duration::from_secs(if long_form() { 600 } else { 10 });
    tokio::time::sleep(minutes).await;
    delivers(&*postgres, &delivered).await;
    load.stop().await;
    let committed = database.committed().await;
    until("all of it", || delivered.lines() >= committed).await;
    // Dead versions of what a relay keeps stay for as long as the reader: few, since advances are
    // coalesced.
    let kept = postgres.number(
        "select sum(pg_total_relation_size(c)) from unnest(array['posthaste.cursors',
         'posthaste.relays', 'posthaste.destinations', 'posthaste.members']::regclass[]) c",
    );
    println!("{committed} events, state tables of {kept} bytes");
    assert!(kept < 32 << 20, "{kept} bytes");
    reader.batch_execute("rollback").await.unwrap();
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    Lives::first()
        .judge(&*database, &delivered)
        .await
        .assert_good(0);
}

/// I11. The writers' patience with a lock is that which the promise names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_on_postgres_waits_for_no_lock_of_ours_for_200_ms() {
    let server = PostgresServer::shared(15);
    // Small leaves and no window: truncation, the one exclusive lock there is, comes every moment.
    let flags = ["--leaf-rows", "1024", "--retention", "0s"];
    let postgres = Arc::new(Postgres::with_init(server, &flags));
    let database: Arc<dyn Database> = Arc::clone(&postgres) as Arc<dyn Database>;
    postgres.rows(&format!(
        "alter database {} set lock_timeout = '200ms'",
        postgres.name()
    ));
    let delivered = Delivered::new();
    let running = RelayCommand::new(&postgres.url(), &delivered)
        .flags(&FLAGS)
        .start();
    running.wait_for_stderr("claimed", LIMIT);
    let mut writers = Vec::new();
    // A key each: no writer waits for another one.
    for writer in 0..8 {
        let database = Arc::clone(&database);
        writers.push(tokio::spawn(async move {
            let mut writer_of = database.writer().await.unwrap();
            for n in 0..1_500 {
                let hold = if n % 100 == 0 {
                    Hold::For(Duration::from_millis(50))
                } else {
                    Hold::No
                };
                let plan = Plan {
                    hold,
                    ..Plan::of(format!("w{writer}"), 1)
                };
                writer_of
                    .transact(&plan)
                    .await
                    .expect("a lock of ours was waited for");
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    until("a truncation beside the writers", || {
        postgres.number("select count(*) from posthaste.audit where action = 'truncate'") > 0
    })
    .await;
    let committed = database.committed().await;
    until("all of it", || delivered.lines() >= committed).await;
    running.terminate();
    running.wait(LIMIT).expect_status(0);
    Lives::first()
        .judge(&*database, &delivered)
        .await
        .assert_good(0);
}
