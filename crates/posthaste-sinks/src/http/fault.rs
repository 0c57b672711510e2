//! Why there is no connection, or no answer, and whose fault that is.

use std::{error::Error, io, time::Duration};

use posthaste_engine::{Cause, SinkError, Unavailability};

use crate::transport::{TransportError, refused_us};

/// The endpoint cannot be reached, whatever the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostFault {
    pub(super) cause: Cause,
    /// In words, with the fix where one is known.
    pub(super) reason: String,
}

impl HostFault {
    pub(super) fn connection(reason: impl Into<String>) -> Self {
        Self {
            cause: Cause::Connection,
            reason: reason.into(),
        }
    }

    /// Somebody has to change something.
    pub(super) fn setup(reason: impl Into<String>) -> Self {
        Self {
            cause: Cause::Misconfigured,
            reason: reason.into(),
        }
    }

    pub(super) fn slow(doing: &str, limit: Duration) -> Self {
        Self::connection(format!("{doing}: no answer within {limit:?}"))
    }

    /// The client's error, if it tells more than that a connection broke.
    fn of_client(error: &hyper::Error) -> Option<Self> {
        if error.is_parse() {
            return Some(Self::setup(format!(
                "what answers there does not speak HTTP/1.1 ({error}); correct host and port, or \
                 write `https://` where it asks for TLS"
            )));
        }
        let mut source = error.source();
        while let Some(inner) = source {
            if let Some(refused) = inner.downcast_ref::<io::Error>().and_then(refused_us) {
                return Some(refused.into());
            }
            source = inner.source();
        }
        None
    }

    /// The connection broke, by the client's error.
    pub(super) fn broken(error: &hyper::Error) -> Self {
        if let Some(told) = Self::of_client(error) {
            return told;
        }
        let mut root: &dyn Error = error;
        while let Some(source) = root.source() {
            root = source;
        }
        Self::connection(format!("the connection broke: {root}"))
    }

    /// The same as the answer of `check` and `open_lane`.
    pub(super) fn into_error(self, target: String) -> SinkError {
        SinkError::new(self.cause, target, self.reason)
    }

    /// The same as the end of a lane.
    pub(super) fn unavailability(&self) -> Unavailability {
        Unavailability::new(self.cause, self.reason.as_str())
    }
}

impl From<TransportError> for HostFault {
    fn from(error: TransportError) -> Self {
        let (cause, reason) = match error {
            TransportError::Connection(words) => (Cause::Connection, words),
            TransportError::Setup(words) => (Cause::Misconfigured, words),
            TransportError::Certificate(words) => (Cause::Denied, words),
        };
        Self { cause, reason }
    }
}
