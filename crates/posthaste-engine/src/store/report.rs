//! How the owner of a claim tells others about the destination.

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;

/// Tells operators and other relays how the destination is.
#[async_trait]
pub trait ClaimReports: Send + Sync {
    /// Stores how the destination is for this relay: the breaker's state and its last error. The
    /// next claim of the destination answers it; not needed for correctness.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn report(&self, breaker: &str, last_error: Option<&str>) -> Result<(), StoreError>;

    /// Stores which cluster of brokers the destination is delivered to
    /// ([`crate::Lane::take_over`]). Answers the former one where that was another, of which an
    /// audit line tells.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn reached(&self, cluster: &str) -> Result<Option<String>, StoreError>;

    /// The fences of these former owners are taken ([`super::Claim::former`]).
    ///
    /// # Errors
    /// [`StoreError`].
    async fn fences_taken(&self, former: &[Uuid]) -> Result<(), StoreError>;
}
