//! Scripts of housekeeping: blocks that decide under their locks and tell what they did.

use posthaste_engine::{Registered, StoreError};
use tokio_postgres::SimpleQueryMessage;

use super::OPERATION;
use crate::postgres::{client::Client, error::classify};

pub(in crate::postgres) const PAST_WINDOW: &str = include_str!("../sql/retention_past_window.sql");
/// The reason why a step did not come to its statements.
pub(in crate::postgres) const ANOTHER: &str =
    "another relay keeps house, or a destination is being created";

/// How a statement of housekeeping ended.
pub(in crate::postgres) enum StepOutcome<T> {
    Done(T),
    /// Looked at under the locks, nothing was due.
    NothingDue,
    InTheWay(String),
}

/// Runs a script that ends by telling what went.
pub(in crate::postgres) async fn run(
    client: &Client,
    leaf: &str,
    script: &str,
) -> Result<StepOutcome<String>, StoreError> {
    let messages = client
        .script(script)
        .await
        .map_err(|error| classify(OPERATION, error))?;
    let told = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get("went"),
        _ => None,
    });
    Ok(match told {
        None => return Err(bug("the block tells nothing")),
        Some("another") => StepOutcome::InTheWay(ANOTHER.to_owned()),
        Some("in use") => StepOutcome::InTheWay(format!("posthaste.{leaf} is in use")),
        Some("kept") => StepOutcome::NothingDue,
        Some(told) => StepOutcome::Done(told.to_owned()),
    })
}

impl StepOutcome<String> {
    /// Parses the answer of the block.
    pub(in crate::postgres) fn read<T>(
        self,
        read: impl FnOnce(&str) -> Result<T, StoreError>,
    ) -> Result<StepOutcome<T>, StoreError> {
        Ok(match self {
            Self::Done(told) => StepOutcome::Done(read(&told)?),
            Self::NothingDue => StepOutcome::NothingDue,
            Self::InTheWay(what) => StepOutcome::InTheWay(what),
        })
    }
}

pub(in crate::postgres) fn count(told: &str) -> Result<u64, StoreError> {
    told.parse().map_err(|_| bug("the block counts nothing"))
}

/// The relay that does it, for the record.
pub(in crate::postgres) fn uuid_literal(by: Option<Registered>) -> String {
    by.map_or_else(
        || "null".to_owned(),
        |by| format!("'{}'::uuid", by.registration),
    )
}

pub(in crate::postgres) fn bug(reason: &str) -> StoreError {
    StoreError::Bug {
        operation: OPERATION,
        reason: reason.to_owned(),
    }
}
