//! sqlx with PostgreSQL.

use async_trait::async_trait;
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::classify;
use crate::error::EmitError;
use crate::event::Event;
use crate::testing::{Inspect, Row, unreadable};

#[async_trait]
impl Inspect for PgConnection {
    async fn events_after(&mut self, seq: i64) -> Result<Vec<(i64, Event)>, EmitError> {
        let query = sqlx::query(include_str!("../../../sql/emitted_postgres.sql")).bind(seq);
        let rows = query.fetch_all(self).await.map_err(classify)?;
        rows.iter()
            .map(|row| {
                let (seq, row) = read(row).map_err(unreadable)?;
                Ok((seq, row.into_event()?))
            })
            .collect()
    }
}

fn read(row: &PgRow) -> Result<(i64, Row), sqlx::Error> {
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
