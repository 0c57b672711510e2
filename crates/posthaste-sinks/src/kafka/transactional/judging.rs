//! Whose fault it was that a transaction had no effect.

use std::{collections::BTreeSet, mem, time::Instant};

use posthaste_engine::Cause;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{
    super::{
        blame::{self, Accused},
        faults::{self, Blame, Fault},
    },
    TransactionalLane, id, place,
};

impl TransactionalLane {
    /// The transaction of a record that was sent alone had no effect, and the producer goes on.
    pub(super) fn refused_alone(
        &mut self,
        failures: &[(usize, Code)],
        fault: &Fault,
        now: Instant,
    ) {
        let named = self.client.shared().take_named();
        let verdict = self.accused(0).and_then(|accused| {
            let said = match failures.iter().find(|&&(at, _)| at == 0) {
                Some(&(_, code)) if is_refusal(code) => code,
                // Refused before it was sent: because of its own topic, or of the progress topic.
                _ if fault.code == Code::TopicAuthorizationFailed
                    && !named.iter().any(|name| **name == *accused.topic) =>
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
            blame::verdict_alone(&self.common.suspects, &accused, said, now)
        });
        let Some(outcome) = verdict else {
            return self.judge(failures, fault, &named, now);
        };
        self.alone = false;
        for record in mem::take(&mut self.open) {
            if let Some(topic) = record.topic {
                let topic = self.topics.name(topic);
                self.common.suspects.acquit(id(record.event), topic, false);
            }
            self.ledger.refuse(
                record.ticket,
                record.order_key,
                record.batch,
                outcome.clone(),
            );
        }
    }

    /// The transaction has ended, and the producer with it.
    pub(super) fn broken(&mut self, failures: &[(usize, Code)], fault: &Fault, now: Instant) {
        let named = self.client.shared().take_named();
        self.judge(failures, fault, &named, now);
    }

    /// Suspects those whom the refusal points at, and ends the lane.
    fn judge(
        &mut self,
        failures: &[(usize, Code)],
        fault: &Fault,
        named: &[Box<str>],
        now: Instant,
    ) {
        let sent = self
            .open
            .iter()
            .filter(|record| record.topic.is_some())
            .count();
        let of_progress = failures
            .iter()
            .find(|&&(at, code)| at >= sent && is_refusal(code));
        let is_named = named
            .iter()
            .any(|name| **name == *self.common.progress_topic);
        if of_progress.is_some() || is_named {
            let fault = Fault {
                code: of_progress.map_or(fault.code, |&(_, code)| code),
                words: fault.words.clone(),
            };
            let error = place::error(&self.common.settings, &self.common.progress_topic, &fault);
            return self.end(error.cause(), &error.to_string());
        }
        let accused = failures
            .iter()
            .filter_map(|&(at, code)| Some((self.accused(at)?, code)));
        let (mut code, topic) = blame::accuse(&self.common.suspects, accused, now);
        let mut topics: BTreeSet<&str> = topic.into_iter().collect();
        // These are said of the transaction as a whole, before anything is sent there.
        if fault.code == Code::TopicAuthorizationFailed {
            code = fault.code;
            topics = named.iter().map(|name| &**name).collect();
            self.deny(named, now);
        } else if faults::is_about_topic(fault.code) {
            code = fault.code;
            let sent = self.open.iter().filter_map(|record| record.topic);
            topics = sent.map(|topic| self.topics.name(topic)).collect();
            topics.insert(&self.common.progress_topic);
        }
        let (cause, reason) = match blame::reason(code, &topics) {
            Some(reason) => (Cause::LaneEnded, reason),
            None => self.trouble(fault),
        };
        self.end(cause, &reason);
    }

    /// A topic was refused to the transaction as a whole, before anything was sent to it.
    fn deny(&self, named: &[Box<str>], now: Instant) {
        let suspects = &self.common.suspects;
        let mut is_known = false;
        for record in &self.open {
            let Some(topic) = record.topic.map(|topic| self.topics.name(topic)) else {
                continue;
            };
            if named.iter().any(|name| **name == *topic) {
                suspects.deny(topic, now);
                is_known = true;
            }
        }
        if !is_known {
            let sent = self.open.iter().filter(|record| record.topic.is_some());
            sent.for_each(|record| suspects.suspect(id(record.event)));
        }
    }

    fn accused(&self, at: usize) -> Option<Accused<'_>> {
        let record = self.open.get(at)?;
        Some(Accused {
            event: id(record.event),
            bytes: record.bytes,
            topic: self.topics.name(record.topic?),
        })
    }

    /// Cause and words of a fault, from the client's complaint if that says more.
    pub(super) fn trouble(&self, fault: &Fault) -> (Cause, String) {
        let cause = faults::cause(fault.code);
        let (code, words) = match self.client.trouble() {
            Some(trouble) if cause == Cause::Unknown => (trouble.code, trouble.words),
            _ => (fault.code, fault.words.clone()),
        };
        (faults::cause(code), format!("{words}{}", faults::fix(code)))
    }
}

/// Whether a report says that the broker refused this very record or its topic.
fn is_refusal(code: Code) -> bool {
    matches!(faults::blame(code), Blame::Record(_) | Blame::DeniedTopic)
}
