//! A client of MQTT 5 and 3.1.1 that only publishes. It knows neither records nor outcomes: it says
//! how each packet ended, and never sends one again.
//!
//! It is our own, since the sink has to know which packet an answer is of, and to destroy a
//! connection with all that waits in it. `rumqttc` does neither: it gives no packet ids, and
//! publishes again by itself what was under way. The codec is our own too: a publisher writes five
//! kinds of packets and reads seven, all of them short but one.

mod connection;
mod packet;
mod publishing;
mod write;

use std::io;

use crate::transport::TransportError;

pub(super) use connection::{ClientIdentity, Connection, LOGGING_IN, Login};
#[cfg(test)]
pub(super) use packet::{Incoming, read};
pub(super) use packet::{Malformed, Reason, Version};
pub(super) use publishing::{Ending, NotPublished, Outgoing, Patience, Publishing};
#[cfg(test)]
pub(super) use write::{Publish, publish};
pub(super) use write::{StringTooLong, property};

/// How often a message arrives at the broker. *At most once* has no answer, and is not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Qos {
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

/// Why there is no connection, or none any more.
#[derive(Debug)]
pub(super) enum ClientError {
    /// The connection was not made.
    Transport(TransportError),
    /// User or password has more bytes than a string of the protocol.
    LoginTooLong,
    /// The socket failed.
    Lost {
        doing: &'static str,
        error: io::Error,
    },
    /// Nothing came for too long.
    Silent { limit: std::time::Duration },
    /// The other side does not speak MQTT.
    Malformed,
    /// The broker sent a packet that has no place here.
    Unexpected { packet: &'static str },
    /// The broker asks for an exchange of `AUTH` packets, which this client does not have.
    AuthAsked,
    /// The broker refused the connection (`CONNACK`).
    Refused(Reason),
    /// The broker ended the connection, and said why (`DISCONNECT`).
    Ended(Reason),
}

impl From<TransportError> for ClientError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

impl From<Malformed> for ClientError {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}
