//! SQLite: the embedded default. The outbox and everything that relays and operators keep beside it
//! live in one file, in write-ahead mode, shared by any number of processes.
//!
//! One writer at a time draws the numbers of the outbox, so that they follow the order of commits
//! and a cursor is one number. `AUTOINCREMENT` keeps the numbers of deleted rows from coming again.
//!
//! Every change is one short `BEGIN IMMEDIATE` transaction, and the lock is left alone for as long
//! as it was held: an application with a busy time-out of a second does not fail on one relay.
//! Every commit is synced before it counts. Reads under a claim are short transactions too, since a
//! long one keeps the write-ahead log from starting over.

mod admin;
mod audit;
mod claimed;
mod config;
mod connection;
mod cursor;
mod destination;
mod error;
mod evacuate;
mod file;
#[cfg(test)]
mod fuzz;
mod guard;
mod holds_key;
mod live;
mod markers;
mod migrate;
mod ordering;
mod ownership;
mod owning;
mod parking;
mod pause;
mod report;
mod retention;
mod row;
mod settings;
mod shares;
mod side_read;
mod status;
mod text;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste::Dialect;
use posthaste_engine::{Claim, Claimed, Progress, Store, StoreError, StoreInfo};
use rusqlite::{Connection, MAIN_DB, TransactionBehavior};
use tokio::sync::Mutex;

pub use config::SqliteConfig;
pub use migrate::{InitOptions, InitReport, init, sql};

use crate::descriptor::Functions;
use claimed::SqliteClaimed;
use connection::{Worker, empty_log, transaction};
use error::classify;
use pause::Pause;
use watch::Watch;

/// The functions of its row.
pub(crate) const FUNCTIONS: Functions = Functions {
    open: |url| Ok(Arc::new(SqliteStore::new(url)?)),
    init: |url, asked| {
        Box::pin(async move {
            let done = init(url, own_options(asked)).await?;
            Ok(crate::init::Initialised {
                applied: done.applied,
                version: done.version,
                new_era: None,
            })
        })
    },
    init_sql: |asked| sql(own_options(asked)),
    schema_version: || Dialect::Sqlite.schema_version(),
    plan_new_era: None,
};

/// The options of `init` that mean something here.
fn own_options(asked: &crate::init::InitOptions) -> InitOptions {
    InitOptions {
        partitions: asked.partitions,
        retention: asked.retention,
    }
}

/// An outbox in an SQLite file.
///
/// Connections are opened when they are first needed: one for leases and claims, one for operators'
/// calls (which may take long, and a lease must not wait), one for housekeeping, and those of each
/// claim.
#[derive(Debug)]
pub struct SqliteStore {
    config: SqliteConfig,
    control: Mutex<Option<Arc<Worker>>>,
    admin: Mutex<Option<Arc<Worker>>>,
    housekeeper: Mutex<Option<Arc<Worker>>>,
    pause: Pause,
    watch: Arc<Watch>,
}

