//! Through PgBouncer, whose sessions are applications' as well. That the store keeps its contract
//! there is shown by the conformance suite.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{future::join_all, poll};
use posthaste_engine::{AfterFailure, ClaimRequest, Ownership, Parking, Settlement, Start, Store};
use posthaste_stores::postgres::{InitOptions, init};
use posthaste_testkit::servers::{
    pgbouncer::PgBouncer,
    postgres::{Database, PostgresServer},
};
use tokio_postgres::Client;

use super::support::*;

/// The sessions of the pool, and as many clients take all of them.
const SESSIONS: usize = 4;
/// More connections than there are sessions.
const STORES: usize = 3;

/// The state of a session: an application is to find it as if it had made the session itself. The
/// pooler asks for no encoding as our client does, and extensions add settings once they are used.
const FOUND: &str = "select array_agg(name || '=' || coalesce(value, '')) from (
        select name, setting as value from pg_settings
            where name <> 'client_encoding' and name not like '%.%'
        union all select 'statement', name from pg_prepared_statements
        union all select 'channel', c from pg_listening_channels() c
        union all select 'lock', l.classid::text from pg_locks l
            where l.locktype = 'advisory' and l.pid = pg_backend_pid()
        union all select 'ours', current_setting('posthaste.connection', true)
    ) found";

async fn found(client: &Client) -> BTreeSet<String> {
    let row = client.query_typed_one(FOUND, &[]).await.unwrap();
    row.get::<_, Vec<String>>(0).into_iter().collect()
}

/// All sessions of the pool, each held by a transaction of a client.
async fn sessions(pooler: &PgBouncer, database: &Database) -> Vec<Client> {
    let url = pooler.url("postgres", database.name());
    let mut clients = Vec::new();
    let mut backends = BTreeSet::new();
    for _ in 0..SESSIONS {
        let client = writer(&url).await;
        client.batch_execute("begin").await.unwrap();
        let backend = client.query_typed_one("select pg_backend_pid()", &[]).await;
        backends.insert(backend.unwrap().get::<_, i32>(0));
        clients.push(client);
    }
    assert_eq!(backends.len(), SESSIONS);
    clients
}

async fn is_untouched(pooler: &PgBouncer, database: &Database) {
    let fresh = found(&writer(&database.url()).await).await;
    for client in sessions(pooler, database).await {
        let pooled = found(&client).await;
        let other: Vec<_> = pooled.symmetric_difference(&fresh).collect();
        assert!(other.is_empty(), "{other:?}");
    }
    // Else what was left open has been ended by the time-out that we set for that.
    let log = PostgresServer::shared(15).log();
    assert!(!log.contains("idle-in-transaction"), "{log}");
}

async fn everything_is_done_and_nothing_stays(pooler: &PgBouncer, database: &Database) {
    let url = pooler.url("postgres", database.name());
    let options = InitOptions {
        // Through a pooler no store listens for hints.
        notify: Some(true),
        leaf_rows: Some(1 << 10),
        ..InitOptions::default()
    };
    init(&url, &options).await.unwrap();
    let store = store(&url);
    store.check().await.unwrap();
    let claimed = open(&store, Start::Oldest).await;
    deliver(&store, &claimed, |sql| drop(database.psql(sql))).await;
    is_untouched(pooler, database).await;
}

#[tokio::test]
async fn nothing_of_ours_stays_in_the_sessions_of_a_pooler() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let pooler = PgBouncer::start(server, &["postgres"]);
    everything_is_done_and_nothing_stays(&pooler, &database).await;
}

/// As users of JDBC often set it.
#[tokio::test]
async fn a_pooler_that_ignores_options_is_recognised() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let pooler = PgBouncer::start_ignoring(server, &["postgres"], &["options"]);
    everything_is_done_and_nothing_stays(&pooler, &database).await;
}

