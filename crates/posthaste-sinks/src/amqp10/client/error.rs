use std::{io, time::Duration};

use super::{performative::Condition, value::Malformed};
use crate::transport::{TransportError, refused_us};

/// Why there is no connection, or none any more.
#[derive(Debug)]
pub(crate) enum Error {
    /// The socket was not made, or TLS refused.
    Transport(TransportError),
    /// The socket broke.
    Lost(String),
    /// The peer says nothing, not even that it is there.
    Silent(Duration),
    /// Somebody else than AMQP 1.0 answers.
    NotAmqp(&'static str),
    /// The peer did not let us in.
    Login(String),
    /// The peer cannot let anybody in now.
    LoginLater(String),
    /// The peer ended the connection, or the session.
    Ended(Condition),
}

impl Error {
    pub(super) fn lost(doing: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let said = "the broker closed the connection without saying why; see its log";
            return Self::Lost(format!("{doing}: {said}"));
        }
        match refused_us(error) {
            Some(refused) => Self::Transport(refused),
            None => Self::Lost(format!("{doing}: {error}")),
        }
    }
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

impl From<Malformed> for Error {
    fn from(Malformed: Malformed) -> Self {
        Self::NotAmqp("it sends what is no frame of AMQP 1.0")
    }
}
