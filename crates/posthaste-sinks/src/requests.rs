//! The part of the sinks on services in the cloud that is the same for each: requests of several
//! messages, answers for each, and the lane that sends them.

// A build without one of the services does not need all of it.
#![cfg_attr(
    not(all(
        feature = "kinesis",
        feature = "pubsub",
        feature = "sns",
        feature = "sqs"
    )),
    allow(dead_code)
)]

mod call;
pub(crate) mod endpoint;
pub(crate) mod lane;
pub(crate) mod place_name;
pub(crate) mod refusal;
pub(crate) mod target;
