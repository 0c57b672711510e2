//! Business tables on MySQL and MariaDB, written through sqlx.

use std::{any::Any, time::Duration};

use async_trait::async_trait;
use posthaste::Outbox;
use posthaste_testkit::servers::mysql::{self, MysqlServer};
use sqlx::{AssertSqlSafe, Connection, MySql, MySqlConnection, QueryBuilder, Row, mysql::MySqlRow};
use uuid::Uuid;

use crate::{
    crash::Crashing,
    database::{
        Database, Fact, KEYS, LOOSE, LOOSE_EVENTS_MAX, PUT_OFF, Plan, Step, Trouble, Writer,
        emit_numbered, events, pace,
    },
    relay::posthaste,
    sqlx_writer::{Emits, transact},
};

const TABLES: &str = "
    create table counters (`key` varchar(200) primary key, n bigint not null)
        engine=InnoDB character set utf8mb4 collate utf8mb4_bin;
    create table facts
        (`key` varchar(200) not null, n bigint not null, id binary(16) not null,
         primary key (`key`, n)) engine=InnoDB character set utf8mb4 collate utf8mb4_bin;
    create table loose_transactions (id bigint primary key auto_increment) engine=InnoDB;
";

const LOCK: &str = "insert into counters values (?, ?) on duplicate key update n = n + values(n)";

/// As on PostgreSQL: notes whoever takes what another one owns, and every epoch that goes back
/// (I8).
const WATCH: &str = "
    create table thefts (what text not null) engine=InnoDB;
    create trigger watch before update on posthaste_cursors for each row
        insert into thefts (what)
        select concat('epoch ', new.epoch, ' after ', old.epoch) from dual
        where new.epoch < old.epoch
        union all
        select concat(new.relay, ' from its owner ', old.relay) from dual
        where new.relay <> old.relay and exists (
            select 1 from posthaste_relays as r
            where r.registration = old.relay and r.fenced_at is null)
        union all
        select concat(new.relay, ' in the epoch of ', coalesce(old.relay, 'nobody')) from dual
        where new.relay is not null and not (new.relay <=> old.relay) and new.epoch = old.epoch;
";

/// As many as one statement takes.
const FACTS_MAX: usize = 10_000;

/// One database of a server.
pub struct Mysql {
    database: mysql::Database,
    longest_think: Duration,
}

impl Mysql {
    /// A new one, with the settings that there are by themselves.
    #[must_use]
    pub fn new(server: &MysqlServer) -> Self {
        Self::with_init(server, &[])
    }

    /// A new one, with these flags of `posthaste init`.
    #[must_use]
    pub fn with_init(server: &MysqlServer, flags: &[&str]) -> Self {
        let database = server.create_database();
        posthaste(&[&["init", "--store", &database.url()], flags].concat()).expect_status(0);
        database.sql(&format!(
            "{TABLES} insert into counters
             with recursive i (n) as (select 0 union all select n + 1 from i where n < {})
             select concat('k', lpad(n, 3, '0')), 0 from i",
            KEYS - 1
        ));
        Self {
            database,
            longest_think: pace(),
        }
    }

    /// See [`Postgres::with_paced_writers`](crate::postgres::Postgres::with_paced_writers).
    #[must_use]
    pub fn with_paced_writers(mut self) -> Self {
        self.longest_think = crate::database::paced();
        self
    }

    /// From now on [`thefts`](Self::thefts) knows.
    pub fn watch_ownership(&self, relays_role: &str) {
        self.database.sql(WATCH);
        // MySQL asks those who change two tables at once for it, whoever made the trigger.
        self.database.sql(&format!(
            "grant select on thefts to '{relays_role}'@'127.0.0.1'"
        ));
    }

    /// See [`Postgres::thefts`](crate::postgres::Postgres::thefts).
    ///
    /// # Panics
    ///
    /// When nobody watched.
    #[must_use]
    pub fn thefts(&self) -> Vec<String> {
        let covered = "bit_or(cast(conv(hex(partitions), 16, 10) as unsigned))";
        let uncovered = format!(
            "select concat('progress in ', sum(n), ' of 64 partitions') from (
                 select destination_id,
                     sum(bit_count(cast(conv(hex(partitions), 16, 10) as unsigned))) as n,
                     bit_count({covered}) as covered
                 from posthaste_cursors group by destination_id
             ) as c group by destination_id having min(n) <> 64 or min(covered) <> 64"
        );
        let found = ["select what from thefts", &uncovered].map(|sql| self.database.sql(sql));
        let lines = found.iter().flat_map(|rows| rows.lines());
        lines.map(str::to_owned).collect()
    }

    /// The address of the database for another user and port.
    #[must_use]
    pub fn url_of(&self, user: &str, port: u16) -> String {
        format!("mysql://{user}@127.0.0.1:{port}/{}", self.database.name())
    }

    /// The one number that a query answers.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[must_use]
    pub fn number(&self, sql: &str) -> u64 {
        self.database.sql(sql).parse().unwrap()
    }

    /// Ends all connections of a user; answers how many there were.
    ///
    /// # Panics
    ///
    /// When the server does not do so.
    pub async fn end_connections(&self, user: &str) -> u64 {
        let mut connection = self.client().await.unwrap();
        let list = "select cast(id as unsigned) from information_schema.processlist where user = ?";
        let list = sqlx::query_scalar(list).bind(user);
        let ids: Vec<u64> = list.fetch_all(&mut connection).await.unwrap();
        let mut ended = 0;
        for id in ids {
            let kill = sqlx::raw_sql(AssertSqlSafe(format!("kill {id}")));
            match kill.execute(&mut connection).await {
                Ok(_) => ended += 1,
                // It has just ended by itself.
                Err(error) => assert!(error.to_string().contains("1094"), "{error}"),
            }
        }
        ended
    }

    async fn client(&self) -> sqlx::Result<MySqlConnection> {
        let mut connection = MySqlConnection::connect(&self.database.url()).await?;
        // A writer that waits longer for a table waits for us (I11), and fails.
        let session = sqlx::raw_sql("set session lock_wait_timeout = 1");
        session.execute(&mut connection).await?;
        Ok(connection)
    }
}

