//! The caller's open transaction, through whichever client the application uses.

use async_trait::async_trait;

use crate::error::EmitError;
use crate::statement::Batch;

/// The caller's open transaction.
///
/// Implemented for `sqlx::PgConnection`, `sqlx::MySqlConnection` and `sqlx::SqliteConnection` (hand
/// over `&mut *tx`, also for a nested transaction, which is a savepoint), for
/// `tokio_postgres::Transaction` and for `mysql_async::Transaction` (hand over `&mut tx`), each
/// behind the feature of its name. An application with another client implements this one method,
/// or runs what [`Outbox::statement`](crate::Outbox::statement) gives it.
#[async_trait]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an open transaction that posthaste can write to",
    label = "not a transaction of an enabled client",
    note = "enable the feature of your client: `sqlx-postgres`, `sqlx-mysql`, `sqlx-sqlite`, \
            `tokio-postgres` or `mysql_async`",
    note = "with sqlx hand over the connection inside the transaction: `&mut *tx`"
)]
pub trait Tx: Send {
    /// Runs the batch's statement or statements, in order, inside the open transaction.
    ///
    /// Never begins, commits or rolls back. Called by [`Outbox`](crate::Outbox) with batches whose
    /// every limit has been checked and whose size is bounded. On an error some of the batch may
    /// have been written: the caller's rollback undoes it.
    async fn append(&mut self, batch: Batch<'_>) -> Result<(), EmitError>;
}
