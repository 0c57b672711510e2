//! The part of the sinks on AWS that is the same for each service: the account with its
//! credentials, requests over sockets of our own, and messages.

// A build without one of the services does not need all of it.
#![cfg_attr(
    not(all(feature = "kinesis", feature = "sns", feature = "sqs")),
    allow(dead_code)
)]

pub(crate) mod account;
pub(crate) mod answers;
pub(crate) mod connector;
mod credentials;
pub(crate) mod digest;
pub(crate) mod fault;
pub(crate) mod message;
