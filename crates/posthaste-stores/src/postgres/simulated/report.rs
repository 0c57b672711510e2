//! Telling operators and other relays how the destination is.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_engine::{ClaimReports, StoreError};
use uuid::Uuid;

use super::owner::Owner;
use crate::postgres::claimed::PostgresClaimed;

#[async_trait]
impl ClaimReports for PostgresClaimed<Owner> {
    /// `sql/report.sql`; a fenced relay tells nothing, and is told so elsewhere.
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let (breaker, last_error) = (breaker.to_owned(), last_error.map(str::to_owned));
        let (grant, connection) = (
            Arc::clone(&self.connection.grant),
            &self.connection.connection,
        );
        let report = connection.change("report", move |database| {
            let now = database.clock();
            if database.now.guard(&grant, now, "report").is_ok() {
                let tables = &mut database.now.tables;
                tables.report(grant.of(), &breaker, last_error.as_deref());
            }
            Ok(())
        });
        report.await
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let cluster = cluster.to_owned();
        let store = self
            .connection
            .change("store the cluster", move |database, grant| {
                let now = database.clock();
                Ok(database.now.tables.reached(grant.of(), &cluster, now))
            });
        store.await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        let former = former.to_owned();
        let note = self
            .connection
            .change("note taken fences", move |database, grant| {
                database.now.tables.fences_taken(&grant.row(), &former);
                Ok(())
            });
        note.await
    }
}
