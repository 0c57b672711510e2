//! sqlx with SQLite.

#[cfg(feature = "testing")]
mod testing;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::error::EmitError;
use crate::statement::{Batch, Param, no_arrays};
use crate::tx::Tx;

#[async_trait]
impl Tx for SqliteConnection {
    async fn append(&mut self, batch: Batch<'_>) -> Result<(), EmitError> {
        for statement in batch.sqlite() {
            let mut query = sqlx::query(AssertSqlSafe(statement.sql()));
            for param in statement.params() {
                query = match param {
                    Param::Text(text) => query.bind(text.as_deref()),
                    Param::Bytes(bytes) => query.bind(*bytes),
                    Param::BigInt(number) => query.bind(*number),
                    Param::TextArray(_) | Param::BytesArray(_) | Param::BigIntArray(_) => {
                        return Err(no_arrays());
                    }
                };
            }
            query.execute(&mut *self).await.map_err(classify)?;
        }
        Ok(())
    }
}

pub(crate) fn classify(error: sqlx::Error) -> EmitError {
    let sqlx::Error::Database(answer) = &error else {
        let retryable = matches!(error, sqlx::Error::Io(_));
        return EmitError::Database {
            source: error.into(),
            retryable,
        };
    };
    if answer.message().contains("no such table: posthaste_outbox") {
        return EmitError::Configuration {
            problem: "the outbox is missing in this database: run `posthaste init`",
            source: Some(error.into()),
        };
    }
    // The primary code is the low byte of the extended one: 5 SQLITE_BUSY, 6 SQLITE_LOCKED.
    let code = answer.code().and_then(|code| code.parse::<u32>().ok());
    let retryable = code.is_some_and(|code| matches!(code & 0xff, 5 | 6));
    EmitError::Database {
        source: error.into(),
        retryable,
    }
}
