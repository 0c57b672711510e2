//! The shop on PostgreSQL, by tokio-postgres and the library's adapter for it.

use async_trait::async_trait;
use posthaste::Outbox;
use tokio_postgres::{Client, NoTls};

use super::{Change, Shop, event};
use crate::{failure::Failure, secret::SecretUrl};

pub(super) struct PostgresShop {
    client: Client,
    schema: String,
}

impl PostgresShop {
    pub(super) async fn open(url: &SecretUrl, run: &str) -> Result<Self, Failure> {
        let (client, connection) = tokio_postgres::connect(url.expose(), NoTls).await?;
        // It ends when the client is dropped; an error of it is the next statement's error.
        tokio::spawn(connection);
        Ok(Self {
            client,
            schema: format!("posthaste_demo_{run}"),
        })
    }
}

#[async_trait]
impl Shop for PostgresShop {
    async fn create(&mut self) -> Result<(), Failure> {
        let schema = &self.schema;
        self.client
            .batch_execute(&format!(
                "create schema {schema};
                 create table {schema}.orders (id text primary key, changes bigint not null);
                 create table {schema}.changes (
                     event_id text primary key, order_id text not null, n bigint not null);"
            ))
            .await?;
        Ok(())
    }

    async fn sale(&mut self, topic: &str, orders: &[String], commit: bool) -> Result<(), Failure> {
        let schema = &self.schema;
        let mut tx = self.client.transaction().await?;
        for order in orders {
            let changed = tx
                .query_one(
                    &format!(
                        "insert into {schema}.orders as o (id, changes) values ($1, 1)
                         on conflict (id) do update set changes = o.changes + 1 returning changes"
                    ),
                    &[order],
                )
                .await?;
            let n: i64 = changed.try_get(0)?;
            let emitted = Outbox::new()
                .emit(&mut tx, event(topic, order, n.unsigned_abs())?)
                .await?;
            tx.execute(
                &format!(
                    "insert into {schema}.changes (event_id, order_id, n) values ($1, $2, $3)"
                ),
                &[&emitted.id.to_string(), order, &n],
            )
            .await?;
        }
        if commit {
            tx.commit().await?
        } else {
            tx.rollback().await?
        }
        Ok(())
    }

    async fn truth(&mut self) -> Result<Vec<Change>, Failure> {
        let schema = &self.schema;
        let rows = self
            .client
            .query(
                &format!("select event_id, order_id, n from {schema}.changes"),
                &[],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let (event, n): (String, i64) = (row.try_get(0)?, row.try_get(2)?);
                let event = event
                    .parse()
                    .map_err(|_| Failure::failed("the shop's table holds no id"))?;
                Ok(Change {
                    event,
                    order: row.try_get(1)?,
                    n: n.unsigned_abs(),
                })
            })
            .collect()
    }

    async fn remove(&mut self) -> Result<(), Failure> {
        self.client
            .batch_execute(&format!("drop schema {} cascade", self.schema))
            .await?;
        Ok(())
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let reason = error
            .as_db_error()
            .map_or_else(|| error.to_string(), |e| e.message().to_owned());
        Self::failed(format!("the shop's database: {reason}"))
    }
}
