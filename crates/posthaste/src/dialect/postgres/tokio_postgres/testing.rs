//! tokio-postgres.

use async_trait::async_trait;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::classify;
use crate::error::EmitError;
use crate::event::Event;
use crate::testing::{Inspect, Row, unreadable};

#[async_trait]
impl Inspect for Transaction<'_> {
    async fn events_after(&mut self, seq: i64) -> Result<Vec<(i64, Event)>, EmitError> {
        let sql = include_str!("../../../sql/emitted_postgres.sql");
        let rows = self
            .query_typed(sql, &[(&seq, Type::INT8)])
            .await
            .map_err(classify)?;
        rows.iter()
            .map(|row| {
                let (seq, row) = read(row).map_err(unreadable)?;
                Ok((seq, row.into_event()?))
            })
            .collect()
    }
}

fn read(row: &tokio_postgres::Row) -> Result<(i64, Row), tokio_postgres::Error> {
    let mut texts: [Option<String>; 8] = Default::default();
    for (index, text) in texts.iter_mut().enumerate() {
        *text = row.try_get(3 + index)?;
    }
    Ok((
        row.try_get("seq")?,
        Row {
            id: row.try_get("id")?,
            topic: row.try_get("topic")?,
            texts,
            payload: row.try_get("payload")?,
            headers: row.try_get("headers")?,
            occurred_at: row.try_get("occurred_at")?,
        },
    ))
}
