//! A service and its places, as the lane sees them.

use std::sync::Arc;

use posthaste_engine::{FenceKind, KeyOrder, Outcome, Record, SinkInfo};

use super::{
    place_name::NamePattern,
    refusal::{Answer, Refusal},
};
use crate::descriptors::sqs::{CALLS_MAX, FIFO_DEDUPLICATION};

/// A record as a service takes it.
pub(crate) trait Encoded: Sized + Send + Sync + 'static {
    /// The record for this target.
    ///
    /// # Errors
    /// The outcome of a record that the service cannot take.
    fn encode(record: &Record, target: &Target) -> Result<Self, Outcome>;

    /// Its bytes, as the service counts.
    fn bytes(&self) -> usize;
}

/// A service that takes messages in requests of several.
pub(crate) trait Service: Send + Sync + 'static {
    type Message: Encoded;

    /// Sends messages to this queue, topic or stream in one request, and answers for each. Takes as
    /// long as it takes.
    ///
    /// # Errors
    /// Why the request was refused as a whole.
    fn send(
        &self,
        place: &str,
        messages: &[Arc<Self::Message>],
    ) -> impl Future<Output = Result<Vec<Answer>, Refusal>> + Send;
}

/// Our account, and the connections of a lane.
pub(crate) trait Way: Send + 'static {
    /// A request was refused: credentials may have been the fault, and others be found.
    fn refused(&self, refusal: &Refusal);

    /// Takes leave of the servers to which no request is under way.
    fn close_idle(&self);
}

/// The size of a request, at the most, and of all that are under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    pub(crate) events: usize,
    /// A single larger message is still sent alone.
    pub(crate) bytes: usize,
    /// Events of a lane. More would wait in it, while the time for their answer runs.
    pub(crate) events_of_all: usize,
}

/// Where records go.
#[derive(Debug)]
pub(crate) struct Target {
    /// `queue`, `topic` or `stream`.
    pub(crate) kind: &'static str,
    pub(crate) names: NamePattern,
    pub(crate) event_bytes_max: Option<u64>,
    pub(crate) message_bytes_max: usize,
    pub(crate) call: CallLimits,
}

impl Target {
    /// The limits of its sink.
    pub(crate) fn info(&self, kind: &'static str, batch_bytes_max: usize) -> SinkInfo {
        SinkInfo {
            kind,
            batch_events_max: self.call.events_of_all,
            batch_bytes_max,
            in_flight_events_max: self.call.events_of_all,
            event_bytes_max: self.event_bytes_max,
            requests_max: Some(CALLS_MAX),
            deduplication: self.names.is_fifo().then_some(FIFO_DEDUPLICATION),
            // Requests overtake each other, and a part of one may fail. A queue or topic that is
            // not FIFO promises no order on top of that. A stream keeps the order of what it took.
            key_order: KeyOrder::OneAtATime,
            fence: FenceKind::Timing,
            single_lane: false,
            parts: None,
        }
    }

    /// The order that consumers can count on, in words.
    pub(crate) fn order(&self) -> &'static str {
        match self.names.is_fifo() {
            true => "of each key",
            false => "none, as it is not FIFO",
        }
    }
}
