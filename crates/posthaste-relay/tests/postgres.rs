//! The relay over PostgreSQL, where somebody else has changed what its statements rely on.

#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, sync::Arc, time::Duration};

use posthaste_engine::{Admin, Retention, StoreError};
use posthaste_relay::{
    Destination, Health, Relay, RelayBuilder, RelayError, Summary, memory::MemorySink,
};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::servers::{
    pgbouncer::PgBouncer,
    postgres::{Database, PostgresServer, odd_settings},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// Only what hangs meets it.
const LIMIT: Duration = Duration::from_secs(120);

struct Running {
    stop: oneshot::Sender<()>,
    relay: JoinHandle<Summary>,
    health: Health,
}

impl Running {
    fn start(builder: RelayBuilder) -> Self {
        let (stop, stopped) = oneshot::channel();
        let relay = builder.build().unwrap();
        let health = relay.health();
        let shutdown = async { drop(stopped.await) };
        Self {
            stop,
            relay: tokio::spawn(async { relay.run(shutdown).await.unwrap() }),
            health,
        }
    }

    fn last_error(&self) -> Option<String> {
        self.health.destinations()[0].counted.last_error.clone()
    }

    async fn stop(self) -> Summary {
        self.stop.send(()).unwrap();
        self.relay.await.unwrap()
    }
}

fn relay(url: &str, sink: &MemorySink) -> RelayBuilder {
    let destination = Destination::new("default", Arc::new(sink.clone()));
    Relay::builder(Arc::new(PostgresStore::new(url).unwrap())).destination(destination)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(LIMIT, wait).await;
    assert!(waited.is_ok(), "in vain for {what}");
}

fn payloads(sink: &MemorySink) -> Vec<String> {
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    let accepted = sink.accepted();
    accepted.iter().map(|r| text(r.value().unwrap())).collect()
}

/// Claims of the destination so far.
fn epoch(database: &Database) -> String {
    database.psql("select epoch from posthaste.destinations")
}

fn role(database: &Database, name: &str, attributes: &str) -> String {
    let role = format!("{name}_{}", database.name());
    database.psql(&format!("create role {role} login {attributes}"));
    role
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_level_security_stops_a_running_relay_until_it_is_off_and_hides_nothing() {
    let database = PostgresServer::shared(15).create_database();
    let role = role(&database, "relay", "");
    let options = InitOptions {
        relay: Some(role.clone()),
        ..InitOptions::default()
    };
    init(&database.url(), &options).await.unwrap();
    let emit = |from: u32, to: u32| {
        database.psql(&format!(
            "select posthaste.emit('t', n::text) from generate_series({from}, {to}) n"
        ));
    };
    let sink = MemorySink::new();
    let url = database.url_for(&role);
    let running = Running::start(relay(&url, &sink).lease(Duration::from_secs(3)));
    emit(1, 5);
    until("the first events", async || payloads(&sink).len() == 5).await;
    let claims = epoch(&database);

    database.psql(
        "alter table posthaste.outbox enable row level security;
         create policy writers on posthaste.outbox for insert with check (true)",
    );
    emit(6, 10);
    let said =
        |error: Option<String>| error.is_some_and(|error| error.contains("row-level security"));
    until("the reason", async || said(running.last_error())).await;
    let operator = PostgresStore::new(&database.url()).unwrap();
    until("the reason in the database", async || {
        said(
            operator.status().await.unwrap().destinations[0]
                .last_error
                .clone(),
        )
    })
    .await;
    // Time goes by, and it is not claimed again and again.
    let renewed =
        database.psql("select max(lease_until) + interval '4 seconds' from posthaste.relays");
    until("renewals", async || {
        let later = format!("select max(lease_until) > '{renewed}' from posthaste.relays");
        database.psql(&later) == "t"
    })
    .await;
    assert_eq!(epoch(&database), claims);
    assert_eq!(payloads(&sink).len(), 5);
    let drain = relay(&url, &MemorySink::new()).until_drained(true).build();
    let drained = drain.unwrap().run(std::future::pending()).await;
    let Err(RelayError::Store(StoreError::Denied { reason, .. })) = drained else {
        panic!("{drained:?}");
    };
    assert!(reason.contains("posthaste.outbox"), "{reason}");

    database.psql("alter table posthaste.outbox disable row level security");
    until("all events", async || payloads(&sink).len() == 10).await;
    until("the reason to be gone", async || {
        running.last_error().is_none()
            && operator.status().await.unwrap().destinations[0]
                .last_error
                .is_none()
    })
    .await;
    let expected: Vec<_> = (1..=10).map(|n: u32| n.to_string()).collect();
    assert_eq!(payloads(&sink), expected);
    let again = claims.parse::<u32>().unwrap() + 1;
    assert_eq!(epoch(&database), again.to_string());
    assert!(running.stop().await.clean);
}

const WRITERS: usize = 4;
const TRANSACTIONS: usize = 50;

/// Each writer has its own key, and numbers its events.
async fn write(database: &Database) {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let url = database.url();
        writers.spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
                .await
                .unwrap();
            tokio::spawn(connection);
            for n in 0..TRANSACTIONS {
                let emit = format!(
                    "begin; select posthaste.emit('t', '{writer} {n}', key => 'Größe {writer}'); \
                     commit"
                );
                client.batch_execute(&emit).await.unwrap();
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap();
    }
}

/// Roles that initialise, relay and operate have these settings; those that write have not.
async fn delivers_as_ever(version: u16, pooled: bool, isolation: &str) {
    let server = PostgresServer::shared(version);
    let database = server.create_database();
    let role = role(&database, "odd", "superuser");
    database.psql(&odd_settings(&format!("role {role}"), version));
    database.psql(&format!(
        "alter role {role} set default_transaction_isolation = '{isolation}'"
    ));
    let pooler = pooled.then(|| PgBouncer::start(server, &[&role]));
    let url = match &pooler {
        None => database.url_for(&role),
        Some(pooler) => pooler.url(&role, database.name()),
    };
    init(&url, &InitOptions::default()).await.unwrap();
    let sink = MemorySink::new();
    let running = Running::start(relay(&url, &sink));
    write(&database).await;
    until("all events", async || {
        payloads(&sink).len() >= WRITERS * TRANSACTIONS
    })
    .await;
    let store = PostgresStore::new(&url).unwrap();
    store.housekeep(None).await.unwrap();
    store.retained().await.unwrap();
    assert_eq!(
        store.status().await.unwrap().destinations[0].last_error,
        None
    );

    let counted = running.health.destinations().remove(0).counted;
    assert_eq!((counted.repeated, counted.unavailable), (0, 0));
    assert_eq!(counted.last_error, None);
    assert_eq!(
        epoch(&database),
        "1",
        "it was claimed once, since no call failed"
    );
    assert!(running.stop().await.clean);
    let delivered = payloads(&sink);
    assert_eq!(
        delivered.iter().collect::<HashSet<_>>().len(),
        WRITERS * TRANSACTIONS
    );
    for writer in 0..WRITERS {
        let prefix = format!("{writer} ");
        let of_key = delivered
            .iter()
            .filter(|payload| payload.starts_with(&prefix));
        let expected = (0..TRANSACTIONS).map(|n| format!("{writer} {n}"));
        assert!(of_key.cloned().eq(expected), "{delivered:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_settings_change_nothing_on_a_connection_of_its_own() {
    delivers_as_ever(15, false, "serializable").await;
    delivers_as_ever(18, false, "repeatable read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_settings_change_nothing_behind_a_pooler() {
    delivers_as_ever(15, true, "serializable").await;
    delivers_as_ever(18, true, "repeatable read").await;
}
