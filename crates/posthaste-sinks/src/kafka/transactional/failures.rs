//! Finds what is at fault when a transaction had no effect.

use std::{collections::BTreeSet, time::Instant};

use posthaste_engine::{Cause, Unavailability};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    super::{
        blame::{self, RefusedRecord},
        faults::{self, Blame, ClientFault},
    },
    Records, TransactionalPublisher, id, progress_topic,
};
use crate::publisher::InPlacePublisher as _;

impl TransactionalPublisher {
    /// The transaction of a record that was sent alone had no effect, and the producer goes on.
    pub(super) fn refused_alone(
        &mut self,
        records: &mut Records,
        failures: &[(usize, Code)],
        fault: &ClientFault,
        now: Instant,
    ) {
        let named = self.client.shared().take_named();
        let verdict = self.refused(records, 0).and_then(|refused| {
            let said = match failures.iter().find(|&&(at, _)| at == 0) {
                Some(&(_, code)) if is_refusal(code) => code,
                // Refused before it was sent: because of its own topic, or of the progress topic.
                _ if fault.code == Code::TopicAuthorizationFailed
                    && !named.iter().any(|name| **name == *refused.topic) =>
                {
                    return None;
                }
                _ if failures
                    .iter()
                    .any(|&(at, code)| at > 0 && is_refusal(code)) =>
                {
                    return None;
                }
                _ => fault.code,
            };
            blame::outcome_alone(&self.context.refusals, &refused, said, now)
        });
        let Some(outcome) = verdict else {
            return self.failed(records, failures, fault, &named, now);
        };
        self.alone = false;
        self.sent.clear();
        records.answer_all(&outcome);
    }

    /// The transaction has ended, and the producer with it.
    pub(super) fn broken(
        &mut self,
        records: &mut Records,
        failures: &[(usize, Code)],
        fault: &ClientFault,
        now: Instant,
    ) {
        let named = self.client.shared().take_named();
        self.failed(records, failures, fault, &named, now);
    }

    /// Notes the events and topics that the refusal points at, and ends the lane.
    fn failed(
        &mut self,
        records: &mut Records,
        failures: &[(usize, Code)],
        fault: &ClientFault,
        named: &[Box<str>],
        now: Instant,
    ) {
        let sent = self.sent.len();
        let of_progress = failures
            .iter()
            .find(|&&(at, code)| at >= sent && is_refusal(code));
        let is_named = named
            .iter()
            .any(|name| **name == *self.context.progress_topic);
        if of_progress.is_some() || is_named {
            let fault = ClientFault {
                code: of_progress.map_or(fault.code, |&(_, code)| code),
                words: fault.words.clone(),
            };
            let error =
                progress_topic::error(&self.context.settings, &self.context.progress_topic, &fault);
            return self.end(
                records,
                Unavailability::new(error.cause(), error.to_string()),
            );
        }
        let refused = failures
            .iter()
            .filter_map(|&(at, code)| Some((self.refused(records, at)?, code)));
        let (mut code, topic) = blame::note_refusals(&self.context.refusals, refused, now);
        let mut topics: BTreeSet<&str> = topic.into_iter().collect();
        // These are said of the transaction as a whole, before anything is sent there.
        if fault.code == Code::TopicAuthorizationFailed {
            code = fault.code;
            topics = named.iter().map(|name| &**name).collect();
            self.deny(records, named, now);
        } else if faults::is_about_topic(fault.code) {
            code = fault.code;
            let sent = records.in_flight().filter_map(|record| record.topic);
            topics = sent.map(|topic| self.topics.name(topic)).collect();
            topics.insert(&self.context.progress_topic);
        }
        let fault = match blame::why_lane_ends(code, &topics) {
            Some(reason) => Unavailability::new(Cause::LaneEnded, reason),
            None => self.trouble(fault),
        };
        self.end(records, fault);
    }

    /// A topic was refused to the transaction as a whole, before anything was sent to it.
    fn deny(&self, records: &Records, named: &[Box<str>], now: Instant) {
        let refusals = &self.context.refusals;
        let mut is_known = false;
        for record in records.in_flight() {
            let Some(topic) = record.topic.map(|topic| self.topics.name(topic)) else {
                continue;
            };
            if named.iter().any(|name| **name == *topic) {
                refusals.deny_topic(topic, now);
                is_known = true;
            }
        }
        if !is_known {
            let sent = records.in_flight().filter(|record| record.topic.is_some());
            sent.for_each(|record| refusals.add_event(id(record.event)));
        }
    }

    /// The record at this place in the open transaction.
    fn refused(&self, records: &Records, at: usize) -> Option<RefusedRecord<'_>> {
        let record = records.get(*self.sent.get(at)?)?;
        Some(RefusedRecord {
            event: id(record.event),
            bytes: record.bytes,
            topic: self.topics.name(record.topic?),
        })
    }

    /// A fault in the words of the client's complaint, if that says more.
    pub(super) fn trouble(&self, fault: &ClientFault) -> Unavailability {
        let cause = faults::cause(fault.code);
        let (code, words) = match self.client.trouble() {
            Some(trouble) if cause == Cause::Unknown => (trouble.code, trouble.words),
            _ => (fault.code, fault.words.clone()),
        };
        Unavailability::new(faults::cause(code), format!("{words}{}", faults::fix(code)))
    }
}

/// Whether a report says that the broker refused this very record or its topic.
fn is_refusal(code: Code) -> bool {
    matches!(faults::blame(code), Blame::Record(_) | Blame::DeniedTopic)
}
