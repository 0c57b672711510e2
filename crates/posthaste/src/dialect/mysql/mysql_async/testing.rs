//! mysql_async with MySQL and MariaDB.

use async_trait::async_trait;
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{FromValueError, Transaction, Value};

use super::super::headers;
use super::classify;
use crate::error::EmitError;
use crate::event::Event;
use crate::testing::{Inspect, Row, unreadable};

#[async_trait]
impl Inspect for Transaction<'_> {
    async fn events_after(&mut self, seq: i64) -> Result<Vec<(i64, Event)>, EmitError> {
        let sql = include_str!("../../../sql/emitted_mysql.sql");
        let rows: Vec<mysql_async::Row> = self.exec(sql, (seq,)).await.map_err(classify)?;
        rows.iter()
            .map(|row| {
                let (seq, mut event) = read(row).map_err(unreadable)?;
                let text = row.get_opt::<String, _>("headers");
                let text = text.unwrap_or_else(missing).map_err(unreadable)?;
                event.headers = headers(&text).map_err(unreadable)?;
                Ok((seq, event.into_event()?))
            })
            .collect()
    }
}

fn missing<T>() -> Result<T, FromValueError> {
    Err(FromValueError(Value::NULL))
}

fn read(row: &mysql_async::Row) -> Result<(i64, Row), FromValueError> {
    fn field<T: FromValue>(row: &mysql_async::Row, index: usize) -> Result<T, FromValueError> {
        row.get_opt(index).unwrap_or_else(missing)
    }
    let mut texts: [Option<String>; 8] = Default::default();
    for (index, text) in texts.iter_mut().enumerate() {
        *text = field(row, 3 + index)?;
    }
    Ok((
        field(row, 0)?,
        Row {
            id: field(row, 1)?,
            topic: field(row, 2)?,
            texts,
            payload: field(row, 11)?,
            headers: Vec::new(),
            occurred_at: field(row, 12)?,
        },
    ))
}
