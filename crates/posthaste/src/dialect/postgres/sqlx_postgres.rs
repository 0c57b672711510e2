//! sqlx with PostgreSQL.

#[cfg(feature = "testing")]
mod testing;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::error::EmitError;
use crate::statement::{Batch, Param};
use crate::tx::Tx;

#[async_trait]
impl Tx for PgConnection {
    async fn append(&mut self, batch: Batch<'_>) -> Result<(), EmitError> {
        let statement = batch.postgres();
        // A connection that keeps no statement, as one through a transaction pooler must not, is
        // given an unnamed one; others have kept one when the business row was written.
        let keeps_statements = self.cached_statements_size() > 0;
        let mut query = sqlx::query(AssertSqlSafe(statement.sql())).persistent(keeps_statements);
        for param in statement.params() {
            query = match param {
                Param::Text(text) => query.bind(text.as_deref()),
                Param::Bytes(bytes) => query.bind(*bytes),
                Param::BigInt(number) => query.bind(*number),
                Param::TextArray(texts) => query.bind(texts),
                Param::BytesArray(values) => query.bind(values),
                Param::BigIntArray(numbers) => query.bind(numbers),
            };
        }
        query.execute(self).await.map_err(classify)?;
        Ok(())
    }
}

pub(crate) fn classify(error: sqlx::Error) -> EmitError {
    let code = match &error {
        sqlx::Error::Database(answer) => answer.code().map(|code| code.into_owned()),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => None,
        _ => {
            return EmitError::Database {
                source: error.into(),
                retryable: false,
            };
        }
    };
    EmitError::from_sqlstate(code.as_deref(), error)
}
