//! Values that all relays share: settings that `init` stored, and the store's identity.

use std::{str::FromStr, time::Duration};

use mysql_async::params;
use posthaste_engine::StoreError;
use uuid::Uuid;

use super::{
    connection::Work,
    error::{misconfigured, unexpected},
};

/// Setting: how many partitions a destination has.
pub(super) const PARTITIONS: &str = "partitions";
/// Setting: for how many seconds delivered events are kept.
pub(super) const RETENTION_SECONDS: &str = "retention_seconds";

pub(super) async fn partitions(work: &mut Work) -> Result<u16, StoreError> {
    number(work, PARTITIONS).await
}

pub(super) async fn retention(work: &mut Work) -> Result<Duration, StoreError> {
    number(work, RETENTION_SECONDS)
        .await
        .map(Duration::from_secs)
}

/// The value of [`retention`], as it is stored.
pub(super) fn window(operation: &'static str, value: Option<&str>) -> Result<Duration, StoreError> {
    parsed(operation, RETENTION_SECONDS, value).map(Duration::from_secs)
}

async fn number<T: FromStr>(work: &mut Work, name: &str) -> Result<T, StoreError> {
    let sql = include_str!("sql/setting.sql");
    let row = work.at_most_one(sql, params! { "name" => name }).await?;
    let value = row.map(|row| row.text(0)).transpose()?;
    parsed(work.operation(), name, value.as_deref())
}

/// The value of a setting that is a number.
pub(super) fn parsed<T: FromStr>(
    operation: &'static str,
    name: &str,
    value: Option<&str>,
) -> Result<T, StoreError> {
    value.and_then(|value| value.parse().ok()).ok_or_else(|| {
        misconfigured(
            operation,
            format!(
                "the stored setting `{name}` is {value:?}, not a number in its range: run \
                 `posthaste init` with it again"
            ),
        )
    })
}

/// The identity that tells this outbox from any other.
pub(super) async fn store_id(work: &mut Work) -> Result<Uuid, StoreError> {
    let sql = "select store_id from posthaste_identity where only_row = 1";
    let row = work.at_most_one(sql, ()).await?;
    let operation = work.operation();
    let row = row.ok_or_else(|| unexpected(operation, "the store has no identity"))?;
    uuid(operation, &row.text(0)?)
}

/// A UUID as the tables have it.
pub(super) fn uuid(operation: &'static str, text: &str) -> Result<Uuid, StoreError> {
    Uuid::try_parse(text).map_err(|_| unexpected(operation, "an identity that is no UUID"))
}
