//! Creates and migrates the schema, and gives rights.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use mysql_async::params;
use posthaste::{
    Dialect,
    schema::{EVENT_COLUMNS, Migration, Placeholders},
};
use posthaste_engine::{StoreError, retention_refused, shown};

use super::{
    config::MysqlConfig,
    connection::{Link, Work},
    error::{misconfigured, unavailable},
    settings::{PARTITIONS, RETENTION_SECONDS},
};
use crate::init::InitOptions;

const OPERATION: &str = "create or migrate the schema";

/// The changes that `init` made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitReport {
    /// The migrations that were applied, by number.
    pub applied: Vec<u32>,
    /// The schema's version now.
    pub version: u32,
}

/// Applies the migrations that the database lacks, stores the options and gives the rights. Two at
/// once are safe; running it again changes nothing.
///
/// # Errors
/// [`StoreError::Schema`] when the schema is newer than this build; [`StoreError::Misconfigured`]
/// for an option out of range; [`StoreError::Denied`] when rights are missing.
pub async fn init(url: &str, options: &InitOptions) -> Result<InitReport, StoreError> {
    let config = Arc::new(MysqlConfig::parse(url)?);
    validate(options)?;
    let link = Link::new(&config);
    let mut work = link.work(OPERATION).await?;
    let result = serialised(&mut work, &config, options).await;
    work.end(result).await
}

/// The SQL that `init` runs on an empty database, for a migration tool of your own. Statements
/// commit one by one, and each can be run again.
///
/// # Errors
/// [`StoreError::Misconfigured`] for an option out of range.
pub fn sql(options: &InitOptions) -> Result<String, StoreError> {
    validate(options)?;
    let mut text = String::new();
    for migration in Dialect::Mysql.migrations() {
        let body = migration.render(Placeholders::default());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}\n{};\n", body.trim_end(), done(migration));
    }
    for (name, value) in stored(options) {
        let _ = writeln!(
            text,
            "insert into posthaste_settings (name, value) values ('{name}', '{value}')\n    \
             on duplicate key update value = values(value);"
        );
    }
    for statement in grants(options, None)? {
        let _ = writeln!(text, "{statement};");
    }
    Ok(text)
}

fn validate(options: &InitOptions) -> Result<(), StoreError> {
    if let Some(reason) = options.retention.and_then(retention_refused) {
        return Err(misconfigured(OPERATION, reason));
    }
    if let Some(partitions) = options.partitions
        && (!partitions.is_power_of_two() || partitions > 4_096)
    {
        let reason = format!("partitions: {partitions} is not a power of two from 1 to 4096");
        return Err(misconfigured(OPERATION, reason));
    }
    grants(options, None).map(drop)
}

fn stored(options: &InitOptions) -> Vec<(&'static str, String)> {
    let partitions = options.partitions.map(|n| (PARTITIONS, n.to_string()));
    let seconds = |time: Duration| (RETENTION_SECONDS, time.as_secs().to_string());
    let retention = options.retention.map(seconds);
    partitions.into_iter().chain(retention).collect()
}

/// The line of a migration, written last.
fn done(migration: &Migration) -> String {
    let Migration {
        version,
        name,
        min_relay,
        ..
    } = migration;
    format!(
        "insert ignore into posthaste_migrations (version, name, min_relay) \
         values ({version}, '{name}', {min_relay})"
    )
}

/// Statements that change tables commit by themselves: the lock is the session's.
async fn serialised(
    work: &mut Work,
    config: &MysqlConfig,
    options: &InitOptions,
) -> Result<InitReport, StoreError> {
    let sql = "select get_lock(concat('posthaste.init.', left(sha2(database(), 256), 32)), 60)";
    if !work.one(sql, ()).await?.flag(0)? {
        return Err(unavailable(OPERATION, "another `init` is at work"));
    }
    let result = migrate(work, config, options).await;
    let sql = "do release_lock(concat('posthaste.init.', left(sha2(database(), 256), 32)))";
    work.run(sql).await?;
    result
}

async fn migrate(
    work: &mut Work,
    config: &MysqlConfig,
    options: &InitOptions,
) -> Result<InitReport, StoreError> {
    let (version, _) = level(work).await?;
    if version > Dialect::Mysql.schema_version() {
        return Err(too_new(OPERATION, version));
    }
    let mut applied = Vec::new();
    for migration in Dialect::Mysql.migrations() {
        if migration.version > version {
            work.run(&migration.render(Placeholders::default())).await?;
            work.run(&done(migration)).await?;
            applied.push(migration.version);
        }
    }
    for (name, value) in stored(options) {
        let sql = "insert into posthaste_settings (name, value) values (:name, :value) \
                   on duplicate key update value = values(value)";
        work.execute(sql, params! { "name" => name, "value" => value })
            .await?;
    }
    let mariadb = work.one("select version() like '%MariaDB%'", ()).await?;
    let mariadb = mariadb.flag(0)?;
    for statement in grants(options, Some((&config.database, mariadb)))? {
        work.run(&statement).await?;
    }
    Ok(InitReport {
        applied,
        version: level(work).await?.0,
    })
}

