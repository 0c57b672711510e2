//! The PostgreSQL store: an append-only outbox, read by snapshot differences.
//!
//! Rows are never marked: a destination's progress is one row of `posthaste.cursors`. `sweep.rs`
//! tells why that is safe; `claimed.rs` and `ownership.rs` tell how it is stored, and who may store
//! it.

mod admin;
mod advance;
mod check;
mod claim;
mod claim_connection;
mod claimed;
mod client;
mod config;
mod connection;
mod converge;
mod eras;
mod error;
mod evacuate;
mod foreign;
#[cfg(test)]
mod fuzz;
mod hints;
mod holds_key;
mod layout;
mod lock_wait;
mod locks;
mod markers;
mod micros;
mod migrate;
#[cfg(feature = "model")]
#[doc(hidden)]
pub mod model;
#[cfg(any(test, feature = "simulation", feature = "model"))]
#[doc(hidden)]
pub mod mvcc;
mod open;
mod ordering;
mod ownership;
mod parking;
mod position;
mod prepared;
mod read;
mod read_plan;
mod report;
mod retention;
mod schema;
mod server_connection;
mod session_settings;
mod shares;
mod side_read;
#[cfg(feature = "simulation")]
pub mod simulated;
mod slots;
mod sweep;
#[cfg(test)]
mod tests;
mod types;

use std::sync::{Arc, atomic::AtomicUsize};

use async_trait::async_trait;
use posthaste::Dialect;
use posthaste_engine::{Claim, Claimed, OrderBy, Progress, Store, StoreError, StoreInfo};
use uuid::Uuid;

use crate::descriptor::Functions;
pub use crate::init::{EraDestination, InitOptions, Initialised, NewEra};
use config::PostgresConfig;
use connection::{Connector, Session};
pub use eras::plan_new_era;
use hints::Hints;
pub use migrate::{init, sql};
use retention::emptied::Emptied;

/// The functions of its row.
pub(crate) const FUNCTIONS: Functions = Functions {
    open: |url| Ok(Arc::new(PostgresStore::new(url)?)),
    init: |url, options| Box::pin(init(url, options)),
    init_sql: sql,
    schema_version: || Dialect::Postgres.schema_version(),
    plan_new_era: Some(|url| Box::pin(plan_new_era(url))),
};

/// An outbox in a PostgreSQL database, version 14 or later.
#[derive(Debug)]
pub struct PostgresStore {
    connector: Arc<Connector>,
    /// Leases are not to wait behind anything slow, ...
    ownership: Session,
    /// ... and claims wait for one another.
    claims: Session,
    admin: Session,
    /// Nor operators behind housekeeping.
    housekeeping: Session,
    /// Counts the steps of housekeeping.
    turn: AtomicUsize,
    emptied: Emptied,
    hints: Hints,
}

impl PostgresStore {
    /// The store at this URL (`postgres://user:password@host:port,host2:port/db?option=value`).
    /// Connects when it is first used.
    ///
    /// `sslmode` means what it means to libpq: `disable`, `prefer` (the default) and `require`
    /// believe any certificate, `verify-ca` and `verify-full` ask `sslrootcert`, or the system's
    /// authorities. Of several hosts the primary is used.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] when the URL or an option of it is wrong, or `sslrootcert`
    /// cannot be read. No error and no log ever holds the password.
    ///
    /// # Connections
    /// At most five for all that it does beside claims (leases; claiming; housekeeping; what
    /// operators and metrics ask; hints, where writers give them), each made when it is first
    /// needed, and three for each claim that is open: one reads, one stores progress, and one, from
    /// the first key on that is released, reads the followers of such keys.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let connector = Arc::new(Connector::new(PostgresConfig::parse(url)?)?);
        Ok(Self {
            ownership: Session::new(Arc::clone(&connector)),
            claims: Session::new(Arc::clone(&connector)),
            admin: Session::new(Arc::clone(&connector)),
            housekeeping: Session::new(Arc::clone(&connector)),
            turn: AtomicUsize::new(0),
            emptied: Emptied::default(),
            hints: Hints::default(),
            connector,
        })
    }
}

/// The right that a claim gives, in the database's terms: the parameters of every guard.
#[derive(Debug, Clone)]
struct Grant {
    destination_id: i64,
    /// The claim's row with the least id, which speaks for all of them.
    cursor_id: i64,
    epoch: i64,
    registration: Uuid,
    /// The incarnation in which the claim was made.
    token: Uuid,
    /// As its destination keeps it.
    order_by: OrderBy,
    /// The sequence's value, received before the claim's transaction was sent: the claim proves it.
    proven: i64,
}

#[async_trait]
impl Store for PostgresStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "postgres",
            progress: Progress::Cursor,
            shares_out: true,
        }
    }

    async fn check(&self) -> Result<(), StoreError> {
        let checked = check::check(&*self.admin.client().await?).await;
        checked.map_err(|error| self.connector.says_where(error))
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        let grant = claim
            .inner
            .downcast_ref::<Grant>()
            .ok_or_else(|| StoreError::Bug {
                operation: "open",
                reason: "the claim is another store's".to_owned(),
            })?;
        let claimed = open::open(&self.connector, &self.hints, grant.clone()).await?;
        Ok(Arc::new(claimed))
    }

    fn disconnect(&self) {
        self.connector.cut();
    }
}
