//! Telling operators and other relays how the destination is.

use async_trait::async_trait;
use posthaste_engine::{ClaimReports, StoreError};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{
    claimed::PostgresClaimed,
    error::classify,
    server_connection::{ServerConnection, guarded},
};

const REPORT: &str = include_str!("sql/report.sql");
const FENCES_TAKEN: &str = include_str!("sql/fences_taken.sql");
const REACHED: &str = include_str!("sql/reached.sql");

#[async_trait]
impl ClaimReports for PostgresClaimed<ServerConnection> {
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError> {
        self.connection
            .writer
            .execute_typed(
                &guarded(REPORT),
                &self
                    .connection
                    .grant
                    .guard(&[(&breaker, Type::TEXT), (&last_error, Type::TEXT)]),
            )
            .await
            .map(drop)
            .map_err(|error| classify("report", error))
    }

    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let cluster = [(&cluster as _, Type::TEXT)];
        let row = self
            .connection
            .change("store the cluster", REACHED, &cluster)
            .await?;
        Ok(row.get("former"))
    }

    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError> {
        self.connection
            .change(
                "note taken fences",
                FENCES_TAKEN,
                &[(&former, Type::UUID_ARRAY)],
            )
            .await
            .map(drop)
    }
}
