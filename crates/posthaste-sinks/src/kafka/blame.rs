//! What refusals point at: a record, a topic, or nobody in the batch.

use std::time::Instant;

use posthaste_engine::{Cause, Outcome, RejectionKind};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    faults::{Blame, blame},
    suspects::Suspects,
    topics,
};

/// A record that was under way when something was refused.
pub(super) struct Accused<'a> {
    pub(super) event: u128,
    pub(super) bytes: usize,
    pub(super) topic: &'a str,
}

/// Notes whom refused batches point at. Answers the code that says most.
pub(super) fn accuse<'a>(
    suspects: &Suspects,
    failures: impl Iterator<Item = (Accused<'a>, Code)>,
    now: Instant,
) -> Code {
    let mut refused = Vec::new();
    let mut too_large = 0;
    let mut fault = None;
    for (record, code) in failures {
        match blame(code) {
            Blame::Record(kind) => {
                refused.push(record.event);
                if kind == RejectionKind::TooLarge {
                    too_large += record.bytes;
                }
            }
            Blame::DeniedTopic => suspects.deny(record.topic, now),
            Blame::Destination(_) => {}
        }
        if fault.is_none_or(|known| blame(known) == Blame::Destination(Cause::LaneEnded)) {
            fault = Some(code);
        }
    }
    // A topic that takes small batches only: make them smaller, and nobody is suspected. What is larger
    // than a batch goes alone.
    let shrunk = refused.len() > 1 && too_large > 0 && suspects.shrink(too_large);
    if !shrunk {
        refused.iter().for_each(|&event| suspects.suspect(event));
    }
    fault.unwrap_or(Code::Unknown)
}

/// Why a lane ends with a refusal that is about records; none when the destination is at fault.
pub(super) fn reason(code: Code) -> Option<String> {
    match blame(code) {
        Blame::Record(_) => Some(format!(
            "the broker refused a batch ({code}); to find the event at fault, its events are sent \
             again in smaller batches or alone"
        )),
        Blame::DeniedTopic => Some(format!(
            "the broker denied us a topic ({code}); the rest is sent again"
        )),
        Blame::Destination(_) => None,
    }
}

/// The verdict on a record that was refused alone; none when the destination is at fault.
pub(super) fn verdict_alone(
    suspects: &Suspects,
    record: &Accused<'_>,
    code: Code,
    now: Instant,
) -> Option<Outcome> {
    let topic = record.topic;
    match blame(code) {
        Blame::Record(RejectionKind::TooLarge) => Some(Outcome::rejected(
            RejectionKind::TooLarge,
            format!(
                "topic `{topic}`: {code} ({} bytes before compression); raise the topic's \
                 max.message.bytes, or keep the event smaller",
                record.bytes
            ),
        )),
        Blame::Record(kind) => Some(Outcome::rejected(kind, format!("topic `{topic}`: {code}"))),
        Blame::DeniedTopic => {
            suspects.deny(topic, now);
            Some(Outcome::rejected(
                RejectionKind::Denied,
                topics::denial(topic),
            ))
        }
        Blame::Destination(_) => None,
    }
}
