//! The part of the sinks on AWS that is the same for each service: the account with its
//! credentials, requests over sockets of our own, messages, and the lane that sends them.

pub(crate) mod account;
pub(crate) mod connector;
pub(crate) mod digest;
pub(crate) mod fault;
pub(crate) mod lane;
#[cfg(any(feature = "sns", feature = "sqs"))]
pub(crate) mod message;
pub(crate) mod place_name;
