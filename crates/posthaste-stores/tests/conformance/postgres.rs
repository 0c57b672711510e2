use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{RetentionMode, Store, StoreError};
use posthaste_stores::postgres::{InitOptions, PostgresStore, init};
use posthaste_testkit::{
    servers::{
        pgbouncer::PgBouncer,
        postgres::{Database, PostgresServer},
    },
    store_suite::{Capability, Fixture, NewEvent, Outbox, Writer},
};
use tokio::{sync::Mutex, task::block_in_place};
use tokio_postgres::{Client, NoTls, Statement, types::ToSql};
use uuid::Uuid;

pub(crate) struct PostgresFixture {
    pub(crate) name: &'static str,
    pub(crate) version: u16,
    /// The store reaches the server through PgBouncer in transaction mode; writers do not.
    pub(crate) pooled: bool,
}

#[async_trait]
impl Fixture for PostgresFixture {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Vec<Capability> {
        let mut capabilities = vec![
            Capability::Savepoints,
            Capability::OpenTogether,
            Capability::LateCommitDelaysOnlyItself,
            Capability::Crash,
            Capability::Migrations,
            Capability::SharesOut,
        ];
        if !self.pooled {
            // Its clients notice nothing.
            capabilities.push(Capability::CutConnections);
        }
        capabilities
    }

    async fn fresh(&self, needs: &[Capability]) -> Box<dyn Outbox> {
        let server = block_in_place(|| {
            if needs.contains(&Capability::Crash) {
                Server::Own(Box::new(
                    PostgresServer::builder().version(self.version).start(),
                ))
            } else {
                Server::Shared(PostgresServer::shared(self.version))
            }
        });
        if let Server::Shared(shared) = server
            && shared.is_ours()
            && !self.pooled
        {
            return Box::new(PostgresOutbox {
                pooler: None,
                database: copied_outbox(shared).await,
                server,
            });
        }
        let database = block_in_place(|| server.create_database());
        let pooler = self
            .pooled
            .then(|| block_in_place(|| PgBouncer::start(&server, &["postgres"])));
        let outbox = PostgresOutbox {
            pooler,
            database,
            server,
        };
        outbox.init().await.unwrap();
        Box::new(outbox)
    }
}

/// A database with a new outbox. Its tables are made once on each server and copied from then on:
/// to make them takes longer than most cases do.
async fn copied_outbox(server: &PostgresServer) -> Database {
    static ORIGINALS: Mutex<BTreeMap<u16, Database>> = Mutex::const_new(BTreeMap::new());
    let mut originals = ORIGINALS.lock().await;
    let original = match originals.entry(server.version()) {
        Entry::Occupied(made) => made.into_mut(),
        Entry::Vacant(missing) => {
            let original = block_in_place(|| server.create_database());
            init(&original.url(), &InitOptions::default())
                .await
                .unwrap();
            missing.insert(original)
        }
    };
    let original = original.name().to_owned();
    drop(originals);
    block_in_place(|| {
        let copy = server.create_copy(&original);
        // The store refuses an outbox that has been copied.
        copy.psql(
            "update posthaste.identity set store_id = gen_random_uuid(), database_oid = \
             (select oid from pg_database where datname = current_database())",
        );
        copy
    })
}

enum Server {
    Shared(&'static PostgresServer),
    Own(Box<PostgresServer>),
}

impl Deref for Server {
    type Target = PostgresServer;

