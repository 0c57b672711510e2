//! A client of AMQP 1.0 that publishes: one connection, one session, a link for each address.
//!
//! It is our own since the public one (`fe2o3-amqp`) goes on to send what waits in it when it is
//! dropped, in tasks that nobody can end; and since its senders wait for credit without saying so,
//! so that one full queue holds up all others.

mod connection;
mod error;
mod frame;
#[cfg(test)]
mod fuzz;
mod links;
mod performative;
mod session;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use connection::{Connection, Login, Timing};
pub(crate) use error::Error;
pub(crate) use links::Room;
pub(crate) use performative::{Condition, State};
pub(crate) use session::{End, Patience, Session, attach};
pub(crate) use value::{Elements, Writer};
