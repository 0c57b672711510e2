//! The locks by which relays do one thing after another, and who holds one that was not had in
//! time.
//!
//! None of them is an advisory lock: any role that may connect could take those and stop all
//! relays. Each is a row or a table that only relays, or the owner of the schema, have rights on.

use posthaste_engine::StoreError;
use tokio_postgres::{error::SqlState, types::Type};

use super::client::Client;

/// Two `init` at once do one thing after the other. Only the schema's owner may take it.
pub(super) const MIGRATIONS: &str = "lock table posthaste.migrations in share row exclusive mode";
/// Taken to create a destination, in a statement before the one whose snapshot is stored.
pub(super) const RETENTION: &str = include_str!("sql/destination_lock.sql");
/// The same for a script that goes another way at once.
const RETENTION_TRIED: &str = include_str!("sql/retention_lock.sql");
const HOLDER: &str = include_str!("sql/lock_holder.sql");
const OF_DESTINATION: &str = include_str!("sql/lock_of_destination.sql");
const OF_TABLE: &str = include_str!("sql/lock_of_table.sql");

/// The lock that is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lock<'a> {
    /// The ownership of a destination's partitions; none: of any destination's.
    Destination(Option<&'a str>),
    Retention,
    Migrations,
}

/// A script with the retention lock filled in.
pub(super) fn with_retention_lock(script: &str) -> String {
    script.replace("{retention_lock}", RETENTION_TRIED)
}

/// Adds to the error of a lock that was not had in time who holds it. The failed transaction has
/// ended.
pub(super) async fn name_holder(client: &Client, lock: Lock<'_>, error: StoreError) -> StoreError {
    let StoreError::Unavailable {
        operation,
        reason,
        source,
    } = error
    else {
        return error;
    };
    let driver = source.as_ref().and_then(|s| s.downcast_ref());
    let code = driver.and_then(|error: &tokio_postgres::Error| error.code());
    let reason = if code == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        format!("{reason}: {}", held_by(client, lock).await)
    } else {
        reason
    };
    StoreError::Unavailable {
        operation,
        reason,
        source,
    }
}

async fn held_by(client: &Client, lock: Lock<'_>) -> String {
    let (held, subject) = match lock {
        Lock::Destination(name) => (OF_DESTINATION, name),
        Lock::Retention => (OF_TABLE, Some("posthaste.retention_lock")),
        Lock::Migrations => (OF_TABLE, Some("posthaste.migrations")),
    };
    let sql = HOLDER.replace("{held}", held);
    let row = client
        .query_typed_one(&sql, &[(&subject, Type::TEXT)])
        .await;
    match row.map(|row| row.get::<_, Option<String>>("holder")) {
        Ok(Some(holder)) => format!("the lock is held by {holder}"),
        Ok(None) => "the transaction that held the lock has ended".to_owned(),
        Err(error) => format!("who holds the lock cannot be seen: {error}"),
    }
}
