//! Migrations beside writers: a migration waits 50 ms for a lock, because all writers wait behind
//! it, and is tried again from the beginning until the lock is free.

use std::time::Duration;

use posthaste_engine::{Backoff, StoreError};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::{client::Client, error::classify};

const OPERATION: &str = "init";
const HOLDERS: &str = include_str!("sql/lock_holders.sql");
/// Writers wait 50 ms of each of these, at the most.
const PAUSE: Backoff = Backoff {
    first: Duration::from_millis(200),
    max: Duration::from_secs(2),
    jitter: 0.25,
};
/// Ten minutes: the user who runs `init` is to learn of a transaction that stays open.
const TRIES_MAX: u32 = 300;
/// The holder of the lock is named at the first failure, and again about every ten seconds.
const SAID_EVERY: u32 = 5;

pub(super) fn is_locked(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// How often a migration was tried in vain.
#[derive(Debug, Default)]
pub(super) struct Patience {
    tries: u32,
}

impl Patience {
    /// Waits before the next try.
    pub(super) async fn wait(&mut self, client: &Client) -> Result<(), StoreError> {
        self.tries += 1;
        if self.tries % SAID_EVERY == 1 || self.tries == TRIES_MAX {
            let holders = holders(client).await?;
            if self.tries == TRIES_MAX {
                return Err(StoreError::Unavailable {
                    operation: OPERATION,
                    reason: format!(
                        "a lock was not free at any of {TRIES_MAX} tries, held by {holders}: end \
                         that transaction and run `posthaste init` again; nothing was changed"
                    ),
                    source: None,
                });
            }
            tracing::warn!(
                "a migration waits for a lock that is held by {holders}; it is tried again, and \
                 writers go on meanwhile"
            );
        }
        let [random, ..] = *Uuid::new_v4().as_bytes();
        tokio::time::sleep(PAUSE.delay(self.tries, f64::from(random) / 255.0)).await;
        Ok(())
    }
}

/// The transactions that hold locks on tables of ours, the oldest first.
async fn holders(client: &Client) -> Result<String, StoreError> {
    let rows = client
        .query_typed(HOLDERS, &[])
        .await
        .map_err(|error| classify(OPERATION, error))?;
    if rows.is_empty() {
        return Ok("a transaction that has just ended".to_owned());
    }
    let held: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok(held.join(", "))
}