/// The tables that a relay changes, besides the outbox.
const RELAY_TABLES: [&str; 9] = [
    "posthaste_destinations",
    "posthaste_destination_locks",
    "posthaste_relays",
    "posthaste_cursors",
    "posthaste_members",
    "posthaste_markers",
    "posthaste_parked",
    "posthaste_attempts",
    "posthaste_audit",
];

/// The rights that are asked for. `at`: the database, and whether the server is a MariaDB; none:
/// for a database and a server that are not known, in the session's own one.
fn grants(options: &InitOptions, at: Option<(&str, bool)>) -> Result<Vec<String>, StoreError> {
    let mut all = Vec::new();
    let database = at.map(|(database, _)| format!("`{}`.", database.replace('`', "``")));
    let database = database.unwrap_or_default();
    if let Some(writer) = &options.writer {
        let account = account(writer)?;
        let columns: Vec<String> = EVENT_COLUMNS
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        all.push(format!(
            "grant insert ({}) on {database}posthaste_outbox to {account}",
            columns.join(", ")
        ));
        all.push(format!(
            "grant select, update on {database}posthaste_key_locks to {account}"
        ));
    }
    if let Some(relay) = &options.relay {
        let account = account(relay)?;
        for table in RELAY_TABLES {
            all.push(format!(
                "grant select, insert, update, delete on {database}{table} to {account}"
            ));
        }
        let read = ["migrations", "identity", "outbox", "settings"];
        for table in read {
            all.push(format!(
                "grant select on {database}posthaste_{table} to {account}"
            ));
        }
        all.push(format!(
            "grant delete on {database}posthaste_outbox to {account}"
        ));
        // A lock of rows asks for more than reading them, on MySQL.
        all.push(format!(
            "grant update on {database}posthaste_settings to {account}"
        ));
        // There is no such right on a table.
        all.push(format!("grant lock tables on {database}* to {account}"));
        for table in ["metadata_locks", "threads", "replication_applier_status"] {
            all.push(format!(
                "grant select on performance_schema.{table} to {account}"
            ));
        }
        if at.is_some_and(|(_, mariadb)| !mariadb) {
            all.push(format!("grant xa_recover_admin on *.* to {account}"));
        }
    }
    Ok(all)
}

/// An account as a statement names it: `user` of any host, or `user@host`.
fn account(text: &str) -> Result<String, StoreError> {
    let (user, host) = text.rsplit_once('@').unwrap_or((text, "%"));
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part
                .chars()
                .any(|c| c.is_control() || matches!(c, '\'' | '\\' | '`'))
    };
    match is_plain(user) && is_plain(host) {
        true => Ok(format!("'{user}'@'{host}'")),
        false => Err(misconfigured(
            OPERATION,
            format!(
                "`{}` is no account: write `user` or `user@host`, without quotes",
                shown(text)
            ),
        )),
    }
}

fn too_new(operation: &'static str, version: u32) -> StoreError {
    StoreError::Schema {
        operation,
        reason: format!(
            "the schema has version {version}, this build knows up to {}: use a newer posthaste",
            Dialect::Mysql.schema_version()
        ),
    }
}

/// The schema's version and the lowest relay level that it allows; zeros when there is none.
async fn level(work: &mut Work) -> Result<(u32, u32), StoreError> {
    let sql = "select 1 from information_schema.tables \
               where table_schema = database() and table_name = 'posthaste_migrations'";
    if work.at_most_one(sql, ()).await?.is_none() {
        return Ok((0, 0));
    }
    let sql = "select coalesce(max(version), 0), coalesce(max(min_relay), 0) \
               from posthaste_migrations";
    let row = work.one(sql, ()).await?;
    Ok((row.get(0)?, row.get(1)?))
}

/// Whether a relay of this build may run on the schema.
pub(super) async fn check(work: &mut Work) -> Result<(), StoreError> {
    let (version, min_relay) = level(work).await?;
    let operation = work.operation();
    let wrong = |reason| Err(StoreError::Schema { operation, reason });
    if version == 0 {
        return wrong("there is no outbox in this database: run `posthaste init`".to_owned());
    }
    if version < Dialect::Mysql.schema_version() {
        return wrong(format!(
            "the schema has version {version}, this build needs {}: run `posthaste init`",
            Dialect::Mysql.schema_version()
        ));
    }
    if min_relay > Dialect::Mysql.schema_version() {
        return Err(too_new(operation, version));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_quoted() {
        assert_eq!(account("relay").unwrap(), "'relay'@'%'");
        assert_eq!(account("relay@10.0.0.%").unwrap(), "'relay'@'10.0.0.%'");
        for wrong in ["", "@", "a@", "o'neil", "a`b", "a\\b"] {
            assert!(account(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_sql_has_every_migration_and_its_line() {
        let text = sql(&InitOptions::default()).unwrap();
        for migration in Dialect::Mysql.migrations() {
            assert!(text.contains(&done(migration)), "{}", migration.name);
        }
    }
}
