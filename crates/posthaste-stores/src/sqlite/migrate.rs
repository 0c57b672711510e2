//! Creates and migrates the schema.

use std::{fmt::Write as _, fs, io::ErrorKind, time::Duration};

use posthaste::{
    Dialect,
    schema::{Migration, Placeholders},
};
use posthaste_engine::{StoreError, retention_refused};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, named_params};

use super::{
    config::SqliteConfig,
    connection::{empty_log, execute, open, transaction},
    destination::{drawn_again, last_seq},
    error::{classify, not_ours, unexpected},
    file::{FileId, identify},
    settings::{PARTITIONS, RETENTION_SECONDS},
};

const OPERATION: &str = "create or migrate the schema";

/// Settings that `init` stores for all relays. A field that is none leaves the stored value, or the
/// default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InitOptions {
    /// How many partitions a destination has: a power of two up to 4 096. Default 64.
    pub partitions: Option<u16>,
    /// How long delivered events are kept, in whole seconds; zero: not at all. Default 24 hours.
    pub retention: Option<Duration>,
}

/// The changes that `init` made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitReport {
    /// The migrations that were applied, by number.
    pub applied: Vec<u32>,
    /// The schema's version now.
    pub version: u32,
}

/// Creates the file if there is none, switches it to write-ahead logging, applies the migrations
/// that it lacks and stores the options. Two at once are safe; running it again changes nothing.
///
/// # Errors
/// [`StoreError::Schema`] when the schema is newer than this build; [`StoreError::Misconfigured`]
/// for an option out of range or a path that cannot hold a database.
pub async fn init(url: &str, options: InitOptions) -> Result<InitReport, StoreError> {
    let config = SqliteConfig::parse(url)?;
    validate(options)?;
    tokio::task::spawn_blocking(move || init_blocking(&config, options))
        .await
        .map_err(|error| unexpected(OPERATION, error.to_string()))?
}

/// The SQL that `init` runs on an empty file, for a migration tool of your own: one transaction for
/// each migration. The file has to be in WAL mode.
///
/// # Errors
/// [`StoreError::Misconfigured`] for an option out of range.
pub fn sql(options: InitOptions) -> Result<String, StoreError> {
    validate(options)?;
    let mut text = String::from("pragma journal_mode = wal;\n");
    for migration in Dialect::Sqlite.migrations() {
        let Migration {
            version,
            name,
            min_relay,
            ..
        } = migration;
        let body = migration.render(Placeholders::default());
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nbegin immediate;\n\n{}\n\n\
             insert into posthaste_migrations (version, name, min_relay) \
             values ({version}, '{name}', {min_relay});\n\ncommit;\n",
            body.trim_end()
        );
    }
    for (name, value) in stored(options) {
        let _ = write!(
            text,
            "\ninsert into posthaste_settings (name, value) values ('{name}', '{value}')\n\
             on conflict (name) do update set value = excluded.value;\n"
        );
    }
    Ok(text)
}

fn validate(options: InitOptions) -> Result<(), StoreError> {
    if let Some(reason) = options.retention.and_then(retention_refused) {
        return Err(wrong(reason));
    }
    if let Some(partitions) = options.partitions
        && (!partitions.is_power_of_two() || partitions > 4_096)
    {
        return Err(wrong(format!(
            "partitions: {partitions} is not a power of two from 1 to 4096"
        )));
    }
    Ok(())
}

fn wrong(reason: impl Into<String>) -> StoreError {
    StoreError::Misconfigured {
        operation: OPERATION,
        reason: reason.into(),
    }
}

fn stored(options: InitOptions) -> Vec<(&'static str, String)> {
    let partitions = options.partitions.map(|n| (PARTITIONS, n.to_string()));
    let retention = options
        .retention
        .map(|time| (RETENTION_SECONDS, time.as_secs().to_string()));
    partitions.into_iter().chain(retention).collect()
}

