use std::{ops::Deref, sync::Arc, time::Duration};

use async_trait::async_trait;
use mysql_async::{Conn, Opts, params, prelude::Queryable};
use posthaste_engine::{Store, StoreError};
use posthaste_stores::{
    InitOptions,
    mysql::{MysqlStore, init},
};
use posthaste_testkit::{
    servers::mysql::{Database, MysqlServer, Version},
    store_suite::{Capability, Fixture, NewEvent, Outbox, SERVER, Writer},
};
use tokio::task::block_in_place;
use uuid::Uuid;

pub(crate) struct MysqlFixture {
    pub(crate) name: &'static str,
    pub(crate) version: Version,
}

#[async_trait]
impl Fixture for MysqlFixture {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Vec<Capability> {
        SERVER.to_vec()
    }

    async fn fresh(&self, needs: &[Capability]) -> Box<dyn Outbox> {
        let server = block_in_place(|| {
            if needs.contains(&Capability::Crash) {
                let builder = MysqlServer::builder(self.version).shows_locks();
                Server::Own(Box::new(builder.start()))
            } else {
                Server::Shared(MysqlServer::shared(self.version))
            }
        });
        let outbox = MysqlOutbox {
            database: block_in_place(|| server.create_database()),
            server,
        };
        outbox.init().await.unwrap();
        Box::new(outbox)
    }
}

enum Server {
    Shared(&'static MysqlServer),
    Own(Box<MysqlServer>),
}

impl Deref for Server {
    type Target = MysqlServer;

    fn deref(&self) -> &MysqlServer {
        match self {
            Self::Shared(server) => server,
            Self::Own(server) => server,
        }
    }
}

/// Dropped in this order: the server last.
struct MysqlOutbox {
    database: Database,
    server: Server,
}

impl MysqlOutbox {
    fn url(&self) -> String {
        self.database.url()
    }

    async fn connect(&self) -> Conn {
        connect(&self.url()).await
    }

    async fn run(&self, sql: &str) {
        let mut conn = self.connect().await;
        conn.query_drop(sql).await.unwrap();
        conn.disconnect().await.unwrap();
    }
}

async fn connect(url: &str) -> Conn {
    Conn::new(Opts::from_url(url).unwrap()).await.unwrap()
}

#[async_trait]
impl Outbox for MysqlOutbox {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(MysqlStore::new(&self.url()).unwrap())
    }

    async fn writer(&self) -> Box<dyn Writer> {
        Box::new(MysqlWriter(self.connect().await))
    }

    async fn set_retention(&self, window: Duration) {
        let options = InitOptions {
            retention: Some(window),
            ..InitOptions::default()
        };
        init(&self.url(), &options).await.unwrap();
    }

    /// It knows nothing else.
    async fn only_delete(&self) {}

    async fn age_audit(&self, by: Duration) {
        let by = by.as_micros();
        self.run(&format!("update posthaste_audit set at = at - {by}"))
            .await;
    }

    async fn make_relays_old(&self) {
        self.run("update posthaste_relays set level = default")
            .await;
    }

    async fn age_parked(&self, by: Duration) {
        let by = by.as_micros();
        self.run(&format!(
            "update posthaste_parked set parked_at = parked_at - {by}, closed_at = closed_at - {by};
             update posthaste_attempts set at = at - {by}"
        ))
        .await;
    }

    async fn audit(&self) -> Vec<String> {
        let sql = "select concat_ws('|', a.action, coalesce(a.relay_name, ''),
                       coalesce(a.destination, ''), a.detail)
                   from posthaste_audit as a order by a.id";
        let mut conn = self.connect().await;
        conn.query(sql).await.unwrap()
    }

    async fn crash(&self) {
        block_in_place(|| {
            self.server.kill9();
            self.server.start_again();
        });
    }

    async fn cut_connections(&self) {
        let mut conn = self.connect().await;
        let sql = "select id from information_schema.processlist
                   where db = database() and id <> connection_id()";
        let ids: Vec<u64> = conn.query(sql).await.unwrap();
        for id in ids {
            // It may be gone already.
            drop(conn.query_drop(format!("kill {id}")).await);
        }
        while !conn.query::<u64, _>(sql).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn init(&self) -> Result<(), StoreError> {
        init(&self.url(), &InitOptions::default()).await.map(drop)
    }

    async fn migrate_to_the_future(&self) {
        self.run(
            "insert into posthaste_migrations (version, name, min_relay) \
             values (1000, 'future', 1000)",
        )
        .await;
    }
}

struct MysqlWriter(Conn);

impl MysqlWriter {
    async fn run(&mut self, sql: &str) {
        self.0.query_drop(sql).await.unwrap();
    }
}

#[async_trait]
impl Writer for MysqlWriter {
    async fn begin(&mut self) {
        self.run("start transaction").await;
    }

    async fn emit(&mut self, event: &NewEvent) -> Uuid {
        let id = event.id.unwrap_or_else(Uuid::now_v7);
        let texts: Vec<Option<&str>> = event
            .headers
            .iter()
            .flat_map(|(name, value)| [Some(name.as_str()), value.as_deref()])
            .collect();
        let of = params! {
            "id" => id.as_bytes().as_slice(),
            "topic" => &event.topic,
            "key" => &event.key,
            "type" => &event.event_type,
            "content_type" => &event.content_type,
            "payload" => &event.payload,
            "headers" => serde_json::to_string(&texts).unwrap(),
            "occurred_at" => event.occurred_at,
            "correlation_id" => &event.correlation_id,
            "causation_id" => &event.causation_id,
            "tenant_id" => &event.tenant_id,
            "traceparent" => &event.traceparent,
            "tracestate" => &event.tracestate,
        };
        self.0
            .exec_drop(
                "insert into posthaste_outbox (id, topic, `key`, `type`, content_type, payload, \
                 headers, occurred_at, correlation_id, causation_id, tenant_id, traceparent, \
                 tracestate) values (:id, :topic, :key, :type, :content_type, :payload, :headers, \
                 timestampadd(microsecond, :occurred_at, timestamp'1970-01-01 00:00:00'), \
                 :correlation_id, :causation_id, :tenant_id, :traceparent, :tracestate)",
                of,
            )
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
