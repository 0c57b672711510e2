//! Publishes the records of a lane, and turns the broker's answers into outcomes.

use std::{future::pending, mem, sync::Arc, time::Duration};

use posthaste_engine::{Decision, Outcome, RejectionKind, WaitingRecord};
use tokio::time::Instant;

use super::{
    client::{Outgoing, Publishing, Qos},
    fault::{self, BrokerFault, Taken},
    message::{Content, Format},
    topic::TopicPattern,
};
use crate::publisher::{Publisher, RecordsOf};

/// Between two words on messages that the broker dropped.
const DROPPED_INTERVAL: Duration = Duration::from_secs(60);

/// Where records go, and how.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) topic: TopicPattern,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) format: Format,
    pub(super) require_subscribers: bool,
    pub(super) event_bytes_max: Option<u64>,
}

/// The publisher of a lane.
pub(super) struct MqttPublisher {
    /// None once the lane has ended.
    publishing: Option<Publishing>,
    target: Arc<Target>,
    dropped: Dropped,
    /// Why the connection has just ended.
    fault: Option<BrokerFault>,
    /// The outcome of every record once the lane has ended.
    ended: Option<Outcome>,
}

type Records = RecordsOf<MqttPublisher>;

impl MqttPublisher {
    pub(super) fn new(publishing: Publishing, target: Arc<Target>) -> Self {
        Self {
            publishing: Some(publishing),
            target,
            dropped: Dropped::default(),
            fault: None,
            ended: None,
        }
    }

    fn settle(&mut self, records: &mut Records) {
        let ended = self.publishing.as_mut().map(Publishing::take_ended);
        for (slot, ending) in ended.unwrap_or_default() {
            let topic = records.get(slot).map_or("", String::as_str);
            let outcome = match fault::outcome(&ending, topic) {
                Ok(Taken::Kept) => Outcome::accepted(),
                Ok(Taken::Dropped) if self.target.require_subscribers => {
                    fault::no_subscribers(topic)
                }
                Ok(Taken::Dropped) => {
                    self.dropped.note(topic);
                    Outcome::accepted()
                }
                Err(outcome) => outcome,
            };
            records.answer(slot, outcome);
        }
        self.dropped.tell(Instant::now());
    }
}

fn send(
    publishing: &mut Publishing,
    target: &Target,
    item: &WaitingRecord,
    slot: usize,
) -> Decision<String> {
    if !publishing.has_room() {
        return Decision::WaitAll;
    }
    let record = &item.record;
    let topic = match target.topic.name(record.topic()) {
        Ok(topic) => topic,
        Err(fault) => {
            let reason = format!("its topic makes no topic of MQTT: {fault}");
            return Decision::Answered(Outcome::rejected(RejectionKind::Invalid, reason));
        }
    };
    let content = match Content::of(record, &target.format) {
        Ok(content) => content,
        Err(outcome) => return Decision::Answered(outcome),
    };
    let published = publishing.publish(
        slot,
        &Outgoing {
            qos: target.qos,
            retain: target.retain,
            topic: &topic,
            properties: &content.properties,
            payload: &content.payload,
        },
    );
    match published {
        Ok(()) => Decision::Sent(topic),
        Err(fault) => Decision::Answered(fault::not_published(fault, &topic)),
    }
}

impl Publisher for MqttPublisher {
    /// Its topic.
    type InFlight = String;
    type Note = ();

    fn value_bytes_max(&self) -> Option<u64> {
        self.target.event_bytes_max
    }

    fn advance(&mut self, records: &mut Records) {
        self.settle(records);
        if let Some(fault) = self.fault.take() {
            // Destroys the connection.
            self.publishing = None;
            let outcome = fault.outcome();
            records.answer_all(&outcome);
            self.ended = Some(outcome);
        }
        if let Some(outcome) = &self.ended {
            return records.decide(|_, _| Decision::Answered(outcome.clone()));
        }
        if let Some(publishing) = &mut self.publishing {
            let target = &self.target;
            records.decide(|item, next| send(publishing, target, item, next.slot));
        }
    }

    async fn changed(&mut self) {
        match &mut self.publishing {
            Some(publishing) => {
                self.fault = publishing.turn().await.err().map(BrokerFault::from);
            }
            None => pending().await,
        }
    }

    async fn goodbye(&mut self) {
        if let Some(publishing) = self.publishing.take() {
            publishing.goodbye().await;
        }
    }
}

/// Accepted messages that nobody had subscribed to. The log tells of them now and then.
#[derive(Debug, Default)]
struct Dropped {
    count: u64,
    /// The topic of one of them.
    topic: String,
    told_at: Option<Instant>,
}

impl Dropped {
    fn note(&mut self, topic: &str) {
        self.count += 1;
        topic.clone_into(&mut self.topic);
    }

    fn tell(&mut self, now: Instant) {
        let is_due = self.told_at.is_none_or(|at| at + DROPPED_INTERVAL <= now);
        if self.count > 0 && is_due {
            self.told_at = Some(now);
            let events = mem::take(&mut self.count);
            tracing::warn!(
                events,
                topic = self.topic,
                "accepted and dropped: nobody had subscribed; `require_subscribers=true` waits"
            );
        }
    }
}
