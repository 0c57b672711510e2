//! One connection to the file, on a thread of its own: SQLite's calls block, and no worker of the
//! runtime may.

use std::{cell::Cell, sync::mpsc, thread, time::Duration};

use posthaste_engine::StoreError;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior,
    config::DbConfig,
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    config::SqliteConfig,
    error::classify,
    file::{FileId, identify, refuse_two_names},
    pause::Pause,
    text,
};

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Statements kept prepared on one connection; we have fewer than this.
const STATEMENTS_MAX: usize = 64;

/// After a checkpoint the write-ahead log is cut down to this many bytes.
const WAL_BYTES_KEPT: i64 = 64 << 20;

/// A connection on its own thread. Dropping it ends the thread when its last job is done.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
    file: FileId,
    config: SqliteConfig,
    pause: Pause,
}

impl Worker {
    /// Opens the file, which must exist.
    pub(super) async fn open(
        operation: &'static str,
        config: &SqliteConfig,
        pause: &Pause,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (opened, answer) = oneshot::channel();
        let for_thread = config.clone();
        thread::Builder::new()
            .name("posthaste-sqlite".to_owned())
            .spawn(move || match connect(operation, &for_thread) {
                Ok((mut connection, file)) => {
                    if opened.send(Ok(file)).is_ok() {
                        for job in queue {
                            job(&mut connection);
                        }
                    }
                }
                // The caller gave up waiting: nobody is left to tell.
                Err(error) => drop(opened.send(Err(error))),
            })
            .map_err(|error| StoreError::Unavailable {
                operation,
                reason: format!("no thread for a connection: {error}"),
                source: Some(Box::new(error)),
            })?;
        let file = answer.await.map_err(|_| ended(operation))??;
        Ok(Self {
            jobs,
            file,
            config: config.clone(),
            pause: pause.clone(),
        })
    }

    /// Runs `work` on the connection's thread. Once it was sent it runs, even if nobody waits any
    /// longer.
    async fn call<T, F>(&self, operation: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (done, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // The caller gave up waiting: nobody is left to tell.
            drop(done.send(work(connection)));
        });
        self.jobs.send(job).map_err(|_| ended(operation))?;
        answer.await.map_err(|_| ended(operation))?
    }

    /// Reads in one snapshot.
    pub(super) async fn read<T, F>(&self, operation: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.still_the_file(operation)?;
        self.call(operation, move |connection| {
            transaction(connection, operation, TransactionBehavior::Deferred, work)
        })
        .await
    }

    /// Changes the file in one transaction, durable when this returns. The write lock is taken at
    /// its start: an upgrade in the middle could fail however long we are ready to wait.
    pub(super) async fn write<T, F>(
        &self,
        operation: &'static str,
        mut work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        loop {
            self.pause.wait().await;
            self.still_the_file(operation)?;
            let pause = self.pause.clone();
            let tried = self.call(operation, move |connection| {
                write_after_pause(connection, operation, &pause, work)
            });
            match tried.await? {
                Tried::Written(answer) => return Ok(answer),
                Tried::InAPause(back) => work = back,
            }
        }
    }

    /// Runs `work` on the connection outside of any transaction.
    pub(super) async fn plain<T, F>(
        &self,
        operation: &'static str,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.still_the_file(operation)?;
        self.call(operation, work).await
    }

    /// Whether the path still leads to the file that is open here.
    pub(super) fn still_the_file(&self, operation: &'static str) -> Result<(), StoreError> {
        if identify(operation, &self.config.path)? == self.file {
            Ok(())
        } else {
            Err(StoreError::IncarnationChanged { operation })
        }
    }
}

fn ended(operation: &'static str) -> StoreError {
    StoreError::Unavailable {
        operation,
        reason: "the connection's thread ended".to_owned(),
        source: None,
    }
}

fn connect(
    operation: &'static str,
    config: &SqliteConfig,
) -> Result<(Connection, FileId), StoreError> {
    let before = identify(operation, &config.path)?;
    let connection = open(operation, config, OpenFlags::empty())?;
    // Replaced between the two looks: which of them is open cannot be known.
    if identify(operation, &config.path)? != before {
        return Err(StoreError::Unavailable {
            operation,
            reason: format!("{} was replaced while it was opened", config.path.display()),
            source: None,
        });
    }
    Ok((connection, before))
}

