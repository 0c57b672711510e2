//! What the owner of a claim asks of its database. The rules beside it (`claimed.rs`, `side_read.rs`) decide what
//! to ask and what an answer means; they hold for any database that answers as PostgreSQL does.

use std::{collections::HashMap, fmt::Debug};

use async_trait::async_trait;
use posthaste_engine::{Budget, Due, EventRef, Marker, Parking, Settlement, StoreError};
use uuid::Uuid;

use super::{
    course::Stored,
    read::{Read, Scope},
    sweep::{Position, Request},
};

/// The statements of one claim. Each that changes something is one transaction, and tests the claim's epoch, its
/// registration and the incarnation: [`StoreError::Fenced`] or [`StoreError::IncarnationChanged`] when it changed
/// nothing for that.
#[async_trait]
pub(super) trait Statements: Debug + Send + Sync {
    /// Rows of a leaf, as a power of two.
    fn leaf_bits(&self) -> u8;

    /// Reads one page. Released keys are read beside the main group, and keep it from nothing.
    async fn read(
        &self,
        operation: &'static str,
        request: &Request,
        scope: Scope<'_>,
        budget: Budget,
    ) -> Result<Read, StoreError>;

    /// Stores the place of a claim that has one row.
    async fn store_one(&self, stored: &Stored) -> Result<(), StoreError>;

    /// Stores places of several rows and what they imply: rows that have come to one place are merged.
    async fn store_several(&self, stored: &Stored) -> Result<(), StoreError>;

    /// As [`posthaste_engine::ClaimMarkers::markers`].
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError>;

    /// As [`posthaste_engine::ClaimMarkers::marked`].
    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError>;

    /// Where the markers of these keys stand; of those that have none, nothing.
    async fn stands(&self, keys: &[String]) -> Result<HashMap<String, Position>, StoreError>;

    /// Moves the markers of these keys, unless something that waits holds the key. False: one has none.
    async fn move_markers(&self, to: &[(String, Position)]) -> Result<bool, StoreError>;

    /// Removes the markers of these keys. False: one has none, or something that waits holds it.
    async fn join(&self, keys: &[String]) -> Result<bool, StoreError>;

    /// As [`posthaste_engine::ClaimParking::set_aside`].
    async fn set_aside(&self) -> Result<Vec<EventRef>, StoreError>;

    /// As [`posthaste_engine::ClaimParking::park`].
    async fn park(&self, events: &[Parking]) -> Result<(), StoreError>;

    /// As [`posthaste_engine::ClaimParking::due`].
    async fn due(&self, limit: usize) -> Result<Due, StoreError>;

    /// As [`posthaste_engine::ClaimParking::settle`].
    async fn settle(&self, id: i64, settlement: &Settlement) -> Result<(), StoreError>;

    /// As [`posthaste_engine::ClaimReports::report`].
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError>;

    /// As [`posthaste_engine::ClaimReports::reached`].
    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError>;

    /// As [`posthaste_engine::ClaimReports::fences_taken`].
    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError>;

    /// As [`posthaste_engine::ClaimReader::hinted`].
    async fn hinted(&self);
}
