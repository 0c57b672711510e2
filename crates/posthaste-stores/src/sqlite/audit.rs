//! The durable record of what nobody may do in silence.

use std::fmt::Display;

use posthaste_engine::{AuditWords, StoreError};
use rusqlite::{Transaction, named_params};

use super::connection::{clock, execute};
use crate::about::About;

/// Writes a line.
pub(super) fn write(
    tx: &Transaction<'_>,
    operation: &'static str,
    words: AuditWords,
    about: About<'_>,
    values: &[&dyn Display],
) -> Result<(), StoreError> {
    write_line(tx, operation, words.action, about, &words.detail(values))
}

/// Writes a line whose detail is filled in.
pub(super) fn write_line(
    tx: &Transaction<'_>,
    operation: &'static str,
    action: &str,
    about: About<'_>,
    detail: &str,
) -> Result<(), StoreError> {
    execute(
        tx,
        operation,
        include_str!("sql/audit.sql"),
        named_params! {
            ":now": clock(tx, operation)?,
            ":action": action,
            ":destination": about.destination,
            ":registration": about.relay.map(|relay| relay.to_string()),
            ":event_id": about.event_id,
            ":detail": detail,
        },
    )?;
    Ok(())
}
