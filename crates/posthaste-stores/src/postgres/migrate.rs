//! Creating and migrating the schema, granting rights, storing what all relays share.

use std::fmt::Write as _;

use posthaste::{
    Dialect,
    schema::{EVENT_COLUMNS, Migration, Placeholders},
};
use posthaste_engine::{StoreError, retention_refused};
use tokio_postgres::{Transaction, error::SqlState, types::Type};

use crate::init::{InitOptions, Initialised};

use super::{
    check,
    client::Client,
    config::PostgresConfig,
    connection::Connector,
    eras,
    error::classify,
    foreign::{refuse_foreign, refuse_foreign_in_script},
    lock_wait::{Patience, is_locked},
    locks::{Lock, MIGRATIONS, RETENTION, name_holder},
    schema::{LEVEL, leaves},
    session_settings::Work,
};

const OPERATION: &str = "init";
const GRANT_WRITER: &str = include_str!("sql/grant_writer.sql");
const GRANT_RELAY: &str = include_str!("sql/grant_relay.sql");

const RETENTION_MODE: &str = include_str!("sql/retention_mode.sql");

/// The script runs as a role that we do not know, most often a superuser: nothing that other roles
/// have created may be called.
const BEGIN: &str = "begin isolation level read committed read write;
set local search_path = pg_catalog, pg_temp;
";

const UTF8: &str = "UTF8";

const RELATIONS_BEFORE: &str = include_str!("sql/relations_before.sql");
const NEW_RELATIONS_REVOKE: &str = include_str!("sql/new_relations_revoke.sql");

/// The script's check of the encoding: it makes new outboxes only. [`init`] checks by itself.
const REFUSE_OTHER_ENCODINGS: &str = "do $$
begin
    if pg_catalog.current_setting('server_encoding') operator(pg_catalog.<>) 'UTF8' then
        raise exception 'the database''s encoding is %, in which slots would differ from the '
            'published table: create the database with encoding UTF8',
            pg_catalog.current_setting('server_encoding');
    end if;
end
$$;

";

fn migrations() -> &'static [Migration] {
    Dialect::Postgres.migrations()
}

/// The oldest PostgreSQL that is tested.
const SERVER_VERSION_MIN: i32 = 140_000;

const PARTITIONS_MAX: u16 = 4096;

fn wrong(reason: impl Into<String>) -> StoreError {
    StoreError::Misconfigured {
        operation: OPERATION,
        reason: reason.into(),
    }
}

