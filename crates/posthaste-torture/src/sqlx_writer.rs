//! Transactions through sqlx, where a savepoint is a transaction inside another one.

use async_trait::async_trait;
use sqlx::{Connection, Database, Transaction};

use crate::database::{Plan, Savepoint, Step, Trouble};

/// A connection of an application.
#[async_trait]
pub(crate) trait Emits: Connection {
    /// Locks the key, emits, and notes the events in the business table.
    async fn emit_step(&mut self, step: &Step) -> Result<(), Trouble>;
}

/// Makes the rest of a transaction that has begun.
pub(crate) async fn transact<DB>(mut tx: Transaction<'_, DB>, plan: &Plan) -> Result<(), Trouble>
where
    DB: Database,
    DB::Connection: Emits,
{
    for step in &plan.steps {
        if step.savepoint == Savepoint::None {
            tx.emit_step(step).await?;
            continue;
        }
        let mut savepoint = tx.begin().await?;
        savepoint.emit_step(step).await?;
        if step.savepoint == Savepoint::Kept {
            savepoint.commit().await?;
        } else {
            savepoint.rollback().await?;
        }
    }
    plan.hold.pass().await;
    if plan.rolls_back {
        tx.rollback().await?;
    } else {
        tx.commit().await?;
    }
    Ok(())
}
