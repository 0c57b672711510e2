//! How the owner of a claim reads keys that were blocked, beside the main group.

use async_trait::async_trait;

use super::{Budget, Cursor, Page, StoreError};

/// A durable block marker: all events of this key before `at` are accepted or parked; from there on
/// only the side read sends this key.
#[derive(Debug, Clone)]
pub struct Marker {
    /// The blocked key.
    pub key: String,
    /// Up to where the key is done with.
    pub at: Cursor,
    /// Whether no parked event holds it any longer: the side read may go on.
    pub released: bool,
}

/// The keys that are blocked: their markers, and the way back into the main group.
#[async_trait]
pub trait ClaimMarkers: Send + Sync {
    /// The markers of this claim, read in the claim or after it, by their keys in an order of the
    /// store's own: those behind `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn markers(&self, after: Option<&str>, limit: usize) -> Result<Vec<Marker>, StoreError>;

    /// Which of these keys have a marker. Asked with each page where there are more markers than a
    /// relay keeps in memory.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn marked(&self, keys: &[String]) -> Result<Vec<String>, StoreError>;

    /// Begins to read what released keys have behind their markers, each behind its own.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Bug`] when one of them has no marker.
    async fn side_read(&self, keys: &[String]) -> Result<Box<dyn SideRead>, StoreError>;

    /// Removes the markers of these keys. The caller has side-read them up to `at`, which is
    /// joinable, the main group stands at `at`, everything before it is finished and stored, and
    /// nothing of it is in flight.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Bug`] when one of them has no marker, or something that waits
    /// holds it.
    async fn join(&self, keys: &[String], at: &Cursor) -> Result<(), StoreError>;
}

/// Reads released keys, each from its marker on, in the order in which each is to be delivered.
#[async_trait]
pub trait SideRead: Send {
    /// These keys were blocked again: their markers stand where [`super::ClaimParking::park`] has
    /// put them, and this side read neither reads nor moves them any more.
    fn leave(&mut self, keys: &[String]);

    /// The next page: events behind the side read's own place and at or before `until`, a joinable
    /// cursor of the main group. An empty page whose `caught_up` is set means that the side read
    /// has reached `until`. A place that lies behind the side read's own (a key that was blocked in
    /// mid-difference) is reached already; the side read never goes back to it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn next(&mut self, budget: Budget, until: &Cursor) -> Result<Page, StoreError>;

    /// Moves the markers of the keys of which pages brought something since the last advance to
    /// `at` of one of them: everything of them up to there is accepted or parked. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn advance(&mut self, at: &Cursor, finished: &[i64]) -> Result<(), StoreError>;
}
