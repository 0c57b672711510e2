//! sqlx with MySQL and MariaDB.

#[cfg(feature = "testing")]
mod testing;

use async_trait::async_trait;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::{TOO_LARGE, answered};
use crate::error::EmitError;
use crate::statement::{Batch, Param, Statement, no_arrays};
use crate::tx::Tx;

/// A server ends the connection at a packet beyond its limit, and a client that still sends sees
/// that alone, not the answer. So a statement of this size asks for the limit first; no smaller one
/// is the default of any server.
const ASKS_FROM_BYTES: usize = 1024 * 1024;

#[async_trait]
impl Tx for MySqlConnection {
    async fn append(&mut self, batch: Batch<'_>) -> Result<(), EmitError> {
        for statement in batch.mysql() {
            refuse_too_large(self, &statement).await?;
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

async fn refuse_too_large(
    connection: &mut MySqlConnection,
    statement: &Statement<'_>,
) -> Result<(), EmitError> {
    let bytes = statement.bytes();
    if bytes < ASKS_FROM_BYTES {
        return Ok(());
    }
    let limit: u64 = sqlx::query_scalar("select @@max_allowed_packet")
        .fetch_one(connection)
        .await
        .map_err(classify)?;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= limit) {
        return Ok(());
    }
    Err(EmitError::Configuration {
        problem: TOO_LARGE,
        source: None,
    })
}

pub(crate) fn classify(error: sqlx::Error) -> EmitError {
    if let sqlx::Error::Database(answer) = &error
        && let Some(answer) = answer.try_downcast_ref::<MySqlDatabaseError>()
    {
        let (number, sqlstate) = (answer.number(), answer.code().map(str::to_owned));
        return answered(number, sqlstate.as_deref().unwrap_or_default(), error);
    }
    let retryable = matches!(
        error,
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_)
    );
    EmitError::Database {
        source: error.into(),
        retryable,
    }
}
