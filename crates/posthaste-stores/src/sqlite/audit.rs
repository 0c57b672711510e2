//! The durable record of what nobody may do in silence.

use posthaste_engine::StoreError;
use rusqlite::{Transaction, named_params};

use super::connection::{clock, execute};

/// One line of the audit table.
#[derive(Debug, Default)]
pub(super) struct Line<'a> {
    pub(super) action: &'a str,
    pub(super) destination: Option<&'a str>,
    pub(super) registration: Option<&'a str>,
    pub(super) event_id: Option<&'a str>,
    pub(super) detail: Option<&'a str>,
}

pub(super) fn write(
    tx: &Transaction<'_>,
    operation: &'static str,
    line: &Line<'_>,
) -> Result<(), StoreError> {
    execute(
        tx,
        operation,
        include_str!("sql/audit.sql"),
        named_params! {
            ":now": clock(tx, operation)?,
            ":action": line.action,
            ":destination": line.destination,
            ":registration": line.registration,
            ":event_id": line.event_id,
            ":detail": line.detail,
        },
    )?;
    Ok(())
}
