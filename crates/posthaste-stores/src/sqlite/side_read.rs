//! Reads what one blocked key has behind its marker.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, Page, SideRead, StoreError};
use rusqlite::{Transaction, named_params};

use super::{
    connection::{Worker, execute},
    cursor,
    error::{classify, unexpected},
    guard::{Changed, Guard},
    parking,
    row::{self, Pushed},
    source::{Found, SqliteClaimed, page},
};

/// Rows that one transaction looks at. There is no index on the key, and a transaction that reads for
/// long keeps the write-ahead log from being started over: this many rows take some milliseconds.
const ROWS_A_TRANSACTION: usize = 20_000;

/// A side read of one key. It is bound to its claim like everything else.
pub(super) struct SqliteSideRead {
    guard: Guard,
    worker: Arc<Worker>,
    key: String,
    after: i64,
}

impl SqliteSideRead {
    pub(super) async fn begin(claimed: &SqliteClaimed, key: &str) -> Result<Self, StoreError> {
        const OPERATION: &str = "begin a side read";
        let guard = claimed.guard().clone();
        let worker = claimed.parking(OPERATION).await?;
        let destination_id = guard.destination_id();
        let wanted = key.to_owned();
        let marker: Option<i64> = guard
            .read(&worker, OPERATION, move |tx, _| {
                parking::marker(tx, OPERATION, destination_id, &wanted)
            })
            .await?;
        Ok(Self {
            guard,
            worker,
            key: key.to_owned(),
            after: marker.ok_or_else(|| unexpected(OPERATION, "the key has no marker"))?,
        })
    }
}

#[async_trait]
impl SideRead for SqliteSideRead {
    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        const OPERATION: &str = "side-read a key";
        let until = cursor::seq(OPERATION, until)?;
        while self.after < until {
            let (key, after) = (self.key.clone(), self.after);
            let (found, looked_at) = self
                .guard
                .read(&self.worker, OPERATION, move |tx, _| {
                    read_key(tx, OPERATION, &key, after, until, budget)
                })
                .await?;
            self.after = if found.all { until } else { looked_at };
            if let Some(last) = found.events.last() {
                self.guard.has_read(last.seq(), last.id());
                return Ok(page(found.events, self.after, found.all));
            }
        }
        Ok(page(Vec::new(), self.after, true))
    }

    async fn advance(
        &mut self,
        at: &Cursor,
        // The marker says it all.
        _finished: &[i64],
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "move a marker";
        let seq = cursor::seq(OPERATION, at)?;
        let destination_id = self.guard.destination_id();
        let key = self.key.clone();
        self.guard
            .write(&self.worker, OPERATION, move |tx, _| {
                let moved = execute(
                    tx,
                    OPERATION,
                    include_str!("sql/marker_move.sql"),
                    named_params! { ":seq": seq, ":destination_id": destination_id, ":key": key },
                )?;
                if moved == 0 {
                    return Err(unexpected(OPERATION, "the key has no marker"));
                }
                Ok(((), Changed::Something))
            })
            .await
    }
}

/// One transaction's worth of the key's events, and the last number that was looked at.
fn read_key(
    tx: &Transaction<'_>,
    operation: &'static str,
    key: &str,
    after: i64,
    until: i64,
    budget: Budget,
) -> Result<(Found, i64), StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/page.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":after": after, ":until": until })
        .map_err(fail)?;
    let mut events = row::page(budget);
    let mut looked_at = after;
    let mut all = true;
    for number in 0.. {
        let Some(row) = rows.next().map_err(fail)? else {
            break;
        };
        if number == ROWS_A_TRANSACTION {
            all = false;
            break;
        }
        // Compared as it is delivered, so that a key whose bytes are not UTF-8 finds its followers.
        if row::key(operation, row, row::KEY)?.as_deref() == Some(key)
            && row::push(&mut events, budget, operation, row)? == Pushed::NoRoom
        {
            all = false;
            break;
        }
        looked_at = row.get(0).map_err(fail)?;
    }
    Ok((
        Found {
            events: events.finish(),
            all,
        },
        looked_at,
    ))
}
