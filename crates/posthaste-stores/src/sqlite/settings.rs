//! What all relays share: settings that `init` stored, and the store's identity.

use std::{str::FromStr, time::Duration};

use posthaste_engine::StoreError;
use rusqlite::{OptionalExtension, Transaction, named_params};

use super::error::{classify, unexpected};

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
    let value: Option<String> = tx
        .prepare_cached(include_str!("sql/setting.sql"))
        .and_then(|mut statement| {
            statement
                .query_row(named_params! { ":name": name }, |row| row.get(0))
                .optional()
        })
        .map_err(|error| classify(operation, error))?;
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

/// What tells this outbox from any other.
pub(super) fn store_id(
    tx: &Transaction<'_>,
    operation: &'static str,
) -> Result<String, StoreError> {
    tx.prepare_cached("select store_id from posthaste_identity")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)).optional())
        .map_err(|error| classify(operation, error))?
        .ok_or_else(|| unexpected(operation, "the store has no identity"))
}
