//! Whose fault a refusal is.

use std::time::Instant;

use posthaste_engine::{Cause, Outcome, RejectionKind};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    super::{
        client::Client,
        faults::{Blame, blame},
        topics,
    },
    KafkaLane, thread_name,
};

impl KafkaLane {
    /// A refusal says nothing about whose fault it was, unless the record was sent alone.
    pub(super) fn judge(&mut self, failures: &[(usize, Code)], now: Instant) {
        if let [(at, code)] = *failures
            && self.alone
            && let Some(outcome) = self.verdict_alone(at, code, now)
        {
            return self.refused_alone(at, outcome);
        }
        let mut refused = Vec::new();
        let mut too_large = 0;
        let mut fault = None;
        for &(at, code) in failures {
            let Some(record) = self.flight.get(at) else {
                continue;
            };
            match blame(code) {
                Blame::Record(kind) => {
                    refused.push(record.event);
                    if kind == RejectionKind::TooLarge {
                        too_large += record.bytes;
                    }
                }
                Blame::DeniedTopic => {
                    let topic = self.topics.name(record.place.topic);
                    self.suspects.deny(topic, now);
                }
                Blame::Destination(_) => {}
            }
            if fault.is_none_or(|known| blame(known) == Blame::Destination(Cause::LaneEnded)) {
                fault = Some(code);
            }
        }
        // A topic that takes small batches only: make them smaller, and nobody is suspected. What is
        // larger than a batch goes alone.
        let shrunk = refused.len() > 1 && too_large > 0 && self.suspects.shrink(too_large);
        if !shrunk {
            refused
                .iter()
                .for_each(|&event| self.suspects.suspect(event));
        }
        let code = fault.unwrap_or(Code::Unknown);
        let (cause, reason) = match blame(code) {
            Blame::Record(_) => (
                Cause::LaneEnded,
                format!(
                    "the broker refused a batch ({code}); to find the event at fault, its events are \
                     sent again in smaller batches or alone"
                ),
            ),
            Blame::DeniedTopic => (
                Cause::LaneEnded,
                format!("the broker denied us a topic ({code}); the rest is sent again"),
            ),
            Blame::Destination(_) => self.trouble(code, &code.to_string()),
        };
        self.end(cause, &reason);
    }

    /// The verdict on a record that was refused alone; none when the destination is at fault.
    fn verdict_alone(&self, at: usize, code: Code, now: Instant) -> Option<Outcome> {
        let record = self.flight.get(at)?;
        let topic = self.topics.name(record.place.topic);
        match blame(code) {
            Blame::Record(RejectionKind::TooLarge) => Some(Outcome::rejected(
                RejectionKind::TooLarge,
                format!(
                    "topic `{topic}`: {code} ({} bytes before compression); raise the topic's \
                     max.message.bytes, or keep the event smaller",
                    record.bytes
                ),
            )),
            Blame::Record(kind) => {
                Some(Outcome::rejected(kind, format!("topic `{topic}`: {code}")))
            }
            Blame::DeniedTopic => {
                self.suspects.deny(topic, now);
                Some(Outcome::rejected(
                    RejectionKind::Denied,
                    topics::denial(topic),
                ))
            }
            Blame::Destination(_) => None,
        }
    }

    /// The producer has ended with the refusal, and nothing else was in flight: another one goes on.
    fn refused_alone(&mut self, at: usize, outcome: Outcome) {
        let Some(record) = self.flight.remove(at) else {
            return;
        };
        self.alone = false;
        self.turns.answered(record.turn);
        let topic = self.topics.name(record.place.topic);
        self.suspects.acquit(record.event, topic, false);
        self.refuse(record.ticket, record.order_key, outcome);
        self.batch_bytes_max = self.suspects.batch_bytes_max();
        let config = self.settings.producer(self.batch_bytes_max);
        match Client::start(&config, &self.settings.target, thread_name(self.number)) {
            Ok(client) => {
                self.client = client;
                self.topics.forget_producer();
            }
            Err(error) => self.end(Cause::Unknown, &error.to_string()),
        }
    }
}
