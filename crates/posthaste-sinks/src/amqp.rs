//! A client of AMQP 0-9-1 that does one thing: it publishes to one exchange, and says how each
//! message ended. It knows nothing of events or lanes.
//!
//! [`Connection::open`] connects, logs in and looks for the exchange; a [`ConfirmChannel`]
//! publishes [`Message`]s on it. Its owner drives it by [`ConfirmChannel::turn`], and takes the
//! [`Confirmation`]s. A failure of the connection is its end: its owner takes back the messages
//! without an answer.
//!
//! It is our own, since a sound sink needs what the public ones lack: to say that it understands
//! `connection.blocked` and refused logins (or the broker is silent about both), to destroy a
//! socket without sending what waits in it, and the frames' own order of returns and confirms.

mod channel;
mod connection;
mod error;
#[cfg(test)]
mod fuzz;
mod message;
mod unconfirmed;
mod wire;
mod write;

pub(crate) use channel::ConfirmChannel;
pub(crate) use connection::{Connection, Login, Timing};
pub(crate) use error::Error;
pub(crate) use message::Message;
pub(crate) use unconfirmed::Confirmation;
pub(crate) use write::{FrameWriter, TooLong};

#[cfg(test)]
pub(crate) use {
    channel::write_frame,
    wire::{BODY, FRAME_END, FRAME_OVERHEAD, HEADER, Incoming, METHOD, read},
};
