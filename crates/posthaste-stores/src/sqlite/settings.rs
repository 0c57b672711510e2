//! Values that all relays share: settings that `init` stored, and the store's identity.

use std::{str::FromStr, time::Duration};

use posthaste_engine::StoreError;
use rusqlite::{Transaction, named_params};

use super::{connection::at_most_one, error::unexpected};

/// Setting: how many partitions a destination has.
pub(super) const PARTITIONS: &str = "partitions";
/// Setting: for how many seconds delivered events are kept.
pub(super) const RETENTION_SECONDS: &str = "retention_seconds";

pub(super) fn partitions(tx: &Transaction<'_>, operation: &'static str) -> Result<u16, StoreError> {
    number(tx, operation, PARTITIONS)
}

pub(super) fn retention(
    tx: &Transaction<'_>,
    operation: &'static str,
) -> Result<Duration, StoreError> {
    number(tx, operation, RETENTION_SECONDS).map(Duration::from_secs)
}

fn number<T: FromStr>(
    tx: &Transaction<'_>,
    operation: &'static str,
    name: &str,
) -> Result<T, StoreError> {
    let (sql, of) = (
        include_str!("sql/setting.sql"),
        named_params! { ":name": name },
    );
    let value: Option<String> = at_most_one(tx, operation, sql, of, |row| row.get(0))?;
    value
        .as_deref()
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| StoreError::Misconfigured {
            operation,
            reason: format!(
                "the stored setting `{name}` is {value:?}, not a number in its range: run \
                 `posthaste init` with it again"
            ),
        })
}

/// The identity that tells this outbox from any other.
pub(super) fn store_id(
    tx: &Transaction<'_>,
    operation: &'static str,
) -> Result<String, StoreError> {
    let sql = "select store_id from posthaste_identity";
    at_most_one(tx, operation, sql, &[], |row| row.get(0))?
        .ok_or_else(|| unexpected(operation, "the store has no identity"))
}
