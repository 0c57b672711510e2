//! The shop on SQLite, by a client that the library has no adapter for: [`Outbox::statement`].

use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Dialect, Outbox, Param};
use posthaste_stores::sqlite::SqliteConfig;
use rusqlite::{Connection, TransactionBehavior, params, params_from_iter, types::Value};

use super::{Change, Shop, event};
use crate::{failure::Failure, secret::SecretUrl};

pub(super) struct SqliteShop {
    connection: Connection,
    prefix: String,
}

impl SqliteShop {
    pub(super) fn open(url: &SecretUrl, run: &str) -> Result<Self, Failure> {
        let connection = Connection::open(SqliteConfig::parse(url.expose())?.path)?;
        // A time-out that any application should have; the relay's own writes are short.
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(Self {
            connection,
            prefix: format!("posthaste_demo_{run}"),
        })
    }
}

#[async_trait]
impl Shop for SqliteShop {
    async fn create(&mut self) -> Result<(), Failure> {
        let prefix = &self.prefix;
        self.connection.execute_batch(&format!(
            "create table {prefix}_orders (id text primary key, changes integer not null);
             create table {prefix}_changes (
                 event_id text primary key, order_id text not null, n integer not null);"
        ))?;
        Ok(())
    }

    async fn sale(&mut self, topic: &str, orders: &[String], commit: bool) -> Result<(), Failure> {
        let prefix = &self.prefix;
        let tx = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for order in orders {
            let n: i64 = tx
                .prepare_cached(&format!(
                    "insert into {prefix}_orders (id, changes) values (?1, 1)
                     on conflict (id) do update set changes = changes + 1 returning changes"
                ))?
                .query_row([order], |row| row.get(0))?;
            let events = [event(topic, order, n.unsigned_abs())?];
            tx.prepare_cached(&format!(
                "insert into {prefix}_changes (event_id, order_id, n) values (?1, ?2, ?3)"
            ))?
            .execute(params![events[0].id().to_string(), order, n])?;
            let emit = Outbox::new().statement(Dialect::Sqlite, &events)?;
            tx.prepare_cached(emit.sql())?
                .execute(params_from_iter(emit.params().iter().map(value)))?;
        }
        if commit {
            tx.commit()?
        } else {
            tx.rollback()?
        }
        Ok(())
    }

    async fn truth(&mut self) -> Result<Vec<Change>, Failure> {
        let prefix = &self.prefix;
        let mut statement = self.connection.prepare(&format!(
            "select event_id, order_id, n from {prefix}_changes"
        ))?;
        let rows = statement.query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, i64>(2)?,
            ))
        })?;
        rows.map(|row| {
            let (event, order, n) = row?;
            let event = event
                .parse()
                .map_err(|_| Failure::failed("the shop's table holds no id"))?;
            Ok(Change {
                event,
                order,
                n: n.unsigned_abs(),
            })
        })
        .collect()
    }

    async fn remove(&mut self) -> Result<(), Failure> {
        let prefix = &self.prefix;
        self.connection.execute_batch(&format!(
            "drop table {prefix}_orders; drop table {prefix}_changes;"
        ))?;
        Ok(())
    }
}

/// A parameter as this client takes it.
fn value(param: &Param<'_>) -> Value {
    match param {
        Param::Text(text) => text
            .as_ref()
            .map_or(Value::Null, |text| Value::Text(text.to_string())),
        Param::Bytes(bytes) => bytes.map_or(Value::Null, |bytes| Value::Blob(bytes.to_vec())),
        Param::BigInt(number) => Value::Integer(*number),
        // Arrays are PostgreSQL's.
        _ => Value::Null,
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::failed(format!("the shop's database: {error}"))
    }
}
