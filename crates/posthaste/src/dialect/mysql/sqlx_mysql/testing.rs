//! sqlx with MySQL and MariaDB.

use async_trait::async_trait;
use sqlx::{MySqlConnection, Row as _, mysql::MySqlRow};

use super::super::headers;
use super::classify;
use crate::error::EmitError;
use crate::event::Event;
use crate::testing::{Inspect, Row, unreadable};

#[async_trait]
impl Inspect for MySqlConnection {
    async fn events_after(&mut self, seq: i64) -> Result<Vec<(i64, Event)>, EmitError> {
        let query = sqlx::query(include_str!("../../../sql/emitted_mysql.sql")).bind(seq);
        let rows = query.fetch_all(self).await.map_err(classify)?;
        rows.iter()
            .map(|row| {
                let (seq, row) = read(row).map_err(unreadable)?;
                Ok((seq, row.into_event()?))
            })
            .collect()
    }
}

fn read(row: &MySqlRow) -> Result<(i64, Row), sqlx::Error> {
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
            headers: headers(row.try_get("headers")?).map_err(|e| sqlx::Error::Decode(e.into()))?,
            occurred_at: row.try_get("occurred_at")?,
        },
    ))
}
