//! Finds what is at fault when records are refused.

use std::time::Instant;

use posthaste_engine::{Cause, Outcome, Unavailability};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    super::{
        blame::{self, RefusedRecord},
        client::Client,
    },
    IdempotentPublisher, Records, thread_name,
};
use crate::publisher::InPlacePublisher as _;

impl IdempotentPublisher {
    /// A refusal says nothing about whose fault it was, unless the record was sent alone.
    pub(super) fn failed(
        &mut self,
        records: &mut Records,
        failures: &[(usize, Code)],
        now: Instant,
    ) {
        if let [(slot, code)] = *failures
            && self.alone
            && let Some(refused) = self.refused(records, slot)
            && let Some(outcome) = blame::outcome_alone(&self.refusals, &refused, code, now)
        {
            return self.refused_alone(records, slot, outcome);
        }
        let refused = failures
            .iter()
            .filter_map(|&(slot, code)| Some((self.refused(records, slot)?, code)));
        let (code, topic) = blame::note_refusals(&self.refusals, refused, now);
        let fault = match blame::why_lane_ends(code, &topic.into_iter().collect()) {
            Some(reason) => Unavailability::new(Cause::LaneEnded, reason),
            None => self.trouble(code, &code.to_string()),
        };
        self.end(records, fault);
    }

    fn refused(&self, records: &Records, slot: usize) -> Option<RefusedRecord<'_>> {
        let sent = records.get(slot)?;
        Some(RefusedRecord {
            event: sent.event,
            bytes: sent.bytes,
            topic: self.topics.name(sent.place.topic),
        })
    }

    /// The producer has ended with the refusal, and nothing else was in flight.
    fn refused_alone(&mut self, records: &mut Records, slot: usize, outcome: Outcome) {
        let Some(sent) = records.answer(slot, outcome) else {
            return;
        };
        self.alone = false;
        self.key_partitions.answered(sent.order_key);
        self.begin_anew(records);
    }

    /// The producer has ended, and nothing is in flight: the lane goes on with another one.
    pub(super) fn begin_anew(&mut self, records: &mut Records) {
        let config = self.settings.producer();
        match Client::start(&config, &self.settings.target, thread_name(self.number)) {
            Ok(client) => {
                self.client = client;
                self.topics.forget_producer();
            }
            Err(error) => self.end(
                records,
                Unavailability::new(Cause::Unknown, error.to_string()),
            ),
        }
    }
}
