//! Telling operators and other relays how the destination is.

use async_trait::async_trait;
use posthaste_engine::{ClaimReports, StoreError};
use rusqlite::named_params;
use uuid::Uuid;

use super::{
    claimed::SqliteClaimed, connection::execute, destination::found_cluster, guard::Changed,
};

#[async_trait]
impl ClaimReports for SqliteClaimed {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        const OPERATION: &str = "report the destination's health";
        let destination_id = self.guard().destination_id();
        let registration = self.guard().registration().to_string();
        let breaker = breaker.to_owned();
        let last_error = last_error.map(str::to_owned);
        self.guard()
            .write(&self.writer, OPERATION, move |tx, _| {
                execute(
                    tx,
                    OPERATION,
                    include_str!("sql/report.sql"),
                    named_params! {
                        ":breaker": breaker,
                        ":last_error": last_error,
                        ":destination_id": destination_id,
                    },
                )?;
                execute(
                    tx,
                    OPERATION,
                    include_str!("sql/member_reaches.sql"),
                    named_params! {
                        // On trial it is not reached.
                        ":reaches": breaker == "closed",
                        ":destination_id": destination_id,
                        ":registration": registration,
                    },
                )?;
                Ok(((), Changed::Something))
            })
            .await
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        const OPERATION: &str = "store the destination's cluster";
        let (id, by) = self.guard().of();
        let cluster = cluster.to_owned();
        self.guard()
            .write(&self.writer, OPERATION, move |tx, _| {
                let former = found_cluster(tx, OPERATION, id, &cluster, by)?;
                Ok((former, Changed::Something))
            })
            .await
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        const OPERATION: &str = "record fences that were taken";
        let destination_id = self.guard().destination_id();
        // Our own is taken too: that is how a lane is opened.
        let taken: Vec<Uuid> = former
            .iter()
            .copied()
            .chain([self.guard().registration()])
            .collect();
        self.guard()
            .write(&self.writer, OPERATION, move |tx, _| {
                for registration in taken {
                    execute(
                        tx,
                        OPERATION,
                        include_str!("sql/former_delete.sql"),
                        named_params! {
                            ":destination_id": destination_id,
                            ":registration": registration.to_string(),
                        },
                    )?;
                }
                Ok(((), Changed::Something))
            })
            .await
    }
}
