//! Reading the outbox and moving the cursor, under a claim.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use posthaste_engine::{
    AdvanceOutcome, Budget, Claim, ClaimProgress, ClaimReader, Cursor, OrderBy, Page, StoreError,
    StoredEvent,
};
use rusqlite::{Connection, Transaction, named_params};
use tokio::sync::OnceCell;

use super::{
    config::SqliteConfig,
    connection::{Worker, execute, one},
    cursor::{self, Position},
    destination::refuse_counter_set_back,
    error::classify,
    guard::{Changed, Guard},
    pause::Pause,
    row,
};
use crate::page::{self, Pushed};

/// The connections of a claim's owner: one for pages, one for changes, and one, opened when it is
/// first needed, for everything about parked events, so that a long search for the events of one
/// key delays neither of the others.
pub(super) struct SqliteClaimed {
    config: SqliteConfig,
    pause: Pause,
    guard: Guard,
    pub(super) writer: Worker,
    reader: Worker,
    parking: OnceCell<Arc<Worker>>,
    reading: Mutex<Reading>,
}

/// How far the main group was read.
#[derive(Debug, Clone, Copy)]
struct Reading {
    after: i64,
    /// `PRAGMA data_version` from before the last read, if that read found nothing: as long as it
    /// is the same, nothing was committed and another read would find nothing.
    nothing_at: Option<i64>,
}

/// The result of one read of the outbox.
pub(super) struct EventsRead {
    pub(super) events: Vec<StoredEvent>,
    /// Whether there was nothing more to read.
    pub(super) all: bool,
}

impl SqliteClaimed {
    pub(super) async fn open(
        config: &SqliteConfig,
        pause: &Pause,
        claim: &Claim,
    ) -> Result<Self, StoreError> {
        const OPERATION: &str = "open a claim";
        let guard = Guard::new(OPERATION, claim)?;
        let reader = Worker::open(OPERATION, config, pause).await?;
        let writer = Worker::open(OPERATION, config, pause).await?;
        let after = guard
            .read(&reader, OPERATION, |_, standing| Ok(standing.seq))
            .await?;
        Ok(Self {
            config: config.clone(),
            pause: pause.clone(),
            guard,
            writer,
            reader,
            parking: OnceCell::new(),
            reading: Mutex::new(Reading {
                after,
                nothing_at: None,
            }),
        })
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The connection for everything about parked events.
    pub(super) async fn parking(&self, operation: &'static str) -> Result<Arc<Worker>, StoreError> {
        self.parking
            .get_or_try_init(|| async {
                let worker = Worker::open(operation, &self.config, &self.pause).await?;
                Ok(Arc::new(worker))
            })
            .await
            .map(Arc::clone)
    }

    fn reading(&self) -> Reading {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_read(&self, reading: Reading) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }
}

#[async_trait]
impl ClaimReader for SqliteClaimed {
    async fn next(&self, budget: Budget) -> Result<Page, StoreError> {
        const OPERATION: &str = "read the outbox";
        let Reading { after, nothing_at } = self.reading();
        let data_version = self
            .reader
            .plain(OPERATION, |connection| data_version(connection, OPERATION))
            .await?;
        if nothing_at == Some(data_version) {
            return Ok(page(Vec::new(), after, true));
        }
        let order_by = self.guard.order_by();
        let EventsRead { events, all } = self
            .guard
            .read(&self.reader, OPERATION, move |tx, _| {
                let found = read_page(tx, OPERATION, order_by, after, budget)?;
                if found.events.is_empty() {
                    refuse_counter_set_back(tx, OPERATION, after)?;
                }
                Ok(found)
            })
            .await?;
        let end = events.last().map_or(after, StoredEvent::seq);
        if let Some(last) = events.last() {
            self.guard.has_read(last.seq(), last.id());
        }
        self.has_read(Reading {
            after: end,
            nothing_at: events.is_empty().then_some(data_version),
        });
        Ok(page(events, end, all))
    }
}

#[async_trait]
impl ClaimProgress for SqliteClaimed {
    async fn advance(
        &self,
        up_to: &Cursor,
        // The cursor says it all.
        _finished: &[i64],
    ) -> Result<AdvanceOutcome, StoreError> {
        const OPERATION: &str = "advance the cursor";
        let seq = cursor::seq(OPERATION, up_to)?;
        self.guard
            .write(&self.writer, OPERATION, move |tx, standing| {
                let moved = execute(
                    tx,
                    OPERATION,
                    include_str!("sql/advance.sql"),
                    named_params! { ":seq": seq, ":cursor_id": standing.cursor_id },
                )?;
                let changed = if moved > 0 {
                    Changed::Something
                } else {
                    Changed::Nothing
                };
                Ok(((), changed))
            })
            .await?;
        Ok(AdvanceOutcome::default())
    }
}

/// A page that ends at `end`. Numbers are drawn in the order of commits, so that every place is one
/// where a side read can join.
pub(super) fn page(events: Vec<StoredEvent>, end: i64, caught_up: bool) -> Page {
    Page {
        caught_up,
        ..Page::up_to(Position(end).shared(), events)
    }
}

/// A number that changes when another connection has committed.
fn data_version(connection: &Connection, operation: &'static str) -> Result<i64, StoreError> {
    let sql = "pragma data_version";
    one(connection, operation, sql, &[], |row| row.get(0))
}

fn read_page(
    tx: &Transaction<'_>,
    operation: &'static str,
    order_by: OrderBy,
    after: i64,
    budget: Budget,
) -> Result<EventsRead, StoreError> {
    let fail = |error| classify(operation, error);
    let mut statement = tx
        .prepare_cached(include_str!("sql/page.sql"))
        .map_err(fail)?;
    let mut rows = statement
        .query(named_params! { ":after": after, ":until": i64::MAX })
        .map_err(fail)?;
    let mut page = page::page(budget, order_by);
    let mut all = true;
    while let Some(row) = rows.next().map_err(fail)? {
        if row::push(&mut page, budget, operation, row)? == Pushed::NoRoom {
            all = false;
            break;
        }
    }
    Ok(EventsRead {
        events: page.finish(),
        all,
    })
}
