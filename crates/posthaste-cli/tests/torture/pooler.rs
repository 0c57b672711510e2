//! Writers and a relay through PgBouncer, which gives a connection of the database to a client for
//! one transaction only, and to ever others in between.

use std::{str::FromStr, sync::Arc};

use posthaste::{Event, Outbox};
use posthaste_testkit::servers::{pgbouncer::PgBouncer, postgres::PostgresServer};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tokio::task::JoinSet;
use tokio_postgres::{NoTls, types::Type};
use uuid::Uuid;

use crate::verdict::Lives;
use posthaste_torture::{
    database::{Database, load_key},
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, assert_no_panic, posthaste, until},
};

/// More than the pooler has connections to the database.
const WRITERS_OF_EACH_CLIENT: u32 = 8;
const TRANSACTIONS: u32 = 40;
const LOCK: &str = "insert into counters as c values ($1, 1)
    on conflict (key) do update set n = c.n + 1 returning n";
const NOTE: &str = "insert into facts values ($1, $2, $3::text::uuid)";

fn event(key: &str, n: i64) -> Event {
    let event = Event::builder("facts").key(key).payload(n.to_string());
    event.build().unwrap()
}

/// No statement is kept, neither by the connection nor by a query, which would give it a name.
async fn write_by_sqlx(url: String, writer: u32) {
    let options = PgConnectOptions::from_str(&url).unwrap();
    let options = options.statement_cache_capacity(0);
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    for transaction in 0..TRANSACTIONS {
        let key = load_key((writer + transaction) % 20);
        let mut tx = connection.begin().await.unwrap();
        let n: i64 = sqlx::query_scalar(LOCK)
            .persistent(false)
            .bind(&key)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        let outbox = Outbox::new();
        let id: Uuid = outbox.emit(&mut *tx, event(&key, n)).await.unwrap().id;
        let note = sqlx::query(NOTE)
            .persistent(false)
            .bind(&key)
            .bind(n)
            .bind(id.to_string());
        note.execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Typed statements have no name either.
async fn write_by_tokio_postgres(url: String, writer: u32) {
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    for transaction in 0..TRANSACTIONS {
        let key = load_key((writer * 3 + transaction) % 20);
        let mut tx = client.transaction().await.unwrap();
        let rows = tx.query_typed(LOCK, &[(&key, Type::TEXT)]).await.unwrap();
        let n: i64 = rows[0].get(0);
        let id = Outbox::new()
            .emit(&mut tx, event(&key, n))
            .await
            .unwrap()
            .id
            .to_string();
        let note = [
            (&key as _, Type::TEXT),
            (&n as _, Type::INT8),
            (&id as _, Type::TEXT),
        ];
        tx.execute_typed(NOTE, &note).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_relay_share_the_connections_of_a_pooler() {
    let server = PostgresServer::builder().start();
    let postgres = Postgres::new(&server);
    let pooler = PgBouncer::start(&server, &["postgres"]);
    let url = pooler.url("postgres", postgres.name());
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&url, &delivered).start();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS_OF_EACH_CLIENT {
        writers.spawn(write_by_sqlx(url.clone(), writer));
        writers.spawn(write_by_tokio_postgres(url.clone(), writer));
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let committed = postgres.committed().await;
    assert_eq!(
        committed,
        u64::from(2 * WRITERS_OF_EACH_CLIENT * TRANSACTIONS)
    );
    until("everything to be delivered", || {
        delivered.lines() >= committed
    })
    .await;
    relay.terminate();
    assert_no_panic(&relay.wait(LIMIT).expect_status(0).stderr);
    Lives::first()
        .judge(&postgres, &delivered)
        .await
        .assert_good(0);
}

/// The sessions of the pool: as many clients take all of them.
const SESSIONS: usize = 4;
/// Among what a relay sets on a connection of its own.
const SETTINGS: &str = "select array[current_setting('plan_cache_mode'), current_setting('jit'),
    current_setting('enable_seqscan'), current_setting('statement_timeout'),
    current_setting('lock_timeout'), current_setting('application_name')]";

async fn settings(url: &str) -> (tokio_postgres::Client, Vec<String>) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("begin").await.unwrap();
    let row = client.query_typed_one(SETTINGS, &[]).await.unwrap();
    (client, row.get(0))
}

/// An application finds every session of the pool as it would find one of its own.
async fn assert_default_settings(pooled: &str, direct: &str) {
    let (_, default) = settings(direct).await;
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        let (client, found) = settings(pooled).await;
        assert_eq!(found, default);
        clients.push(client);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_outlives_restarts_of_its_pooler_and_changes_no_session() {
    const RESTARTS: u32 = 3;
    const BETWEEN: u64 = 200;
    let server = PostgresServer::builder().start();
    let postgres = Arc::new(Postgres::new(&server));
    let pooler = PgBouncer::start(&server, &["postgres"]);
    let url = pooler.url("postgres", postgres.name());
    let delivered = Delivered::new();
    let relay = RelayCommand::new(&url, &delivered);
    let running = relay.start();
    let database: Arc<dyn Database> = Arc::clone(&postgres) as _;
    let load = Load::start(&database, OnTrouble::Fail);
    for life in 0..=RESTARTS {
        let before = delivered.lines();
        until("delivery through the pooler", || {
            delivered.lines() >= before + BETWEEN
        })
        .await;
        assert_default_settings(&url, &postgres.url()).await;
        if life < RESTARTS {
            pooler.restart();
        }
    }
    load.stop().await;
    for command in [
        &["status"][..],
        &["relays"],
        &["dead", "list"],
        &["destination", "pause", "default"],
        &["destination", "resume", "default"],
        &["purge"],
    ] {
        posthaste(&[command, &["--store", &url]].concat()).expect_status(0);
    }
    running.terminate();
    assert_no_panic(&running.wait(LIMIT).expect_status(0).stderr);
    relay.drain(0);
    assert_default_settings(&url, &postgres.url()).await;
    let verdict = Lives::first().judge(&*database, &delivered).await;
    verdict.report.assert_good();
}
