//! The questions that the owner of a claim asks its database. The rules beside it (`claimed.rs`,
//! `side_read.rs`) decide what to ask and what an answer means; they hold for any database that
//! answers as PostgreSQL does.
//!
//! Each statement that changes something is one transaction, and tests the claim's epoch, its
//! registration and the incarnation. Where it changed nothing for that, the answer is
//! [`StoreError::Fenced`] or [`StoreError::IncarnationChanged`].

use std::collections::HashMap;

use async_trait::async_trait;
use posthaste_engine::{Budget, Marker, StoreError};

use super::{
    position::Position,
    read::{Read, Scope},
    read_plan::Stored,
    sweep::Request,
};

/// Reads pages.
#[async_trait]
pub(super) trait PageStatements: Send + Sync {
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

    /// As [`posthaste_engine::ClaimReader::hinted`].
    async fn hinted(&self);
}

/// Stores where the claim stands.
#[async_trait]
pub(super) trait ProgressStatements: Send + Sync {
    /// Stores the place of a claim that has one row.
    async fn store_one(&self, stored: &Stored) -> Result<(), StoreError>;

    /// Stores places of several rows and what they imply: rows that have come to one place are
    /// merged.
    async fn store_several(&self, stored: &Stored) -> Result<(), StoreError>;
}

/// Reads and moves block markers.
#[async_trait]
pub(super) trait MarkerStatements: Send + Sync {
    /// As [`posthaste_engine::ClaimMarkers::markers`].
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError>;

    /// As [`posthaste_engine::ClaimMarkers::marked`].
    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError>;

    /// Where the markers of these keys stand; of those that have none, nothing.
    async fn stands(&self, keys: &[String]) -> Result<HashMap<String, Position>, StoreError>;

    /// Moves the markers of these keys, unless something that waits holds the key. False: one has
    /// none.
    async fn move_markers(&self, to: &[(String, Position)]) -> Result<bool, StoreError>;

    /// Removes the markers of these keys. False: one has none, or something that waits holds it.
    async fn remove_markers(&self, keys: &[String]) -> Result<bool, StoreError>;
}