fn init_blocking(config: &SqliteConfig, options: InitOptions) -> Result<InitReport, StoreError> {
    let directory = match config.path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => std::path::Path::new("."),
    };
    if !directory.is_dir() {
        return Err(wrong(format!(
            "{}: there is no such directory: create it first",
            directory.display()
        )));
    }
    if config.path.is_dir() {
        return Err(wrong(format!(
            "{}: this is a directory: give the path of a file",
            config.path.display()
        )));
    }
    let is_new = fs::symlink_metadata(&config.path).is_err();
    let mut connection = open(OPERATION, config, OpenFlags::SQLITE_OPEN_CREATE)?;
    let file = identify(OPERATION, &config.path)?;
    let report = make(&mut connection, options)
        .map_err(|error| error.at(&config.path.display().to_string()));
    match report {
        Err(_) if is_new => unmake(&mut connection, config, file),
        // Another `init` had made it, was refused, and removed it while this one waited.
        Ok(_) if identify(OPERATION, &config.path).ok() != Some(file) => {
            return Err(StoreError::Unavailable {
                operation: OPERATION,
                reason: format!(
                    "{} was removed or replaced meanwhile: run it again",
                    config.path.display()
                ),
                source: None,
            });
        }
        _ => {}
    }
    report
}

fn make(connection: &mut Connection, options: InitOptions) -> Result<InitReport, StoreError> {
    expect_utf8(connection)?;
    if journal_mode(connection, "pragma journal_mode")? != WAL {
        // The switch changes the file, and one in which this fails is to stay as it was.
        let rehearsal = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| classify(OPERATION, error))?;
        migrate(&rehearsal, options)?;
        drop(rehearsal);
    }
    write_ahead(connection)?;
    let applied = immediate(connection, |tx| migrate(tx, options))?;
    let version = level(connection, OPERATION)?.0;
    // The schema is committed, whether it stands in the log or in the file.
    if let Err(error) = empty_log(OPERATION, connection) {
        tracing::warn!("{error}");
    }
    Ok(InitReport { applied, version })
}

/// Applies what is missing, and answers its numbers.
fn migrate(tx: &Transaction<'_>, options: InitOptions) -> Result<Vec<u32>, StoreError> {
    let mut applied = Vec::new();
    for migration in Dialect::Sqlite.migrations() {
        // The version is read under the write lock: another init may be at work.
        let done = apply(tx, migration).map_err(not_ours)?;
        applied.extend(done.then_some(migration.version));
    }
    set_counter_forward(tx)?;
    for (name, value) in stored(options) {
        execute(
            tx,
            OPERATION,
            include_str!("sql/setting_set.sql"),
            named_params! { ":name": name, ":value": value },
        )?;
    }
    Ok(applied)
}

/// Removes the file that a refused `init` has made, unless another process has written into it,
/// holds its lock, or has put another file there.
fn unmake(connection: &mut Connection, config: &SqliteConfig, made: FileId) {
    let locked = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let is_used = match &locked {
        Ok(tx) => {
            let sql = "select exists (select 1 from sqlite_schema)";
            tx.query_row(sql, [], |row| row.get(0)).unwrap_or(true)
        }
        // The device has no room for the lock (`-shm`): no other process can have written.
        Err(error) => !matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
        ),
    };
    if is_used || identify(OPERATION, &config.path).ok() != Some(made) {
        return;
    }
    // The file last: another one of its name has a log of its own.
    for beside in ["-wal", "-shm", ""] {
        let mut path = config.path.clone().into_os_string();
        path.push(beside);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!("{} was made and stays: {error}", path.display());
            }
            _ => {}
        }
    }
}

fn immediate<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    transaction(connection, OPERATION, TransactionBehavior::Immediate, work)
}

/// Any other encoding would be converted at each comparison, and says nothing that UTF-8 does not.
fn expect_utf8(connection: &Connection) -> Result<(), StoreError> {
    let encoding: String = connection
        .query_row("pragma encoding", [], |row| row.get(0))
        .map_err(|error| classify(OPERATION, error))?;
    if encoding == "UTF-8" {
        Ok(())
    } else {
        Err(wrong(format!(
            "the file's encoding is {encoding}, an outbox needs UTF-8: copy it into a new file, \
             with `.dump` of the old one behind `pragma encoding = 'UTF-8'`"
        )))
    }
}