impl InitOptions {
    fn leaf_bits(&self) -> Result<Option<u8>, StoreError> {
        let bits = |rows: u64| u8::try_from(rows.trailing_zeros()).unwrap_or(u8::MAX);
        match self.leaf_rows {
            None => Ok(None),
            Some(rows) if rows.is_power_of_two() && (10..=40).contains(&bits(rows)) => {
                Ok(Some(bits(rows)))
            }
            Some(rows) => Err(wrong(format!(
                "leaf rows: {rows} is not a power of two from 2^10 to 2^40"
            ))),
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        self.leaf_bits()?;
        if let Some(reason) = self.retention.and_then(retention_refused) {
            return Err(wrong(reason));
        }
        match self.partitions {
            Some(n) if !n.is_power_of_two() || n > PARTITIONS_MAX => Err(wrong(format!(
                "partitions: {n} is not a power of two up to {PARTITIONS_MAX}"
            ))),
            _ => Ok(()),
        }
    }

    fn placeholders(&self) -> Result<Placeholders, StoreError> {
        Ok(match self.leaf_bits()? {
            Some(leaf_bits) => Placeholders { leaf_bits },
            None => Placeholders::default(),
        })
    }
}

/// Creates the schema with its settings and rights, in one transaction; or migrates it, each
/// migration in a transaction of its own. Safe to run again, and at the same time as another.
///
/// # Errors
/// [`StoreError::Schema`] when the schema is newer than this build, [`StoreError::Misconfigured`]
/// when an option is wrong or contradicts what the first `init` fixed, [`StoreError::Denied`] when
/// the role may not create a schema.
pub async fn init(url: &str, options: &InitOptions) -> Result<Initialised, StoreError> {
    options.check()?;
    let connector = Connector::new(PostgresConfig::parse(url)?)?;
    let mut client = connector.connect(Work::Migrate).await?;
    let done = init_by(&mut client, options).await;
    done.map_err(|error| connector.says_where(error))
}

async fn init_by(client: &mut Client, options: &InitOptions) -> Result<Initialised, StoreError> {
    refuse_unfit_server(client).await?;
    let mut applied = match is_created(client).await? {
        true => Vec::new(),
        false => create(client, options).await?,
    };
    let mut patience = Patience::default();
    let version = loop {
        match apply_next(client, options.placeholders()?).await? {
            Step::Applied(version) => applied.push(version),
            Step::Locked => patience.wait(client).await?,
            Step::UpToDate(version) => break version,
        }
    };
    let new_era = match options.new_era {
        true => eras::begin(client).await?,
        false => None,
    };
    // A migrated copy stays a copy.
    check::refuse_copy(client, OPERATION).await?;
    check::set_sequence_forward(client).await?;
    check::soundness(client).await?;
    let transaction = client.transaction().await;
    let transaction = transaction.map_err(|error| classify(OPERATION, error))?;
    settings(&transaction, options).await?;
    let committed = transaction.commit().await;
    committed.map_err(|error| classify(OPERATION, error))?;
    Ok(Initialised {
        applied,
        version,
        new_era,
    })
}

/// Creates everything or nothing: a refusal in the middle leaves nothing behind. Answers which
/// migrations were applied; none: somebody else was faster.
async fn create(client: &mut Client, options: &InitOptions) -> Result<Vec<u32>, StoreError> {
    let failed = |error| classify(OPERATION, error);
    let transaction = client.transaction().await.map_err(failed)?;
    refuse_foreign(transaction.client()).await?;
    let mut applied = Vec::new();
    for migration in migrations() {
        let text = text(migration, options.placeholders()?);
        if let Err(error) = transaction.batch_execute(&text).await {
            drop(transaction);
            // There is nothing to lock before the first migration: of two, one finds what the other
            // has created.
            return match is_created(client).await? {
                true => Ok(Vec::new()),
                false => Err(not_ours(error)),
            };
        }
        applied.push(migration.version);
    }
    settings(&transaction, options).await?;
    // Somebody may have created the schema since.
    refuse_foreign(transaction.client()).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(applied)
}

async fn refuse_unfit_server(client: &Client) -> Result<(), StoreError> {
    let row = client
        .query_typed_one(
            "select current_setting('server_version_num')::integer,
                 pg_catalog.pg_encoding_to_char(encoding),
                 to_regclass('posthaste.migrations') is null
             from pg_catalog.pg_database where datname = current_database()",
            &[],
        )
        .await
        .map_err(|error| classify(OPERATION, error))?;
    if row.get::<_, i32>(0) < SERVER_VERSION_MIN {
        return Err(wrong("the server is older than PostgreSQL 14"));
    }
    let encoding: &str = row.get(1);
    check::refuse_sql_ascii(encoding).map_err(wrong)?;
    // An outbox that is there already goes on: its slots agree with one another.
    if encoding != UTF8 && row.get(2) {
        return Err(wrong(format!(
            "the database's encoding is {encoding}, in which slots would differ from the published \
             table: create the database with encoding UTF8"
        )));
    }
    Ok(())
}

/// The outcome of the first migration that is missing.
enum Step {
    Applied(u32),
    /// Somebody else's lock is in the way; nothing was changed.
    Locked,
    /// All are there. The schema has this version, which may be newer than this build.
    UpToDate(u32),
}

async fn apply_next(client: &mut Client, placeholders: Placeholders) -> Result<Step, StoreError> {
    let failed = |error| classify(OPERATION, error);
    let transaction = client.transaction().await.map_err(failed)?;
    refuse_foreign(transaction.client()).await?;
    if let Err(error) = transaction.batch_execute(MIGRATIONS).await {
        drop(transaction);
        return Err(name_holder(client, Lock::Migrations, failed(error)).await);
    }
    let version = version(&transaction).await?;
    let Some(next) = migrations()
        .iter()
        .find(|migration| migration.version > version)
    else {
        return Ok(Step::UpToDate(version));
    };
    match transaction.batch_execute(&text(next, placeholders)).await {
        Ok(()) => {}
        Err(error) if is_locked(&error) => return Ok(Step::Locked),
        Err(error) => return Err(not_ours(error)),
    }
    transaction.commit().await.map_err(failed)?;
    Ok(Step::Applied(next.version))
}

/// The error where the schema has other things under names of ours: they are in the way of ours, or
/// lack what ours have.
fn not_ours(error: tokio_postgres::Error) -> StoreError {
    const TAKEN_OR_LACKING: [SqlState; 7] = [
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_FUNCTION,
        SqlState::DUPLICATE_OBJECT,
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::WRONG_OBJECT_TYPE,
        SqlState::DATATYPE_MISMATCH,
    ];
    match error.as_db_error() {
        Some(db) if TAKEN_OR_LACKING.contains(db.code()) => wrong(format!(
            "schema `posthaste` is not posthaste's ({}): rename it, or give another database",
            db.message()
        )),
        _ => classify(OPERATION, error),
    }
}

async fn is_created(client: &Client) -> Result<bool, StoreError> {
    let row = client
        .query_typed_one(
            "select to_regclass('posthaste.migrations') is not null",
            &[],
        )
        .await
        .map_err(|error| classify(OPERATION, error))?;
    Ok(row.get(0))
}

/// The schema's version; a newer one that asks for a newer build is refused.
async fn version(transaction: &Transaction<'_>) -> Result<u32, StoreError> {
    let row = transaction
        .query_typed_one(
            "select coalesce(max(version), 0), coalesce(max(min_relay), 0) \
             from posthaste.migrations",
            &[],
        )
        .await
        .map_err(not_ours)?;
    let (version, min_relay): (i32, i32) = (row.get(0), row.get(1));
    if min_relay > LEVEL {
        return Err(check::newer(version));
    }
    // The lowest that `init` writes is 1.
    Ok(u32::try_from(version).unwrap_or(0))
}

/// A migration with all that belongs to it; to be run in one transaction.
fn text(migration: &Migration, placeholders: Placeholders) -> String {
    let body = migration.render(placeholders);
    let Migration {
        version,
        name,
        min_relay,
        ..
    } = migration;
    format!(
        "{RELATIONS_BEFORE}{body}{NEW_RELATIONS_REVOKE}\
         insert into posthaste.migrations (version, name, min_relay) \
         values ({version}, '{name}', {min_relay});\n"
    )
}

async fn settings(transaction: &Transaction<'_>, options: &InitOptions) -> Result<(), StoreError> {
    let failed = |error| classify(OPERATION, error);
    transaction
        .batch_execute(MIGRATIONS)
        .await
        .map_err(failed)?;
    if let Some(bits) = options.leaf_bits()? {
        let fixed: String = setting(transaction, "leaf_bits").await?;
        if fixed != bits.to_string() {
            let rows = fixed.parse().ok().and_then(|bits| 1_u64.checked_shl(bits));
            return Err(wrong(format!(
                "leaf rows were fixed at {} by the first init: leave the option out",
                rows.unwrap_or(0)
            )));
        }
    }
    transaction
        .batch_execute(&settings_sql(options))
        .await
        .map_err(failed)?;
    transaction
        .batch_execute(&grants_sql(options))
        .await
        .map_err(|error| match error.code().map(|code| code.code()) {
            Some("42704") => {
                let named = error
                    .as_db_error()
                    .map_or("a role does not exist", |e| e.message());
                wrong(format!("{named}: `create role NAME login` makes one"))
            }
            _ => failed(error),
        })
}

async fn setting(transaction: &Transaction<'_>, name: &str) -> Result<String, StoreError> {
    let row = transaction
        .query_typed_opt(
            "select value from posthaste.settings where name = $1",
            &[(&name, Type::TEXT)],
        )
        .await
        .map_err(|error| classify(OPERATION, error))?;
    Ok(row.map(|row| row.get(0)).unwrap_or_default())
}

fn settings_sql(options: &InitOptions) -> String {
    let mut sql = String::new();
    let mut set = |name: &str, value: String| {
        // Writing into a String cannot fail.
        let _ = writeln!(
            sql,
            "update posthaste.settings set value = '{value}' where name = '{name}';"
        );
    };
    if let Some(partitions) = options.partitions {
        set("partitions", partitions.to_string());
    }
    if let Some(retention) = options.retention {
        set("retention_seconds", retention.as_secs().to_string());
    }
    if let Some(mode) = options.retention_mode {
        set("retention_mode", mode.as_str().to_owned());
    }
    if let Some(notify) = options.notify {
        set("notify", if notify { "on" } else { "off" }.to_owned());
    }
    if let Some(mode) = options.retention_mode {
        sql += &RETENTION_MODE
            .replace("{mode}", mode.as_str())
            .replace("{lock}", RETENTION.trim_end());
    }
    sql
}

fn grants_sql(options: &InitOptions) -> String {
    let columns = EVENT_COLUMNS.map(quoted).join(", ");
    let mut sql = String::new();
    if let Some(writer) = &options.writer {
        sql += &GRANT_WRITER
            .replace("{role}", &quoted(writer))
            .replace("{columns}", &columns);
    }
    if let Some(relay) = &options.relay {
        let leaves = leaves().map(|leaf| format!("posthaste.{leaf}"));
        sql += &GRANT_RELAY
            .replace("{role}", &quoted(relay))
            .replace("{leaves}", &leaves.collect::<Vec<_>>().join(", "));
    }
    sql
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// A script that does to an empty database the same as [`init`], for `psql` or another migration
/// tool, in one transaction: each migration with its line in `posthaste.migrations`, then the
/// settings and the grants.
///
/// # Errors
/// [`StoreError::Misconfigured`] when an option is wrong.
pub fn sql(options: &InitOptions) -> Result<String, StoreError> {
    options.check()?;
    let mut script = REFUSE_OTHER_ENCODINGS.to_owned();
    script += BEGIN;
    script += &refuse_foreign_in_script();
    for migration in migrations() {
        script += &format!("-- {:04}_{}\n", migration.version, migration.name);
        script += &text(migration, options.placeholders()?);
        script += "\n";
    }
    script += &settings_sql(options);
    script += &grants_sql(options);
    script += &refuse_foreign_in_script();
    script += "commit;\n";
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_build_knows_every_migration() {
        let newest = migrations().last().map(|migration| migration.version);
        assert_eq!(newest.and_then(|v| i32::try_from(v).ok()), Some(LEVEL));
    }

    #[test]
    fn a_role_cannot_break_out_of_its_quotes() {
        let options = InitOptions {
            writer: Some("app\"; drop table x; --".to_owned()),
            ..InitOptions::default()
        };
        assert!(
            sql(&options)
                .unwrap()
                .contains("to \"app\"\"; drop table x; --\";")
        );
    }

    #[test]
    fn odd_options_are_refused() {
        for options in [
            InitOptions {
                partitions: Some(63),
                ..InitOptions::default()
            },
            InitOptions {
                leaf_rows: Some(1000),
                ..InitOptions::default()
            },
            InitOptions {
                leaf_rows: Some(512),
                ..InitOptions::default()
            },
            InitOptions {
                retention: Some(std::time::Duration::from_millis(1500)),
                ..InitOptions::default()
            },
        ] {
            assert!(matches!(
                sql(&options),
                Err(StoreError::Misconfigured { .. })
            ));
        }
    }
}
