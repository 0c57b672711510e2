//! Finds what refusals point at: a record, a topic, or none of them.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use posthaste_engine::{Cause, Outcome, RejectionKind};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    faults::{Blame, blame, is_about_topic},
    refusals::Refusals,
    topic_names,
};

/// A record that was under way when something was refused.
pub(super) struct RefusedRecord<'a> {
    pub(super) event: u128,
    pub(super) bytes: usize,
    pub(super) topic: &'a str,
}

/// Notes the events and topics that refused batches point at. Answers the code that says most, and
/// the topic that it was said of.
pub(super) fn note_refusals<'a>(
    refusals: &Refusals,
    failures: impl Iterator<Item = (RefusedRecord<'a>, Code)>,
    now: Instant,
) -> (Code, Option<&'a str>) {
    // The events of each topic, and the bytes of those that were too large.
    let mut refused: HashMap<&str, (Vec<u128>, usize)> = HashMap::new();
    let mut fault: Option<(Code, &'a str)> = None;
    for (record, code) in failures {
        match blame(code) {
            Blame::Record(kind) => {
                let (events, too_large) = refused.entry(record.topic).or_default();
                events.push(record.event);
                if kind == RejectionKind::TooLarge {
                    *too_large += record.bytes;
                }
            }
            Blame::DeniedTopic => refusals.deny_topic(record.topic, now),
            Blame::Destination(_) => {}
        }
        let says_more = |(known, _)| {
            blame(known) == Blame::Destination(Cause::LaneEnded) && !is_about_topic(known)
        };
        if fault.is_none_or(says_more) {
            fault = Some((code, record.topic));
        }
    }
    for (topic, (events, too_large)) in refused {
        // A topic that takes small batches only: smaller ones are made, and no event is noted. A
        // record larger than a batch goes alone.
        let shrunk = events.len() > 1 && too_large > 0 && refusals.shrink(topic, too_large, now);
        if !shrunk {
            events.iter().for_each(|&event| refusals.add_event(event));
        }
    }
    match fault {
        Some((code, topic)) => (code, Some(topic)),
        None => (Code::Unknown, None),
    }
}

/// Why a lane ends with a refusal that is about records or a topic; none when the destination is at
/// fault.
///
/// `topics` are those of which it may have been said.
pub(super) fn why_lane_ends(code: Code, topics: &BTreeSet<&str>) -> Option<String> {
    const NAMED_MAX: usize = 3;
    let names: Vec<&str> = topics.iter().copied().take(NAMED_MAX).collect();
    let names = names.join("`, `");
    let topic = match topics.len() {
        0 => "a topic".to_owned(),
        1 => format!("topic `{names}`"),
        count => format!(
            "one of {count} topics (`{names}`{})",
            if count > NAMED_MAX { ", …" } else { "" }
        ),
    };
    match blame(code) {
        Blame::Record(_) => Some(format!(
            "{topic}: the broker refused a batch ({code}); to find the event at fault, its events \
             are sent again in smaller batches or alone"
        )),
        Blame::DeniedTopic => Some(format!(
            "{topic}: the broker denied it to us ({code}); the rest is sent again"
        )),
        Blame::Destination(_) if is_about_topic(code) => Some(format!(
            "{topic} was deleted, or made anew with fewer partitions ({code}); it is looked up \
             again, and the rest is sent again"
        )),
        Blame::Destination(_) => None,
    }
}

/// The verdict on a record that was refused alone; none when the destination is at fault.
pub(super) fn outcome_alone(
    refusals: &Refusals,
    record: &RefusedRecord<'_>,
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
            refusals.deny_topic(topic, now);
            Some(Outcome::rejected(
                RejectionKind::Denied,
                topic_names::denial(topic),
            ))
        }
        Blame::Destination(_) => None,
    }
}
