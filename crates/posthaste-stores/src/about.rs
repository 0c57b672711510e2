//! The subject of a line of the audit.

use uuid::Uuid;

/// Whom and what a line of the audit is about.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct About<'a> {
    /// The relay that did it; none: an operator did.
    pub(crate) relay: Option<Uuid>,
    pub(crate) destination: Option<&'a str>,
    pub(crate) event_id: Option<&'a str>,
}

impl<'a> About<'a> {
    /// An act of a relay on a destination.
    pub(crate) fn relay(relay: Uuid, destination: &'a str) -> Self {
        Self {
            relay: Some(relay),
            destination: Some(destination),
            event_id: None,
        }
    }
}
