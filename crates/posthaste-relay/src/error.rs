use posthaste_engine::StoreError;

/// Why a relay did not start or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The set-up is wrong; nothing was started.
    #[error("{0}")]
    Configuration(String),
    /// The store refuses us for a reason that waiting does not mend.
    #[error(transparent)]
    Store(StoreError),
    /// A task of the relay panicked.
    #[error("bug: a task of the relay ended: {0}")]
    Bug(String),
}

impl RelayError {
    /// Whether starting again can help without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}
