use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{Store, StoreError};
use posthaste_stores::sqlite::{InitOptions, SqliteStore, init};
use posthaste_testkit::store_suite::{Capability, Fixture, NewEvent, Outbox, Writer};
use rusqlite::{Connection, params};
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) struct SqliteFixture;

#[async_trait]
impl Fixture for SqliteFixture {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> Vec<Capability> {
        vec![
            Capability::Savepoints,
            Capability::LateCommitDelaysOnlyItself,
            Capability::Migrations,
        ]
    }

    async fn fresh(&self, _needs: &[Capability]) -> Box<dyn Outbox> {
        let directory = tempfile::tempdir().unwrap();
        let outbox = SqliteOutbox { directory };
        outbox.init().await.unwrap();
        Box::new(outbox)
    }
}

struct SqliteOutbox {
    directory: TempDir,
}

impl SqliteOutbox {
    fn path(&self) -> PathBuf {
        self.directory.path().join("outbox.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// As an application opens it, with a busy time-out of a second: any error is a failure.
    fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(1)).unwrap();
        connection
    }
}

#[async_trait]
impl Outbox for SqliteOutbox {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::new(&self.url()).unwrap())
    }

    async fn writer(&self) -> Box<dyn Writer> {
        Box::new(SqliteWriter(self.connect()))
    }

    async fn set_retention(&self, window: Duration) {
        let options = InitOptions {
            retention: Some(window),
            ..InitOptions::default()
        };
        init(&self.url(), options).await.unwrap();
    }

    /// It knows nothing else.
    async fn only_delete(&self) {}

    async fn age_audit(&self, by: Duration) {
        self.connect()
            .execute(
                "update posthaste_audit set at = at - ?1",
                [i64::try_from(by.as_micros()).unwrap()],
            )
            .unwrap();
    }

    async fn make_relays_old(&self) {
        self.connect()
            .execute("update posthaste_relays set level = 0", [])
            .unwrap();
    }

    async fn age_parked(&self, by: Duration) {
        let by = by.as_micros();
        self.connect()
            .execute_batch(&format!(
                "update posthaste_parked
                 set parked_at = parked_at - {by}, closed_at = closed_at - {by};
                 update posthaste_attempts set at = at - {by}"
            ))
            .unwrap();
    }

    async fn audit(&self) -> Vec<String> {
        let sql =
            "select a.action || '|' || coalesce(r.name, '') || '|' || coalesce(a.destination, '')
                       || '|' || coalesce(a.detail, '')
                   from posthaste_audit as a
                   left join posthaste_relays as r on r.registration = a.registration
                   order by a.id";
        let connection = self.connect();
        let mut statement = connection.prepare(sql).unwrap();
        let lines = statement.query_map([], |row| row.get(0)).unwrap();
        lines.collect::<Result<_, _>>().unwrap()
    }

    async fn init(&self) -> Result<(), StoreError> {
        init(&self.url(), InitOptions::default()).await.map(drop)
    }

    async fn migrate_to_the_future(&self) {
        self.connect()
            .execute(
                "insert into posthaste_migrations (version, name, min_relay) \
                 values (1000, 'future', 1000)",
                [],
            )
            .unwrap();
    }
}

struct SqliteWriter(Connection);

impl SqliteWriter {
    fn run(&self, sql: &str) {
        self.0.execute_batch(sql).unwrap();
    }
}

#[async_trait]
impl Writer for SqliteWriter {
    async fn begin(&mut self) {
        self.run("begin immediate");
    }

    async fn emit(&mut self, event: &NewEvent) -> Uuid {
        let id = event.id.unwrap_or_else(Uuid::now_v7);
        let texts: Vec<Option<&str>> = event
            .headers
            .iter()
            .flat_map(|(name, value)| [Some(name.as_str()), value.as_deref()])
            .collect();
        self.0
            .prepare_cached(
                "insert into posthaste_outbox (id, topic, key, type, content_type, payload, \
                 headers, occurred_at, correlation_id, causation_id, tenant_id, traceparent, \
                 tracestate) \
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )
            .unwrap()
            .execute(params![
                id.to_string(),
                event.topic,
                event.key,
                event.event_type,
                event.content_type,
                event.payload,
                serde_json::to_string(&texts).unwrap(),
                event.occurred_at,
                event.correlation_id,
                event.causation_id,
                event.tenant_id,
                event.traceparent,
                event.tracestate,
            ])
            .unwrap();
        id
    }

    async fn savepoint(&mut self) {
        self.run("savepoint s");
    }

    async fn rollback_to_savepoint(&mut self) {
        self.run("rollback to savepoint s");
    }

    async fn commit(&mut self) {
        self.run("commit");
    }

    async fn rollback(&mut self) {
        self.run("rollback");
    }
}
