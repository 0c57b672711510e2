//! Why a connection was not made, or has ended.

use std::{io, time::Duration};

use super::wire::{Incoming, Malformed};
use crate::transport::{TransportError, refused_us};

/// Why a connection was not made, or has ended; by what its owner does about it.
#[derive(Debug)]
pub(crate) enum Error {
    /// It was not made, or broke. Another attempt may succeed.
    Connection(String),
    /// The two sides do not fit together, until somebody changes a setting. The words say which.
    Setup(String),
    /// The broker wants another certificate of ours.
    Certificate(String),
    /// The broker closed the connection or the channel, with its code and words.
    Closed {
        /// `connection` or `channel`.
        what: &'static str,
        /// The reply code.
        code: u16,
        /// The reply text.
        text: String,
    },
    /// A message was not confirmed in time.
    Unconfirmed {
        /// How long it had.
        limit: Duration,
        /// Why the broker blocks publishers, if it does.
        blocked: Option<String>,
    },
    /// The broker answered for a message that was not in flight.
    Mismatch(String),
}

impl Error {
    /// An error of the socket.
    fn io(doing: &str, error: &io::Error) -> Self {
        Self::Connection(format!("{doing}: {error}"))
    }

    /// An error of the socket once the connection is up.
    pub(super) fn lost(doing: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Connection(format!(
                "{doing}: the broker closed the connection without saying why; see its log"
            )),
            _ => refused_us(error).map_or_else(|| Self::io(doing, error), Self::from),
        }
    }

    /// Bytes that are not AMQP 0-9-1.
    pub(super) fn malformed(malformed: Malformed) -> Self {
        match malformed {
            Malformed::NotAmqp => Self::Setup(
                "what answers there does not speak AMQP 0-9-1; correct host and port (RabbitMQ \
                 listens on 5672, with TLS on 5671)"
                    .to_owned(),
            ),
            Malformed::Tls => {
                Self::Setup("the port speaks TLS; write `amqps://` instead of `amqp://`".to_owned())
            }
            Malformed::Frame => {
                Self::Connection("the broker sent a frame that breaks the protocol".to_owned())
            }
        }
    }

    /// An answer that does not belong here.
    pub(super) fn unexpected(doing: &str, incoming: &Incoming) -> Self {
        Self::Connection(format!(
            "{doing}: the broker answered out of turn with {incoming:?}"
        ))
    }
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Connection(words) => Self::Connection(words),
            TransportError::Setup(words) => Self::Setup(words),
            TransportError::Certificate(words) => Self::Certificate(words),
        }
    }
}
