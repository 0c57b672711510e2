//! MySQL and MariaDB: a log with holes that are closed by proof.
//!
//! The numbers of the outbox are drawn when rows are inserted, and transactions commit in any
//! order. So a cursor is the greatest number that was seen and the ranges below it that were not:
//! holes (`place.rs`). Each page is one consistent read of the holes and of what lies behind, in
//! the order of the numbers: a late commit delays only itself, and the events of a key come in the
//! order of their commits where writers lock before they emit. A hole is closed when it is proven
//! that nobody can commit it any more (`proof.rs`), never by its age.
//!
//! Cursors live in the same server as the outbox. Nothing that was read is kept when a connection
//! is lost: the server may have begun another life, in which it gives numbers again.

mod admin;
mod audit;
mod bits;
mod check;
mod claimed;
mod config;
mod connection;
mod destination;
mod error;
mod evacuate;
mod guard;
#[cfg(test)]
mod histories;
mod holds_key;
mod marker_rows;
mod markers;
mod migrate;
#[cfg(feature = "model")]
#[doc(hidden)]
pub mod model;
mod ordering;
mod ownership;
mod owning;
mod parking;
mod place;
mod plan;
mod proof;
mod ranges;
mod read;
mod renewal;
mod report;
mod retention;
mod row;
mod sample;
mod settings;
mod shares;
mod side_read;
mod slots;
mod status;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste::Dialect;
use posthaste_engine::{Claim, Claimed, Progress, Store, StoreError, StoreInfo};

pub use config::{HoleProof, MysqlConfig, SslMode};
pub use migrate::{InitReport, init, sql};

use crate::descriptor::Functions;
use claimed::MysqlClaimed;
use connection::Link;
use renewal::LastRenewal;
use sample::Trust;

/// The functions of its row.
pub(crate) const FUNCTIONS: Functions = Functions {
    open: |url| Ok(Arc::new(MysqlStore::new(url)?)),
    init: |url, asked| {
        Box::pin(async move {
            let done = init(url, asked).await?;
            Ok(crate::init::Initialised {
                applied: done.applied,
                version: done.version,
                new_era: None,
            })
        })
    },
    init_sql: sql,
    schema_version: || Dialect::Mysql.schema_version(),
    plan_new_era: None,
};

/// An outbox in a database of MySQL or MariaDB.
///
/// Connections are made when they are first needed: one for leases, one for claims (which wait for
/// each other, and a lease must not), one for operators' calls, one for housekeeping, and those of
/// each claim.
#[derive(Debug)]
pub struct MysqlStore {
    config: Arc<MysqlConfig>,
    leases: Link,
    claims: Link,
    admin: Link,
    housekeeper: Link,
    renewed: LastRenewal,
    trust: Arc<Trust>,
}

impl MysqlStore {
    /// The store at this address. Touches nothing outside this process.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] that names what is wrong with the address.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let config = Arc::new(MysqlConfig::parse(url)?);
        Ok(Self {
            leases: Link::new(&config),
            claims: Link::new(&config),
            admin: Link::new(&config),
            housekeeper: Link::new(&config),
            renewed: LastRenewal::default(),
            trust: Arc::default(),
            config,
        })
    }
}

#[async_trait]
impl Store for MysqlStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "mysql",
            progress: Progress::Cursor,
            shares_out: true,
        }
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check_all().await
    }

    async fn open(&self, claim: &Claim) -> Result<Arc<dyn Claimed>, StoreError> {
        Ok(Arc::new(MysqlClaimed::open(self, claim).await?))
    }

    fn disconnect(&self) {
        for link in [&self.leases, &self.claims, &self.admin, &self.housekeeper] {
            link.end();
        }
    }
}
