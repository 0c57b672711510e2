use std::error::Error;

use crate::shown;

/// A failure of a store, told apart by what the caller will do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be reached, is starting, full, read-only for now, or the connection
    /// broke. The effect of a changing call is unknown.
    #[error("{operation}: {reason}")]
    Unavailable {
        /// The operation that was under way.
        operation: &'static str,
        /// The failure in words.
        reason: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The claim is not the newest any more, or the relay was fenced: nothing was changed.
    #[error("{operation}: fenced: another claim is newer than ours")]
    Fenced {
        /// The operation that was under way.
        operation: &'static str,
    },
    /// The database's counters began a new life (crash, promotion, restore): nothing was changed,
    /// and every cursor in memory is void.
    #[error("{operation}: the database's incarnation changed (crash, promotion or restore)")]
    IncarnationChanged {
        /// The operation that was under way.
        operation: &'static str,
    },
    /// Credentials or rights are missing; the reason names the fix.
    #[error("{operation}: {reason}")]
    Denied {
        /// The operation that was under way.
        operation: &'static str,
        /// The thing that is missing, with the fix.
        reason: String,
    },
    /// The schema is absent, too old or too new; the reason names the fix.
    #[error("{operation}: {reason}")]
    Schema {
        /// The operation that was under way.
        operation: &'static str,
        /// The fault in words, with the fix.
        reason: String,
    },
    /// The URL, an option or the server's set-up is wrong (a read replica, a foreign store).
    #[error("{operation}: {reason}")]
    Misconfigured {
        /// The operation that was under way.
        operation: &'static str,
        /// The fault in words, with the fix.
        reason: String,
    },
    /// A promise of this code, or an assumption on the database, does not hold.
    #[error("{operation}: bug: {reason}")]
    Bug {
        /// The operation that was under way.
        operation: &'static str,
        /// The rule that was broken.
        reason: String,
    },
}

impl StoreError {
    /// A destination is asked for that nobody has claimed yet, or that was removed.
    #[must_use]
    pub fn no_destination(operation: &'static str, destination: &str) -> Self {
        Self::Misconfigured {
            operation,
            reason: format!("there is no destination `{}`", shown(destination)),
        }
    }

    /// A destination is not removed while a live relay serves it. `closed` of its parked events
    /// were closed before that one came.
    #[must_use]
    pub fn is_held(operation: &'static str, destination: &str, relay: &str, closed: u64) -> Self {
        let changed = match closed {
            0 => "nothing was changed".to_owned(),
            _ => format!("it came when {closed} parked events had been skipped already"),
        };
        Self::Misconfigured {
            operation,
            reason: format!(
                "destination `{destination}` is held by the live relay `{relay}`; {changed}\nfix: \
                 stop that relay, or take the destination out of its configuration; then remove it"
            ),
        }
    }

    /// Whether trying again later can help without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. } | Self::Fenced { .. } | Self::IncarnationChanged { .. }
        )
    }

    /// The same, which says where it happened, once.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        match &mut self {
            Self::Unavailable { reason, .. }
            | Self::Denied { reason, .. }
            | Self::Schema { reason, .. }
            | Self::Misconfigured { reason, .. }
            | Self::Bug { reason, .. } => {
                if !reason.starts_with(place) {
                    *reason = format!("{place}: {reason}");
                }
            }
            Self::Fenced { .. } | Self::IncarnationChanged { .. } => {}
        }
        self
    }

    /// Whether nobody but an operator can mend it: asking again and again changes nothing.
    #[must_use]
    pub fn needs_an_operator(&self) -> bool {
        matches!(
            self,
            Self::Denied { .. } | Self::Schema { .. } | Self::Misconfigured { .. }
        )
    }
}
