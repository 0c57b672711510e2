//! Business tables in an SQLite file, written through sqlx by connections of their own.

use std::{path::PathBuf, str::FromStr, time::Duration};

use async_trait::async_trait;
use sqlx::{
    Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use uuid::Uuid;

use crate::{
    database::{
        Database, Fact, KEYS, PUT_OFF, Plan, Step, Trouble, Writer, emit_numbered, load_key,
    },
    relay::posthaste,
    sqlx_writer::{Emits, transact},
};

const TABLES: [&str; 2] = [
    "create table counters (key text primary key, n integer not null) strict",
    "create table facts (key text not null, n integer not null, id text not null,
        primary key (key, n)) strict",
];

/// A file of its own.
pub struct Sqlite {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Sqlite {
    /// A new one.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = Self {
            path: folder.path().join("shop.db"),
            _folder: Some(folder),
        };
        posthaste(&["init", "--store", &file.url()]).expect_status(0);
        let mut connection = file.connect(Duration::from_secs(5)).await.unwrap();
        for table in TABLES {
            sqlx::query(table).execute(&mut connection).await.unwrap();
        }
        let mut tx = connection.begin().await.unwrap();
        for key in 0..KEYS {
            let insert = sqlx::query("insert into counters values (?, 0)").bind(load_key(key));
            insert.execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        file
    }

    /// One that somebody else has made, with the tables in it.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            _folder: None,
        }
    }

    /// A connection as a careful application makes it: WAL, synced at every commit.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub async fn connect(&self, busy_timeout: Duration) -> sqlx::Result<SqliteConnection> {
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(busy_timeout);
        SqliteConnection::connect_with(&options).await
    }

    /// A writer that waits so long for its turn.
    ///
    /// # Panics
    ///
    /// When the file cannot be opened.
    pub async fn writer_with(&self, busy_timeout: Duration) -> Box<dyn Writer> {
        Box::new(SqliteWriter(self.connect(busy_timeout).await.unwrap()))
    }

    /// No relay that is registered can be found dead by its process any more: it ran before the
    /// machine was restarted.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub async fn machine_was_restarted(&self) {
        // The lock is no fair queue.
        let mut connection = self.connect(Duration::from_secs(120)).await.unwrap();
        let former = "update posthaste_relays set boot_id = 'a former one'";
        sqlx::query(former).execute(&mut connection).await.unwrap();
    }

    /// The one number that a query answers.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub async fn number(&self, sql: &'static str) -> u64 {
        let mut connection = self.connect(Duration::from_secs(5)).await.unwrap();
        let number: i64 = sqlx::query_scalar(sql)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        number.try_into().unwrap()
    }
}

#[async_trait]
impl Database for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    /// The lock is no fair queue: beside writers at full speed an operator is given time.
    fn operators_url(&self) -> String {
        self.url() + "?busy_timeout=120s"
    }

    /// One writer holds up all others: longer would only measure the time-out.
    fn longest_hold(&self) -> Duration {
        Duration::from_millis(200)
    }

    /// SQLite's lock is not fair: writers that never let go of it starve each other, and the relay.
    fn longest_think(&self) -> Duration {
        Duration::from_millis(40)
    }

    fn writes_at_once(&self) -> bool {
        false
    }

    async fn writer(&self) -> Result<Box<dyn Writer>, Trouble> {
        // Sixteen connections queue for one lock, which SQLite hands out at random.
        Ok(Box::new(SqliteWriter(
            self.connect(Duration::from_secs(60)).await?,
        )))
    }

    async fn facts(&self) -> Vec<Fact> {
        let mut connection = self.connect(Duration::from_secs(5)).await.unwrap();
        let rows = sqlx::query("select key, n, id from facts order by key, n");
        let fact = |row: sqlx::sqlite::SqliteRow| Fact {
            key: row.get(0),
            n: row.get::<i64, _>(1).try_into().unwrap(),
            id: Uuid::from_str(row.get(2)).unwrap(),
        };
        rows.fetch_all(&mut connection)
            .await
            .unwrap()
            .into_iter()
            .map(fact)
            .collect()
    }

    async fn committed(&self) -> u64 {
        self.number("select count(*) from facts").await
    }

    async fn audited(&self, action: &str) -> u64 {
        let mut connection = self.connect(Duration::from_secs(5)).await.unwrap();
        let count = sqlx::query_scalar(
            "select count(*) from posthaste_audit where action like '%' || ? || '%'",
        );
        let number: i64 = count.bind(action).fetch_one(&mut connection).await.unwrap();
        number.try_into().unwrap()
    }

    async fn parked_with_an_attempt(&self) -> u64 {
        let mut connection = self.connect(Duration::from_secs(5)).await.unwrap();
        let count = sqlx::query_scalar(
            "select count(*) from posthaste_audit
             where action = 'park' and detail not like '%: ' || ?",
        );
        let number: i64 = count
            .bind(PUT_OFF)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        number.try_into().unwrap()
    }
}

struct SqliteWriter(SqliteConnection);

#[async_trait]
impl Writer for SqliteWriter {
    async fn transact(&mut self, plan: &Plan) -> Result<(), Trouble> {
        // A transaction that reads first and writes later may be refused at once, whatever the
        // time-out.
        transact(self.0.begin_with("begin immediate").await?, plan).await
    }
}

#[async_trait]
impl Emits for SqliteConnection {
    async fn emit_step(&mut self, step: &Step) -> Result<(), Trouble> {
        let events = i64::from(step.events);
        let last: i64 = sqlx::query_scalar(
            "insert into counters values (?, ?)
             on conflict (key) do update set n = n + excluded.n returning n",
        )
        .bind(&step.key)
        .bind(events)
        .fetch_one(&mut *self)
        .await?;
        let numbers: Vec<i64> = (last - events + 1..=last).collect();
        let ids = emit_numbered(self, step, &numbers).await?;
        for (n, id) in numbers.iter().zip(ids) {
            let fact = sqlx::query("insert into facts values (?, ?, ?)");
            fact.bind(&step.key)
                .bind(n)
                .bind(id.to_string())
                .execute(&mut *self)
                .await?;
        }
        Ok(())
    }
}
