//! The part of the sinks on services in the cloud that is the same for each: requests of several
//! messages, answers for each, and the lane that sends them.

// A build without one of the services does not need all of it.
#![cfg_attr(
    not(all(
        feature = "kinesis",
        feature = "pubsub",
        feature = "schema-registry",
        feature = "sns",
        feature = "sqs"
    )),
    allow(dead_code)
)]

#[cfg(any(feature = "pubsub", feature = "schema-registry"))]
pub(crate) mod ask;
#[cfg(any(feature = "_aws", feature = "pubsub"))]
mod call;
pub(crate) mod endpoint;
#[cfg(any(feature = "_aws", feature = "pubsub"))]
pub(crate) mod lane;
#[cfg(any(feature = "_aws", feature = "pubsub"))]
pub(crate) mod place_name;
pub(crate) mod refusal;
#[cfg(any(feature = "_aws", feature = "pubsub"))]
pub(crate) mod target;
