//! Whose fault a refusal is.

use std::time::Instant;

use posthaste_engine::{Cause, Outcome};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    super::{
        blame::{self, Accused},
        client::Client,
    },
    KafkaLane, thread_name,
};

impl KafkaLane {
    /// A refusal says nothing about whose fault it was, unless the record was sent alone.
    pub(super) fn judge(&mut self, failures: &[(usize, Code)], now: Instant) {
        if let [(at, code)] = *failures
            && self.alone
            && let Some(accused) = self.accused(at)
            && let Some(outcome) = blame::verdict_alone(&self.suspects, &accused, code, now)
        {
            return self.refused_alone(at, outcome);
        }
        let accused = failures
            .iter()
            .filter_map(|&(at, code)| Some((self.accused(at)?, code)));
        let (code, topic) = blame::accuse(&self.suspects, accused, now);
        let (cause, reason) = match blame::reason(code, &topic.into_iter().collect()) {
            Some(reason) => (Cause::LaneEnded, reason),
            None => self.trouble(code, &code.to_string()),
        };
        self.end(cause, &reason);
    }

    fn accused(&self, at: usize) -> Option<Accused<'_>> {
        let record = self.flight.get(at)?;
        Some(Accused {
            event: record.event,
            bytes: record.bytes,
            topic: self.topics.name(record.place.topic),
        })
    }

    /// The producer has ended with the refusal, and nothing else was in flight: another one goes on.
    fn refused_alone(&mut self, at: usize, outcome: Outcome) {
        let Some(record) = self.flight.remove(at) else {
            return;
        };
        self.alone = false;
        let topic = self.topics.name(record.place.topic);
        self.suspects.acquit(record.event, topic, false);
        self.ledger
            .refuse(record.ticket, record.order_key, record.batch, outcome);
        let config = self.settings.producer();
        match Client::start(&config, &self.settings.target, thread_name(self.number)) {
            Ok(client) => {
                self.client = client;
                self.topics.forget_producer();
            }
            Err(error) => self.end(Cause::Unknown, &error.to_string()),
        }
    }
}