impl SqliteStore {
    /// The store at this address. Does not touch the file.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] that names what is wrong with the address.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        Ok(Self {
            config: SqliteConfig::parse(url)?,
            control: Mutex::new(None),
            admin: Mutex::new(None),
            housekeeper: Mutex::new(None),
            pause: Pause::default(),
            watch: Arc::default(),
        })
    }

    async fn control(&self, operation: &'static str) -> Result<Arc<Worker>, StoreError> {
        self.worker(operation, &self.control).await
    }

    async fn admin(&self, operation: &'static str) -> Result<Arc<Worker>, StoreError> {
        self.worker(operation, &self.admin).await
    }

    async fn housekeeper(&self, operation: &'static str) -> Result<Arc<Worker>, StoreError> {
        self.worker(operation, &self.housekeeper).await
    }

    /// The connection in this place, opened anew when there is none or the file was replaced.
    async fn worker(
        &self,
        operation: &'static str,
        place: &Mutex<Option<Arc<Worker>>>,
    ) -> Result<Arc<Worker>, StoreError> {
        let mut place = place.lock().await;
        if let Some(worker) = place.as_ref()
            && worker.still_the_file(operation).is_ok()
        {
            return Ok(Arc::clone(worker));
        }
        let worker = Arc::new(Worker::open(operation, &self.config, &self.pause).await?);
        *place = Some(Arc::clone(&worker));
        Ok(worker)
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "sqlite",
            progress: Progress::Cursor,
            // There is one writer at a time: nobody commits late.
            shares_out: false,
        }
    }

    async fn check(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "check the store";
        match std::fs::metadata(&self.config.path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => {
                return Err(StoreError::Misconfigured {
                    operation: OPERATION,
                    reason: format!(
                        "{} is not a file: give the path of the database",
                        self.config.path.display()
                    ),
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(StoreError::Misconfigured {
                    operation: OPERATION,
                    reason: format!(
                        "{} does not exist: run `posthaste init --store sqlite:{}`, or correct the \
                         path",
                        self.config.path.display(),
                        self.config.path.display()
                    ),
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(denied(&self.config));
            }
            Err(error) => {
                return Err(StoreError::Unavailable {
                    operation: OPERATION,
                    reason: format!("{}: {error}", self.config.path.display()),
                    source: Some(Box::new(error)),
                });
            }
        }
        let config = self.config.clone();
        Worker::open(OPERATION, &self.config, &self.pause)
            .await
            .map_err(|error| may_not_read(&self.config).unwrap_or(error))?
            .plain(OPERATION, move |connection| {
                check_file(OPERATION, connection, &config)
            })
            .await
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        Ok(Arc::new(
            SqliteClaimed::open(&self.config, &self.pause, claim).await?,
        ))
    }

    fn disconnect(&self) {
        for place in [&self.control, &self.admin, &self.housekeeper] {
            // Its holder is opening a new one.
            if let Ok(mut worker) = place.try_lock() {
                *worker = None;
            }
        }
    }

    /// A backup that is put in the place of the file takes up a write-ahead log that lies there,
    /// and is damaged by it; a copy of the file alone lacks what stands in the log.
    async fn close(&self) {
        const OPERATION: &str = "empty the write-ahead log";
        if !self.config.path.exists() {
            return self.disconnect();
        }
        let emptied = async {
            let worker = self.admin(OPERATION).await?;
            worker
                .plain(OPERATION, |connection| empty_log(OPERATION, connection))
                .await
        };
        match emptied.await {
            Ok(true) => {}
            Ok(false) => tracing::info!(
                "{} is in use: the log beside it, which belongs to it, is left to whoever uses it",
                self.config.path.display()
            ),
            Err(error) => tracing::warn!("{error}"),
        }
        self.disconnect();
    }
}

fn denied(config: &SqliteConfig) -> StoreError {
    StoreError::Denied {
        operation: "check the store",
        reason: format!(
            "{} cannot be written: give this user the right to write the file and its directory, \
             on a file system that is mounted for writing",
            config.path.display()
        ),
    }
}

/// SQLite says "cannot open" for missing rights and for a file that is locked away for a moment;
/// the operating system tells them apart.
fn may_not_read(config: &SqliteConfig) -> Option<StoreError> {
    match std::fs::File::open(&config.path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Some(denied(config)),
        _ => None,
    }
}

fn check_file(
    operation: &'static str,
    connection: &mut Connection,
    config: &SqliteConfig,
) -> Result<(), StoreError> {
    let fail = |error| classify(operation, error);
    // A file that may only be read is opened all the same.
    if connection.is_readonly(MAIN_DB).map_err(fail)? {
        return Err(denied(config));
    }
    migrate::check(connection, operation)?;
    let mode: String = connection
        .query_row("pragma journal_mode", [], |row| row.get(0))
        .map_err(fail)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(StoreError::Misconfigured {
            operation,
            reason: format!(
                "the file is in journal mode `{mode}`, where readers and writers keep each other \
                 waiting: run `posthaste init` for it"
            ),
        });
    }
    // Without the write lock: people look at a store above all while something is wrong with it.
    transaction(connection, operation, TransactionBehavior::Deferred, |tx| {
        destination::refuse_set_back(tx, operation)
    })
}