thread_local! {
    /// The busy time-out of this thread's connection: SQLite's handler is a plain function.
    static PATIENCE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The wait between two tries for the write lock. SQLite's own handler backs off to a tenth of a
/// second, and so hardly ever meets the moment between two transactions of writers that do not
/// pause.
const BUSY_STEP: Duration = Duration::from_millis(1);

fn wait_a_little(calls: i32) -> bool {
    let waited = BUSY_STEP * u32::try_from(calls).unwrap_or(u32::MAX);
    let patient = waited < PATIENCE.get();
    if patient {
        thread::sleep(BUSY_STEP);
    }
    patient
}

/// Opens the file, for this thread, with the settings that every connection of ours has.
pub(super) fn open(
    operation: &'static str,
    config: &SqliteConfig,
    more: OpenFlags,
) -> Result<Connection, StoreError> {
    refuse_two_names(operation, &config.path)?;
    let fail = |error| classify(operation, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let connection = Connection::open_with_flags(&config.path, flags).map_err(fail)?;
    PATIENCE.set(config.busy_timeout);
    connection.busy_handler(Some(wait_a_little)).map_err(fail)?;
    text::add_function(&connection).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // The last one to close would checkpoint under an exclusive lock, which an application that
    // opens the file at that moment does not wait for.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(fail)?;
    // With WAL, FULL is what makes a commit durable when it returns.
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(fail)?;
    connection
        .pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)
        .map_err(fail)?;
    Ok(connection)
}

/// Writers wait while the log is emptied, and it waits for readers so long.
const EMPTYING_MAX: Duration = Duration::from_millis(100);

/// Moves what stands in the write-ahead log into the file, and empties it if nobody reads it.
/// Answers whether it is empty.
pub(super) fn empty_log(
    operation: &'static str,
    connection: &mut Connection,
) -> Result<bool, StoreError> {
    let checkpoint = |mode: &str| {
        connection.query_row(&format!("pragma wal_checkpoint({mode})"), [], |row| {
            row.get::<_, bool>(0)
        })
    };
    let patience = PATIENCE.replace(EMPTYING_MAX);
    // The passive one does most of the work, and nobody waits for it.
    let busy = checkpoint("passive").and_then(|_| checkpoint("truncate"));
    PATIENCE.set(patience);
    busy.map(|busy| !busy)
        .map_err(|error| classify(operation, error))
}

pub(super) fn transaction<T>(
    connection: &mut Connection,
    operation: &'static str,
    behavior: TransactionBehavior,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let fail = |error| classify(operation, error);
    let tx = connection
        .transaction_with_behavior(behavior)
        .map_err(fail)?;
    let answer = work(&tx)?;
    tx.commit().map_err(fail)?;
    Ok(answer)
}

/// A try to write.
enum Tried<T, F> {
    Written(T),
    /// Another writer of ours has had the lock meanwhile: nothing was done.
    InAPause(F),
}

fn write_after_pause<T, F>(
    connection: &mut Connection,
    operation: &'static str,
    pause: &Pause,
    work: F,
) -> Result<Tried<T, F>, StoreError>
where
    F: FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
{
    let mut held_since = None;
    let tried = transaction(
        connection,
        operation,
        TransactionBehavior::Immediate,
        |tx| {
            if pause.lasts() {
                return Ok(Tried::InAPause(work));
            }
            held_since = Some(Instant::now());
            work(tx).map(Tried::Written)
        },
    );
    if let Some(since) = held_since {
        pause.begin(since);
    }
    tried
}

/// Runs one statement of many calls; answers the number of rows that it changed.
pub(super) fn execute(
    tx: &Transaction<'_>,
    operation: &'static str,
    sql: &'static str,
    parameters: &[(&str, &dyn rusqlite::ToSql)],
) -> Result<usize, StoreError> {
    tx.prepare_cached(sql)
        .and_then(|mut statement| statement.execute(parameters))
        .map_err(|error| classify(operation, error))
}

/// The row that a statement answers.
pub(super) fn one<T>(
    tx: &Connection,
    operation: &'static str,
    sql: &str,
    parameters: &[(&str, &dyn rusqlite::ToSql)],
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    tx.prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(parameters, read))
        .map_err(|error| classify(operation, error))
}

/// The row that a statement answers, if there is one.
pub(super) fn at_most_one<T>(
    tx: &Connection,
    operation: &'static str,
    sql: &str,
    parameters: &[(&str, &dyn rusqlite::ToSql)],
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    tx.prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(parameters, read).optional())
        .map_err(|error| classify(operation, error))
}

/// All rows that a statement answers.
pub(super) fn all<T>(
    tx: &Connection,
    operation: &'static str,
    sql: &str,
    parameters: &[(&str, &dyn rusqlite::ToSql)],
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    tx.prepare_cached(sql)
        .and_then(|mut statement| statement.query_map(parameters, read)?.collect())
        .map_err(|error| classify(operation, error))
}

/// The database's clock: microseconds since 1970-01-01 UTC. It is read within the transaction's
/// snapshot, so that no lease which stands there was given after it.
pub(super) fn clock(tx: &Connection, operation: &'static str) -> Result<i64, StoreError> {
    let sql = "select cast(unixepoch('subsec') * 1000000 as integer) from posthaste_identity";
    one(tx, operation, sql, &[], |row| row.get(0))
}

/// A length of time in the unit of the tables.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// At most so many rows, as SQLite counts them.
pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// How long from `now` until `at`; zero when that is past.
pub(super) fn until(now: i64, at: i64) -> Duration {
    Duration::from_micros(u64::try_from(at.saturating_sub(now)).unwrap_or(0))
}
