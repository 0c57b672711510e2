//! Telling operators and other relays how the destination is.

use std::{fmt::Display, sync::Arc};

use async_trait::async_trait;
use posthaste_engine::{ClaimReports, StoreError, audit};
use uuid::Uuid;

use super::owner::Owner;
use crate::postgres::claimed::PostgresClaimed;

#[async_trait]
impl ClaimReports for PostgresClaimed<Owner> {
    /// `sql/report.sql`; who is fenced tells nothing, and is told so elsewhere.
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        let (breaker, last_error) = (breaker.to_owned(), last_error.map(str::to_owned));
        let grant = Arc::clone(&self.connection.grant);
        let report = self
            .connection
            .connection
            .change("report", move |database| {
                let now = database.clock();
                let tables = &mut database.now.tables;
                if tables.guard(&grant, now, "report").is_err() {
                    return Ok(());
                }
                let reaches = Some(breaker == "closed");
                let member = (grant.destination_id, grant.registration);
                let member = tables.members.get_mut(&member);
                let news = member.as_ref().is_some_and(|row| row.reaches != reaches);
                if let Some(row) = member {
                    row.reaches = reaches;
                    row.last_error = last_error.clone();
                }
                if let Some(row) = tables.destinations.get_mut(&grant.destination_id) {
                    row.breaker = breaker;
                    row.last_error = last_error;
                    row.shares_version += i64::from(news);
                }
                Ok(())
            });
        report.await
    }

    /// `sql/reached.sql`.
    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let cluster = cluster.to_owned();
        let store = self
            .connection
            .change("store the cluster", move |database, grant| {
                let now = database.clock();
                let tables = &mut database.now.tables;
                let row = tables.destinations.get_mut(&grant.destination_id);
                let Some(row) = row.filter(|row| row.cluster.as_ref() != Some(&cluster)) else {
                    return Ok(None);
                };
                let (name, former) = (row.name.clone(), row.cluster.replace(cluster.clone()));
                if let Some(former) = &former {
                    let by = (Some(grant.registration), None);
                    let values: [&dyn Display; 2] = [former, &cluster];
                    tables.note(now, by, audit::CLUSTER_CHANGED, Some(&name), &values);
                }
                Ok(former)
            });
        store.await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        let former = former.to_owned();
        let note = self
            .connection
            .change("note taken fences", move |database, grant| {
                for row in database.now.tables.cursors.values_mut() {
                    if row.destination_id == grant.destination_id
                        && row.relay == Some(grant.registration)
                        && row.epoch == grant.epoch
                    {
                        row.former
                            .retain(|f| !former.contains(f) && *f != grant.registration);
                    }
                }
                Ok(())
            });
        note.await
    }
}
