//! Databases with the outbox in them, for the tests of this folder.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use posthaste::schema::{EVENT_COLUMNS, Placeholders};
use posthaste::{Event, Timestamp};
use posthaste_testkit::servers::mysql::{self, MysqlServer, Version};
use posthaste_testkit::servers::postgres::{Database, PostgresServer};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection, Executor};

/// A database of its own, with the schema and a role that may do what writers may, no more.
pub(crate) struct Outboxes {
    pub(crate) server: &'static PostgresServer,
    pub(crate) database: Database,
    pub(crate) writer: String,
}

impl Outboxes {
    pub(crate) fn new() -> Self {
        Self::of_version(15)
    }

    /// The same on a server of another major version.
    pub(crate) fn of_version(version: u16) -> Self {
        let outboxes = Self::without_rights_on(version);
        let (writer, columns) = (&outboxes.writer, EVENT_COLUMNS.join(", "));
        outboxes.rows(&format!(
            "grant usage on schema posthaste to {writer}; \
             grant insert ({columns}) on posthaste.outbox to {writer}"
        ));
        outboxes
    }

    /// The role may do nothing yet.
    pub(crate) fn without_rights() -> Self {
        Self::without_rights_on(15)
    }

    fn without_rights_on(version: u16) -> Self {
        let server = PostgresServer::shared(version);
        let database = server.create_database();
        for migration in posthaste::Dialect::Postgres.migrations() {
            server.psql(database.name(), &migration.render(Placeholders::default()));
        }
        let writer = format!("{}_writer", database.name());
        server.psql(database.name(), &format!("create role {writer} login"));
        Self {
            server,
            database,
            writer,
        }
    }

    /// Rows of a query, as superuser: one a line, columns separated by `|`.
    pub(crate) fn rows(&self, sql: &str) -> String {
        self.server.psql(self.database.name(), sql)
    }

    pub(crate) fn admin_url(&self) -> String {
        self.server.admin_url(self.database.name())
    }

    pub(crate) fn writer_url(&self) -> String {
        self.server.url(&self.writer, self.database.name())
    }

    pub(crate) async fn sqlx(&self, url: &str) -> sqlx::PgConnection {
        sqlx::PgConnection::connect(url).await.unwrap()
    }

    pub(crate) async fn tokio_postgres(&self, url: &str) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Outboxes {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let writer = &self.writer;
            self.rows(&format!("drop owned by {writer}; drop role {writer}"));
        }
    }
}

/// A MySQL or MariaDB database with the schema and a user that may do what writers may, no more.
pub(crate) struct MysqlOutboxes {
    pub(crate) server: &'static MysqlServer,
    pub(crate) database: mysql::Database,
    pub(crate) writer: String,
}

impl MysqlOutboxes {
    pub(crate) fn new(version: Version) -> Self {
        let outboxes = Self::without_rights(version);
        let (writer, columns) = (&outboxes.writer, EVENT_COLUMNS.join("`, `"));
        outboxes.rows(&format!(
            "grant insert (`{columns}`) on posthaste_outbox to {writer}@'127.0.0.1'; \
             grant select, update on posthaste_key_locks to {writer}@'127.0.0.1'"
        ));
        outboxes
    }

    /// The user may do nothing yet.
    pub(crate) fn without_rights(version: Version) -> Self {
        let server = MysqlServer::shared(version);
        let database = server.create_database();
        for migration in posthaste::Dialect::Mysql.migrations() {
            database.sql(&migration.render(Placeholders::default()));
        }
        // A user's name has at most 32 characters.
        let writer = format!("writer_{}", &database.name()[3..19]);
        database.sql(&format!("create user {writer}@'127.0.0.1'"));
        Self {
            server,
            database,
            writer,
        }
    }

    /// Rows of a query, as administrator: one a line, columns separated by tabs.
    pub(crate) fn rows(&self, sql: &str) -> String {
        self.database.sql(sql)
    }

    pub(crate) fn admin_url(&self) -> String {
        self.database.url()
    }

    pub(crate) fn writer_url(&self) -> String {
        self.database.url_for(&self.writer)
    }

    pub(crate) async fn sqlx(&self, url: &str) -> sqlx::MySqlConnection {
        sqlx::MySqlConnection::connect(url).await.unwrap()
    }

    pub(crate) async fn mysql_async(&self, url: &str) -> mysql_async::Conn {
        mysql_async::Conn::from_url(url).await.unwrap()
    }
}

/// A SQLite file with the schema.
pub(crate) struct SqliteFile {
    folder: tempfile::TempDir,
}

impl SqliteFile {
    pub(crate) async fn new() -> Self {
        let file = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut connection = file.connect().await;
        for migration in posthaste::Dialect::Sqlite.migrations() {
            connection
                .execute(AssertSqlSafe(migration.render(Placeholders::default())))
                .await
                .unwrap();
        }
        file
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("app.db")
    }

    pub(crate) async fn connect(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.path())
            .create_if_missing(true);
        SqliteConnection::connect_with(&options).await.unwrap()
    }
}

/// An event with every field set, and everything odd that the contract allows.
pub(crate) fn full_event() -> Event {
    Event::builder("orders.v1-ü_x")
        .key(r#"k\'"{},NULL\\ü🚚"#)
        .event_type("order.placed")
        .content_type("application/json; charset=utf-8")
        .payload(vec![0, 255, 254, b'"', b'\\', 0])
        .header("a", "1")
        .header("a", "2")
        .header("", "")
        .header("NULL", "NULL")
        .header_without_value("none")
        .header(r#"q"\,{}[]"#, "line\nbreak\ttab\u{1}\u{7f}ü🚚")
        .occurred_at(Timestamp::from_micros(-1_234_567_890_123_457))
        .correlation_id("correlation")
        .causation_id("causation")
        .tenant_id("tenant")
        .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .tracestate("a=1,b=2")
        .build()
        .unwrap()
}

/// The events at the edges of every limit.
pub(crate) fn edge_events() -> Vec<Event> {
    vec![
        full_event(),
        // A tombstone, then an empty payload, which is something else.
        Event::builder("t").build().unwrap(),
        Event::builder("t").payload("").key("").build().unwrap(),
        Event::builder("x".repeat(249))
            .key("k".repeat(1024))
            .event_type("e".repeat(255))
            .content_type("c".repeat(255))
            .correlation_id("c".repeat(255))
            .causation_id("c".repeat(255))
            .tenant_id("t".repeat(255))
            .traceparent("p".repeat(255))
            .tracestate("s".repeat(512))
            .header("n".repeat(65_535), "v")
            .payload(vec![7; 1024 * 1024])
            .occurred_at(Timestamp::MAX)
            .build()
            .unwrap(),
        Event::builder("t")
            .occurred_at(Timestamp::MIN)
            .build()
            .unwrap(),
    ]
}

/// Events with one of 97 keys, each with its number as its payload.
pub(crate) fn numbered(count: usize) -> Vec<Event> {
    (0..count)
        .map(|n| {
            let event = Event::builder("numbers")
                .key(format!("k{}", n % 97))
                .payload(n.to_string());
            // Ragged headers, in a pattern of their own.
            (0..n % 3)
                .fold(event, |event, h| event.header(format!("h{h}"), "v"))
                .build()
                .unwrap()
        })
        .collect()
}

/// Their ids, one a line.
pub(crate) fn ids(events: &[Event]) -> String {
    events
        .iter()
        .map(|event| event.id().to_string())
        .collect::<Vec<_>>()
        .join("\n")
}
