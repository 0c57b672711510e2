//! mysql_async with MySQL and MariaDB.

#[cfg(feature = "testing")]
mod testing;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{DriverError, Error, Params, Transaction, Value};

use super::{TOO_LARGE, answered};
use crate::error::EmitError;
use crate::statement::{Batch, Param, no_arrays};
use crate::tx::Tx;

#[async_trait]
impl Tx for Transaction<'_> {
    async fn append(&mut self, batch: Batch<'_>) -> Result<(), EmitError> {
        for statement in batch.mysql() {
            let values: Option<Vec<Value>> = statement.params().iter().map(value).collect();
            let params = Params::Positional(values.ok_or_else(no_arrays)?);
            self.exec_drop(statement.sql(), params)
                .await
                .map_err(classify)?;
        }
        Ok(())
    }
}

fn value(param: &Param<'_>) -> Option<Value> {
    match param {
        Param::Text(text) => Some(text.as_deref().map_or(Value::NULL, Value::from)),
        Param::Bytes(bytes) => Some(bytes.map_or(Value::NULL, Value::from)),
        Param::BigInt(number) => Some(Value::Int(*number)),
        Param::TextArray(_) | Param::BytesArray(_) | Param::BigIntArray(_) => None,
    }
}

pub(crate) fn classify(error: Error) -> EmitError {
    match &error {
        Error::Server(answer) => {
            let (number, sqlstate) = (answer.code, answer.state.clone());
            answered(number, &sqlstate, error)
        }
        // The client refuses such a packet itself, by an error that has no public type.
        Error::Io(refused) if refused.to_string().contains("max_allowed_packet") => {
            EmitError::Configuration {
                problem: TOO_LARGE,
                source: Some(error.into()),
            }
        }
        _ => {
            let retryable = matches!(
                error,
                Error::Io(_) | Error::Driver(DriverError::ConnectionClosed)
            );
            EmitError::Database {
                source: error.into(),
                retryable,
            }
        }
    }
}