    fn deref(&self) -> &PostgresServer {
        match self {
            Self::Shared(server) => server,
            Self::Own(server) => server,
        }
    }
}

/// Dropped in this order: the pooler first, the server last.
struct PostgresOutbox {
    pooler: Option<PgBouncer>,
    database: Database,
    server: Server,
}

impl PostgresOutbox {
    /// Where the store connects to.
    fn url(&self) -> String {
        match &self.pooler {
            Some(pooler) => pooler.url("postgres", self.database.name()),
            None => self.database.url(),
        }
    }
}

#[async_trait]
impl Outbox for PostgresOutbox {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::new(&self.url()).unwrap())
    }

    async fn writer(&self) -> Box<dyn Writer> {
        Box::new(PostgresWriter::connect(&self.database.url()).await)
    }

    async fn set_retention(&self, window: Duration) {
        let options = InitOptions {
            retention: Some(window),
            ..InitOptions::default()
        };
        init(&self.url(), &options).await.unwrap();
    }

    async fn only_delete(&self) {
        let options = InitOptions {
            retention_mode: Some(RetentionMode::Delete),
            ..InitOptions::default()
        };
        init(&self.url(), &options).await.unwrap();
    }

    async fn age_audit(&self, by: Duration) {
        let older = format!(
            "update posthaste.audit set at = at - interval '{} s'",
            by.as_secs()
        );
        block_in_place(|| self.database.psql(&older));
    }

    async fn make_relays_old(&self) {
        let old = "update posthaste.relays set level = default";
        block_in_place(|| self.database.psql(old));
    }

    async fn age_parked(&self, by: Duration) {
        let seconds = by.as_secs();
        let older = format!(
            "update posthaste.parked set parked_at = parked_at - interval '{seconds} s',
                 settled_at = settled_at - interval '{seconds} s';
             update posthaste.attempts set at = at - interval '{seconds} s'"
        );
        block_in_place(|| self.database.psql(&older));
    }

    async fn audit(&self) -> Vec<String> {
        let sql = "select a.action, coalesce(a.relay_name, r.name), a.destination, a.detail
                   from posthaste.audit a left join posthaste.relays r on r.registration = a.relay
                   order by a.id";
        let lines = block_in_place(|| self.database.psql(sql));
        lines.lines().map(str::to_owned).collect()
    }

    async fn crash(&self) {
        block_in_place(|| {
            self.server.crash();
            self.server.start_again();
        });
    }

    async fn cut_connections(&self) {
        block_in_place(|| {
            self.database.psql(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid()",
            )
        });
    }

    async fn init(&self) -> Result<(), StoreError> {
        init(&self.url(), &InitOptions::default()).await.map(drop)
    }

    async fn migrate_to_the_future(&self) {
        block_in_place(|| {
            self.database.psql(
                "insert into posthaste.migrations (version, name, min_relay) \
                 values (1000, 'future', 1000)",
            )
        });
    }
}

struct PostgresWriter {
    client: Client,
    insert: Statement,
}

const INSERT: &str = "insert into posthaste.outbox (id, topic, key, type, content_type, payload, \
    headers, occurred_at, correlation_id, causation_id, tenant_id, traceparent, tracestate) \
    values ($1, $2, $3, $4, $5, $6, $7, \
    timestamptz 'epoch' + $8::bigint * interval '1 microsecond', $9, $10, $11, $12, $13)";

impl PostgresWriter {
    async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        // Ends with the client, or with a server that is crashed on purpose.
        tokio::spawn(connection);
        let insert = client.prepare(INSERT).await.unwrap();
        Self { client, insert }
    }

    async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }
}

#[async_trait]
impl Writer for PostgresWriter {
    async fn begin(&mut self) {
        self.run("begin").await;
    }

    async fn emit(&mut self, event: &NewEvent) -> Uuid {
        let id = event.id.unwrap_or_else(Uuid::now_v7);
        let headers: Vec<Option<&str>> = event
            .headers
            .iter()
            .flat_map(|(name, value)| [Some(name.as_str()), value.as_deref()])
            .collect();
        let parameters: [&(dyn ToSql + Sync); 13] = [
            &id,
            &event.topic,
            &event.key,
            &event.event_type,
            &event.content_type,
            &event.payload,
            &headers,
            &event.occurred_at,
            &event.correlation_id,
            &event.causation_id,
            &event.tenant_id,
            &event.traceparent,
            &event.tracestate,
        ];
        self.client
            .execute(&self.insert, &parameters)
            .await
            .unwrap();
        id
    }

    async fn savepoint(&mut self) {
        self.run("savepoint s").await;
    }

    async fn rollback_to_savepoint(&mut self) {
        self.run("rollback to savepoint s").await;
    }

    async fn commit(&mut self) {
        self.run("commit").await;
    }

    async fn rollback(&mut self) {
        self.run("rollback").await;
    }
}
