//! tokio-postgres, and with it deadpool-postgres, whose transaction derefs to this one.

#[cfg(feature = "testing")]
mod testing;

use async_trait::async_trait;
use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use crate::error::EmitError;
use crate::statement::{Batch, Param};
use crate::tx::Tx;

#[async_trait]
impl Tx for Transaction<'_> {
    async fn append(&mut self, batch: Batch<'_>) -> Result<(), EmitError> {
        let statement = batch.postgres();
        let params: Vec<(&(dyn ToSql + Sync), Type)> =
            statement.params().iter().map(typed).collect();
        // Unnamed and typed: one round trip, nothing left on the server, no trouble with a pooler.
        self.execute_typed(statement.sql(), &params)
            .await
            .map_err(classify)?;
        Ok(())
    }
}

fn typed<'a>(param: &'a Param<'a>) -> (&'a (dyn ToSql + Sync), Type) {
    match param {
        Param::Text(text) => (text, Type::TEXT),
        Param::Bytes(bytes) => (bytes, Type::BYTEA),
        Param::BigInt(number) => (number, Type::INT8),
        Param::TextArray(texts) => (texts, Type::TEXT_ARRAY),
        Param::BytesArray(values) => (values, Type::BYTEA_ARRAY),
        Param::BigIntArray(numbers) => (numbers, Type::INT8_ARRAY),
    }
}

pub(crate) fn classify(error: tokio_postgres::Error) -> EmitError {
    let code = error.code().map(|code| code.code().to_owned());
    EmitError::from_sqlstate(code.as_deref(), error)
}