/// Switches the file to write-ahead logging, which stays with it: readers and the writer do not
/// keep each other waiting.
fn write_ahead(connection: &Connection) -> Result<(), StoreError> {
    match journal_mode(connection, "pragma journal_mode = wal")? {
        mode if mode == WAL => Ok(()),
        mode => Err(wrong(format!(
            "the file stays in journal mode `{mode}`: write-ahead logging needs a local file system"
        ))),
    }
}

const WAL: &str = "wal";

/// The mode after a statement that reads or sets it.
fn journal_mode(connection: &Connection, pragma: &str) -> Result<String, StoreError> {
    connection
        .query_row(pragma, [], |row| row.get(0))
        .map_err(|error| classify(OPERATION, error))
}

fn apply(tx: &Transaction<'_>, migration: &Migration) -> Result<bool, StoreError> {
    let (version, _) = level(tx, OPERATION)?;
    if version > Dialect::Sqlite.schema_version() {
        return Err(too_new(OPERATION, version));
    }
    if version >= migration.version {
        return Ok(false);
    }
    tx.execute_batch(&migration.render(Placeholders::default()))
        .map_err(|error| classify(OPERATION, error))?;
    execute(
        tx,
        OPERATION,
        include_str!("sql/migration_done.sql"),
        named_params! {
            ":version": migration.version,
            ":name": migration.name,
            ":min_relay": migration.min_relay,
        },
    )?;
    Ok(true)
}

/// Behind everything that was read, if it was set back, and all events with it: which of them were
/// delivered is not known.
fn set_counter_forward(tx: &Transaction<'_>) -> Result<(), StoreError> {
    let fail = |error| classify(OPERATION, error);
    let last = last_seq(tx, OPERATION)?;
    let furthest: i64 = tx
        .query_row(include_str!("sql/furthest.sql"), [], |row| row.get(0))
        .map_err(fail)?;
    if furthest <= last && drawn_again(tx, OPERATION)?.is_none() {
        return Ok(());
    }
    let top = "select coalesce(max(seq), 0) from posthaste_outbox";
    let top: i64 = tx.query_row(top, [], |row| row.get(0)).map_err(fail)?;
    // The counter may be gone while the table was not emptied.
    let last = last.max(top);
    // No number is above `by`, so that none meets another on its way.
    let by = furthest.max(last);
    tx.execute("update posthaste_outbox set seq = seq + ?1", [by])
        .map_err(fail)?;
    // There is no row where the table has drawn no number since.
    tx.execute(
        "delete from sqlite_sequence where name = 'posthaste_outbox'",
        [],
    )
    .map_err(fail)?;
    tx.execute(
        "insert into sqlite_sequence (name, seq) values ('posthaste_outbox', ?1)",
        [by + last],
    )
    .map_err(fail)?;
    Ok(())
}

fn too_new(operation: &'static str, version: u32) -> StoreError {
    StoreError::Schema {
        operation,
        reason: format!(
            "the schema has version {version}, this build knows up to {}: use a newer posthaste",
            Dialect::Sqlite.schema_version()
        ),
    }
}

/// The schema's version and the lowest relay level that it allows; zeros when there is none.
fn level(connection: &Connection, operation: &'static str) -> Result<(u32, u32), StoreError> {
    let fail = |error| classify(operation, error);
    let present: bool = connection
        .query_row(
            "select exists (select 1 from sqlite_schema where name = 'posthaste_migrations')",
            [],
            |row| row.get(0),
        )
        .map_err(fail)?;
    if !present {
        return Ok((0, 0));
    }
    connection
        .query_row(include_str!("sql/schema_version.sql"), [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(fail)
}

/// Whether a relay of this build may run on the schema.
pub(super) fn check(connection: &Connection, operation: &'static str) -> Result<(), StoreError> {
    let (version, min_relay) = level(connection, operation)?;
    let wrong = |reason| Err(StoreError::Schema { operation, reason });
    if version == 0 {
        return wrong("there is no outbox in this file: run `posthaste init` for it".to_owned());
    }
    if version < Dialect::Sqlite.schema_version() {
        return wrong(format!(
            "the schema has version {version}, this build needs {}: run `posthaste init`",
            Dialect::Sqlite.schema_version()
        ));
    }
    if min_relay > Dialect::Sqlite.schema_version() {
        return Err(too_new(operation, version));
    }
    Ok(())
}
