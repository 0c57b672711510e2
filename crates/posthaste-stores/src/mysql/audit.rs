//! The durable record of what nobody may do in silence.

use std::fmt::Display;

use mysql_async::params;
use posthaste_engine::{AuditWords, StoreError};

use super::connection::{Work, clock};
use crate::about::About;

/// Writes a line.
pub(super) async fn write(
    work: &mut Work,
    words: AuditWords,
    about: About<'_>,
    values: &[&(dyn Display + Sync)],
) -> Result<(), StoreError> {
    let detail = detail(words, values);
    write_line(work, words.action, about, &detail).await
}

fn detail(words: AuditWords, values: &[&(dyn Display + Sync)]) -> String {
    let values: Vec<&dyn Display> = values.iter().map(|value| *value as _).collect();
    words.detail(&values)
}

/// Writes a line whose detail is filled in.
pub(super) async fn write_line(
    work: &mut Work,
    action: &str,
    about: About<'_>,
    detail: &str,
) -> Result<(), StoreError> {
    let now = clock(work).await?;
    let of = params! {
        "now" => now,
        "action" => action,
        "destination" => about.destination.map(str::as_bytes),
        "registration" => about.relay.map(|relay| relay.to_string()),
        "event_id" => about.event_id,
        "detail" => detail,
    };
    work.execute(include_str!("sql/audit.sql"), of).await?;
    Ok(())
}