/// Sessions change hands with each transaction, and a store has more connections than the pool.
#[tokio::test]
async fn several_stores_at_once_do_without_sessions_of_their_own() {
    let server = PostgresServer::shared(15);
    let pooler = PgBouncer::start(server, &["postgres"]);
    let database = server.create_database();
    initialise(&database.url()).await;
    let url = pooler.url("postgres", database.name());
    database.psql("select posthaste.emit('t', n::text) from generate_series(1, 5000) n");
    let drains = (0..STORES).map(|n| {
        let url = url.clone();
        async move {
            let store = store(&url);
            let relay = register(&store, &format!("relay {n}")).await;
            let request = ClaimRequest {
                destination: &format!("destination {n}"),
                ..whole("null:")
            };
            let claim = owned(store.claim(relay, &request).await.unwrap());
            let claimed = store.open(&claim).await.unwrap();
            drain(&claimed, pages_of(50)).await
        }
    });
    let expected: Vec<String> = (1..=5000).map(|n| n.to_string()).collect();
    for payloads in join_all(drains).await {
        assert_eq!(payloads, expected);
    }
    is_untouched(&pooler, &database).await;
}

/// A caller goes away at any point of its call: the next call is not in that one's transaction.
#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_transaction_open() {
    let server = PostgresServer::shared(15);
    let pooler = PgBouncer::start(server, &["postgres"]);
    let database = server.create_database();
    initialise(&database.url()).await;
    let store = store(&pooler.url("postgres", database.name()));
    let claimed = open(&store, Start::Oldest).await;
    database.psql("select posthaste.emit('t', n::text) from generate_series(1, 600) n");
    for polls in 1..6 {
        let mut read = claimed.next(pages_of(100));
        for _ in 0..polls {
            if poll!(read.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    for polls in 1..6 {
        let mut report = claimed.report("open", Some("gone"));
        for _ in 0..polls {
            if poll!(report.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let rest = drain(&claimed, pages_of(100)).await;
    assert_eq!(rest.last().map(String::as_str), Some("600"));
    claimed.report("closed", None).await.unwrap();
    assert_eq!(
        database.psql("select breaker from posthaste.destinations"),
        "closed",
        "it is committed"
    );
    // No session is lost to a transaction that nobody ends.
    is_untouched(&pooler, &database).await;
}

/// A read ends its transaction by rolling back: never that of a change on the same connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_at_once_on_one_connection_do_not_mix_their_transactions() {
    const COPIES: usize = 10;
    const ROUNDS: usize = 30;
    let server = PostgresServer::shared(15);
    let pooler = PgBouncer::start(server, &["postgres"]);
    let database = server.create_database();
    initialise(&database.url()).await;
    let store = store(&pooler.url("postgres", database.name()));
    let claimed = open(&store, Start::Oldest).await;
    database.psql(&format!(
        "select posthaste.emit('t', n::text) from generate_series(1, {COPIES}) n"
    ));
    let page = claimed.next(pages_of(COPIES)).await.unwrap();
    let all: Vec<Parking> = (0..COPIES)
        .map(|index| parking(&page, index, AT_ONCE))
        .collect();
    claimed.park(&all).await.unwrap();
    let copies = claimed.due(COPIES).await.unwrap().events;
    let tries = copies.iter().map(|copy| {
        let (claimed, id) = (Arc::clone(&claimed), copy.id);
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let failed = Settlement::Failed {
                    kind: "other",
                    reason: "once more".to_owned(),
                    next: AfterFailure::RetryIn(Duration::ZERO),
                };
                claimed.settle(id, &failed).await.unwrap();
                claimed.due(1).await.unwrap();
            }
        })
    });
    for ended in join_all(tries).await {
        ended.unwrap();
    }
    let attempts = database.psql("select count(*) from posthaste.attempts");
    assert_eq!(attempts, (COPIES * (1 + ROUNDS)).to_string());
    is_untouched(&pooler, &database).await;
}
