//! Connections: what they wait for, and how they break.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicUsize};

use posthaste_engine::StoreError;
use tokio::sync::OwnedMutexGuard;

use super::{Settings, Step, database::Database, tables::Tables};

/// One server and what it waits for.
pub(super) struct Server {
    database: Mutex<Database>,
    /// All locks on rows of the relays' tables, and with them the locks of destinations.
    tables: Arc<tokio::sync::Mutex<()>>,
    /// The retention lock.
    pub(super) retention: Arc<tokio::sync::Mutex<()>>,
    /// Counts the steps of housekeeping.
    pub(super) turn: AtomicUsize,
    step: Step,
    under_way: Step,
    pub(super) page_events: usize,
    pub(super) leaf_bits: u8,
    pooled: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            database: Mutex::new(Database::new(&settings)),
            tables: Arc::default(),
            retention: Arc::default(),
            turn: AtomicUsize::new(0),
            page_events: settings.page_events,
            leaf_bits: settings.leaf_bits,
            pooled: settings.pooled,
            step: settings.step,
            under_way: settings.under_way,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Database> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Anything may happen meanwhile.
    pub(super) async fn step(&self) {
        let long = (self.step)();
        if long.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(long).await;
        }
    }
}

/// The caller that waits for an answer keeps the first; the second tells whether it still does.
fn waiting() -> (Arc<()>, Weak<()>) {
    let waiting = Arc::new(());
    let waiter = Arc::downgrade(&waiting);
    (waiting, waiter)
}

fn unavailable(operation: &'static str) -> StoreError {
    StoreError::Unavailable {
        operation,
        reason: "the connection broke".to_owned(),
        source: None,
    }
}

/// A connection, until it breaks.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) server: Arc<Server>,
    generation: u64,
}

impl Connection {
    pub(super) fn open(server: &Arc<Server>) -> Self {
        let generation = server.lock().generation;
        Self {
            server: Arc::clone(server),
            generation,
        }
    }

    /// The connection of the next statement: behind a pooler another one, when the last one has
    /// broken.
    pub(super) fn pooled(&self) -> Self {
        match self.server.pooled {
            true => Self::open(&self.server),
            false => self.clone(),
        }
    }

    /// The database, as long as this connection lives.
    pub(super) fn database(
        &self,
        operation: &'static str,
    ) -> Result<MutexGuard<'_, Database>, StoreError> {
        let database = self.server.lock();
        if database.is_up && database.generation == self.generation {
            return Ok(database);
        }
        Err(unavailable(operation))
    }

    /// Whether this connection lives.
    pub(super) fn live(&self, operation: &'static str) -> Result<(), StoreError> {
        self.database(operation).map(drop)
    }

    /// A statement that changes nothing: it arrives, looks, and is answered.
    pub(super) async fn look<T>(
        &self,
        operation: &'static str,
        look: impl FnOnce(&Database) -> T + Send,
    ) -> Result<T, StoreError> {
        let connection = self.pooled();
        connection.server.step().await;
        let found = look(&*connection.database(operation)?);
        connection.server.step().await;
        connection.live(operation)?;
        Ok(found)
    }

    /// A statement that changes something, a transaction of its own. It goes on when its caller
    /// does not wait for the answer any more.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = self.pooled();
        let (_waiting, waiter) = waiting();
        let done = tokio::spawn(async move {
            let under_way = (connection.server.under_way)();
            if !under_way.is_zero() {
                tokio::time::sleep(under_way).await;
            }
            connection.server.step().await;
            let mut transaction = connection.begin(operation).await?;
            connection.server.step().await;
            let done = work(&mut *connection.database(operation)?)?;
            transaction.end(operation)?;
            drop(transaction);
            connection.count_unheard(&waiter);
            connection.server.step().await;
            connection.live(operation)?;
            Ok(done)
        });
        done.await.map_err(|error| StoreError::Bug {
            operation,
            reason: error.to_string(),
        })?
    }

    fn count_unheard(&self, waiter: &Weak<()>) {
        let unheard = waiter.strong_count() == 0;
        self.server.lock().counters.unheard += u64::from(unheard);
    }

    /// Waits for the locks, and draws a number.
    async fn begin(&self, operation: &'static str) -> Result<Numbered, StoreError> {
        self.live(operation)?;
        let locks = Arc::clone(&self.server.tables).lock_owned().await;
        let xid = self.database(operation)?.assign_xid();
        Ok(Numbered {
            connection: self.clone(),
            xid: Some(xid),
            _locks: locks,
        })
    }

    /// A transaction of several statements, all of whose changes come at its end, or none.
    pub(super) async fn transaction(&self, operation: &'static str) -> Result<Several, StoreError> {
        let connection = self.pooled();
        connection.server.step().await;
        let numbered = connection.begin(operation).await?;
        let tables = connection.database(operation)?.now.tables.clone();
        Ok(Several {
            operation,
            numbered,
            tables: Mutex::new(tables),
        })
    }
}

/// A transaction that has a number and its locks; rolled back unless it ends.
#[derive(Debug)]
struct Numbered {
    connection: Connection,
    xid: Option<u64>,
    _locks: OwnedMutexGuard<()>,
}

impl Numbered {
    /// Commits.
    fn end(&mut self, operation: &'static str) -> Result<(), StoreError> {
        let mut database = self.connection.database(operation)?;
        if let Some(xid) = self.xid.take() {
            database.commit(xid);
        }
        Ok(())
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        let mut database = self.connection.server.lock();
        // A crash has ended it already, and may have issued its number again.
        if let Some(xid) = self.xid.take()
            && database.generation == self.connection.generation
        {
            database.abort(xid);
        }
    }
}

/// A transaction of several statements.
#[derive(Debug)]
pub(super) struct Several {
    operation: &'static str,
    numbered: Numbered,
    /// As this transaction sees them.
    tables: Mutex<Tables>,
}

impl Several {
    /// One of its statements. It is told the time.
    pub(super) async fn statement<T>(
        &self,
        work: impl FnOnce(&mut Tables, i64) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let connection = &self.numbered.connection;
        let now = connection.database(self.operation)?.clock();
        let done = {
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut tables, now)?
        };
        connection.server.step().await;
        connection.live(self.operation)?;
        Ok(done)
    }

    /// Commits, whether or not anybody waits for the answer.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let Self {
            operation,
            mut numbered,
            tables,
        } = self;
        let (_waiting, waiter) = waiting();
        let done = tokio::spawn(async move {
            let connection = numbered.connection.clone();
            connection.server.step().await;
            let tables = tables.into_inner().unwrap_or_else(PoisonError::into_inner);
            connection.database(operation)?.now.tables = tables;
            numbered.end(operation)?;
            drop(numbered);
            connection.count_unheard(&waiter);
            connection.server.step().await;
            connection.live(operation)
        });
        done.await.map_err(|error| StoreError::Bug {
            operation,
            reason: error.to_string(),
        })?
    }
}
