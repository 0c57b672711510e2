//! Copies that nobody needs any more.

use posthaste_engine::StoreError;
use rusqlite::{Transaction, named_params};

use super::connection::execute;

/// Removes a copy and its attempts; answers how many of these there were.
pub(super) fn forget(
    tx: &Transaction<'_>,
    operation: &'static str,
    copy: i64,
) -> Result<usize, StoreError> {
    let id = named_params! { ":id": copy };
    let attempts = "delete from posthaste_attempts where parked_id = :id";
    let attempts = execute(tx, operation, attempts, id)?;
    let copy = "delete from posthaste_parked where id = :id";
    execute(tx, operation, copy, id).map(|_| attempts)
}
