//! Housekeeping.

use async_trait::async_trait;
use posthaste_engine::{Housekeeping, Registered, Retained, Retention, StoreError};

use super::{SimulatedPostgres, database::Database};

impl Database {
    pub(super) fn retained(&self) -> Retained {
        Retained::default()
    }
}

#[async_trait]
impl Retention for SimulatedPostgres {
    async fn housekeep(&self, _by: Option<Registered>) -> Result<Housekeeping, StoreError> {
        Ok(Housekeeping::default())
    }

    async fn retained(&self) -> Result<Retained, StoreError> {
        Ok(Retained::default())
    }
}