#[async_trait]
impl Database for Mysql {
    fn url(&self) -> String {
        self.database.url()
    }

    fn longest_hold(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn longest_think(&self) -> Duration {
        self.longest_think
    }

    fn writes_at_once(&self) -> bool {
        true
    }

    async fn writer(&self) -> Result<Box<dyn Writer>, Trouble> {
        Ok(Box::new(MysqlWriter(self.client().await?)))
    }

    async fn facts(&self) -> Vec<Fact> {
        let mut connection = self.client().await.unwrap();
        let rows = sqlx::query("select `key`, n, id from facts order by `key`, n");
        let fact = |row: MySqlRow| Fact {
            key: row.get(0),
            n: row.get::<i64, _>(1).try_into().unwrap(),
            id: Uuid::from_slice(row.get(2)).unwrap(),
        };
        let rows = rows.fetch_all(&mut connection).await.unwrap();
        rows.into_iter().map(fact).collect()
    }

    async fn committed(&self) -> u64 {
        self.number("select count(*) from facts")
    }

    async fn audited(&self, action: &str) -> u64 {
        self.number(&format!(
            "select count(*) from posthaste_audit where action like '%{action}%'"
        ))
    }

    async fn parked_with_an_attempt(&self) -> u64 {
        self.number(&format!(
            "select count(*) from posthaste_audit
             where action = 'park' and detail not like '%: {PUT_OFF}'"
        ))
    }
}

struct MysqlWriter(MySqlConnection);

#[async_trait]
impl Writer for MysqlWriter {
    async fn transact(&mut self, plan: &Plan) -> Result<(), Trouble> {
        transact(self.0.begin().await?, plan).await
    }
}

#[async_trait]
impl Emits for MySqlConnection {
    async fn emit_step(&mut self, step: &Step) -> Result<(), Trouble> {
        let events = i64::from(step.events);
        let first = if step.key.starts_with(LOOSE) {
            let draw = sqlx::query("insert into loose_transactions values ()");
            let drawn = draw.execute(&mut *self).await?.last_insert_id();
            i64::try_from(drawn * LOOSE_EVENTS_MAX)?
        } else {
            // The row lock comes first: it is what order is promised for.
            let lock = sqlx::query(LOCK).bind(&step.key).bind(events);
            lock.execute(&mut *self).await?;
            let n = sqlx::query_scalar("select n from counters where `key` = ?").bind(&step.key);
            let last: i64 = n.fetch_one(&mut *self).await?;
            last - events + 1
        };
        let numbers: Vec<i64> = (first..first + events).collect();
        let ids = emit_numbered(self, step, &numbers).await?;
        let facts: Vec<_> = numbers.iter().zip(&ids).collect();
        for facts in facts.chunks(FACTS_MAX) {
            let mut insert = QueryBuilder::<MySql>::new("insert into facts ");
            insert.push_values(facts, |mut row, (n, id)| {
                row.push_bind(&step.key);
                row.push_bind(**n).push_bind(id.as_bytes().as_slice());
            });
            insert.build().execute(&mut *self).await?;
        }
        Ok(())
    }
}

/// MariaDB writes its log at a commit, or once a second: numbers that only open transactions have
/// drawn are given again after a crash. MySQL 8 writes at once.
#[async_trait]
impl Crashing for (&MysqlServer, &Mysql) {
    async fn draw(&self) -> (u64, Box<dyn Any + Send>) {
        const LAST: &str = "select max(seq) from posthaste_outbox";
        let mut connection = self.1.client().await.unwrap();
        let begin = sqlx::raw_sql("start transaction");
        begin.execute(&mut connection).await.unwrap();
        let step = Step::new("aborted", 100);
        let numbers: Vec<i64> = (0..100).collect();
        let events = events(&step, &numbers).unwrap();
        let emitted = Outbox::new().emit_all(&mut connection, &events).await;
        emitted.unwrap();
        let last = sqlx::query_scalar(LAST).fetch_one(&mut connection).await;
        let last: u64 = last.unwrap();
        (last + 1, Box::new(connection))
    }

    fn crash(&self) {
        self.0.kill9();
    }

    fn start_again(&self) {
        self.0.start_again();
    }

    /// Draws it, in vain.
    fn next(&self) -> u64 {
        self.1.number(
            "start transaction;
             insert into posthaste_outbox (topic, payload) values ('facts', '0');
             select last_insert_id();
             rollback",
        )
    }
}
