//! How large the parts of an event may be.

/// The limits of an [`Outbox`](crate::Outbox).
///
/// Only the payload's limit can be set. The others are part of the table's contract and are
/// constants here; the database checks them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one payload. Default 1 MiB: what brokers take without being configured for more.
    pub payload_bytes_max: usize,
}

impl Limits {
    /// Bytes of a topic: the longest name that Kafka takes.
    pub const TOPIC_BYTES_MAX: usize = 249;
    /// Bytes of a key.
    pub const KEY_BYTES_MAX: usize = 1024;
    /// Bytes of the type, the content type, each identifier and the traceparent.
    pub const TEXT_BYTES_MAX: usize = 255;
    /// Bytes of the tracestate: what W3C asks every party to pass on.
    pub const TRACESTATE_BYTES_MAX: usize = 512;
    /// Bytes of all header names and values of an event together.
    pub const HEADERS_BYTES_MAX: usize = 64 * 1024;
    /// Bytes of a payload that no setting can exceed: the table's own ceiling.
    pub const PAYLOAD_BYTES_CEILING: usize = 64 * 1024 * 1024;

    /// The limits with another one for the payload, in bytes. Above
    /// [`Limits::PAYLOAD_BYTES_CEILING`] every emit answers
    /// [`EmitError::Configuration`](crate::EmitError::Configuration).
    #[must_use]
    pub const fn with_payload_bytes_max(mut self, bytes: usize) -> Self {
        self.payload_bytes_max = bytes;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1024 * 1024,
        }
    }
}
