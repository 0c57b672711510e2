//! sqlx with SQLite.

use async_trait::async_trait;
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

use super::classify;
use crate::error::EmitError;
use crate::event::Event;
use crate::testing::{Inspect, Row, unreadable};

#[async_trait]
impl Inspect for SqliteConnection {
    async fn events_after(&mut self, seq: i64) -> Result<Vec<(i64, Event)>, EmitError> {
        let query = sqlx::query(include_str!("../../../sql/emitted_sqlite.sql")).bind(seq);
        let rows = query.fetch_all(&mut *self).await.map_err(classify)?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            let (seq, mut row) = read(row).map_err(unreadable)?;
            let headers = include_str!("../../../sql/emitted_headers_sqlite.sql");
            let query = sqlx::query_scalar(headers).bind(seq);
            row.headers = query.fetch_all(&mut *self).await.map_err(classify)?;
            events.push((seq, row.into_event()?));
        }
        Ok(events)
    }
}

fn read(row: &SqliteRow) -> Result<(i64, Row), sqlx::Error> {
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
            headers: Vec::new(),
            occurred_at: row.try_get("occurred_at")?,
        },
    ))
}
