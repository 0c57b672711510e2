//! Reads what released keys have behind their markers.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use posthaste_engine::{Budget, Cursor, OrderBy, Page, SideRead, StoreError, StoredEvent};
use rusqlite::{Transaction, named_params};

use super::{
    claimed::{EventsRead, SqliteClaimed, page},
    connection::{Worker, execute},
    cursor,
    error::{classify, unexpected},
    guard::{Changed, Guard},
    parking, row,
};
use crate::page::{self, Pushed};

/// Rows that one transaction looks at. There is no index on the key, and a transaction that reads
/// for long keeps the write-ahead log from being started over: this many rows take some
/// milliseconds.
const ROWS_A_TRANSACTION: usize = 20_000;

/// A side read of released keys. It is bound to its claim like everything else.
pub(super) struct SqliteSideRead {
    guard: Guard,
    worker: Arc<Worker>,
    /// Where each key's marker stood.
    starts: Arc<HashMap<String, i64>>,
    after: i64,
    /// The keys of the pages since the last advance.
    touched: BTreeSet<String>,
    /// Where the last of them ends.
    end: Option<Cursor>,
}

impl SqliteSideRead {
    pub(super) async fn begin(
        claimed: &SqliteClaimed,
        keys: &[String],
    ) -> Result<Self, StoreError> {
        const OPERATION: &str = "begin a side read";
        let guard = claimed.guard().clone();
        let worker = claimed.parking(OPERATION).await?;
        let destination_id = guard.destination_id();
        let keys = keys.to_vec();
        let starts: HashMap<String, i64> = guard
            .read(&worker, OPERATION, move |tx, _| {
                let mut starts = HashMap::new();
                for key in keys {
                    let at = parking::marker(tx, OPERATION, destination_id, &key)?;
                    let at = at.ok_or_else(|| unexpected(OPERATION, "a key has no marker"))?;
                    starts.insert(key, at);
                }
                Ok(starts)
            })
            .await?;
        Ok(Self {
            guard,
            worker,
            after: starts.values().copied().min().unwrap_or_default(),
            starts: Arc::new(starts),
            touched: BTreeSet::new(),
            end: None,
        })
    }
}

#[async_trait]
impl SideRead for SqliteSideRead {
    fn leave(&mut self, keys: &[String]) {
        let starts = Arc::make_mut(&mut self.starts);
        for key in keys {
            starts.remove(key);
            self.touched.remove(key);
        }
    }

    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError> {
        const OPERATION: &str = "side-read released keys";
        let until = cursor::seq(OPERATION, until)?;
        while self.after < until {
            let (starts, after) = (Arc::clone(&self.starts), self.after);
            let order_by = self.guard.order_by();
            let (found, looked_at) = self
                .guard
                .read(&self.worker, OPERATION, move |tx, _| {
                    read_keys(tx, OPERATION, (&starts, order_by), (after, until), budget)
                })
                .await?;
            self.after = if found.all { until } else { looked_at };
            if let Some(last) = found.events.last() {
                let keys = found.events.iter().filter_map(StoredEvent::order_key);
                self.touched.extend(keys.map(str::to_owned));
                self.guard.has_read(last.seq(), last.id());
                let page = page(found.events, self.after, found.all);
                self.end = Some(page.end.clone());
                return Ok(page);
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
        const OPERATION: &str = "move markers";
        let seq = cursor::seq(OPERATION, at)?;
        let destination_id = self.guard.destination_id();
        let keys = self.touched.clone();
        if self.end.as_ref().is_some_and(|end| end.is(at)) {
            self.touched.clear();
        }
        self.guard
            .write(&self.worker, OPERATION, move |tx, _| {
                for key in &keys {
                    let sql = include_str!("sql/marker_move.sql");
                    let of = named_params! {
                        ":seq": seq, ":destination_id": destination_id, ":key": key
                    };
                    let moved = execute(tx, OPERATION, sql, of)?;
                    if moved == 0 {
                        return Err(unexpected(OPERATION, "a key has no marker"));
                    }
                }
                Ok(((), Changed::Something))
            })
            .await
    }
}

/// One transaction's worth of the keys' events, and the last number that was looked at.
fn read_keys(
    tx: &Transaction<'_>,
    operation: &'static str,
    (starts, order_by): (&HashMap<String, i64>, OrderBy),
    (after, until): (i64, i64),
    budget: Budget,
) -> Result<(EventsRead, i64), StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/page.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":after": after, ":until": until })
        .map_err(fail)?;
    let mut events = page::page(budget, order_by);
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
        let seq: i64 = row.get(0).map_err(fail)?;
        let (topic, key) = row::topic_and_key(operation, row, row::TOPIC)?;
        let key = key.as_deref().map(|key| order_by.order_key(&topic, key));
        let start = key.and_then(|key| starts.get(&*key));
        if start.is_some_and(|&start| seq > start)
            && row::push(&mut events, budget, operation, row)? == Pushed::NoRoom
        {
            all = false;
            break;
        }
        looked_at = seq;
    }
    Ok((
        EventsRead {
            events: events.finish(),
            all,
        },
        looked_at,
    ))
}
