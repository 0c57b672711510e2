//! Publishes the records of a lane, and turns the broker's answers into outcomes.

use std::{future::pending, sync::Arc, time::Duration};

use posthaste_engine::{Cause, Decision, Outcome, RejectionKind, Unavailability, WaitingRecord};

use super::{
    fault::{BrokerFault, EventsAtFault, blocks},
    limits::SizeLimit,
    message::OutgoingRecord,
};
use crate::{
    amqp::{self, Confirmation},
    publisher::{Publisher, RecordsOf},
};

/// How long to wait after a broker asked to slow down. It does not say how long it wants.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The publisher of a lane.
pub(super) struct RabbitMqPublisher {
    /// None once the lane has ended.
    pub(super) channel: Option<amqp::ConfirmChannel<OutgoingRecord>>,
    pub(super) exchange: Arc<str>,
    pub(super) value_bytes_max: Option<u64>,
    pub(super) limit: Arc<SizeLimit>,
    /// Why the connection has just ended.
    pub(super) error: Option<amqp::Error>,
    /// Why the lane has ended, and what that means for records that are not at fault.
    pub(super) ended: Option<(BrokerFault, Outcome)>,
}

type Records = RecordsOf<RabbitMqPublisher>;

impl RabbitMqPublisher {
    /// Destroys the connection, and answers everything.
    fn end(&mut self, records: &mut Records, error: amqp::Error) {
        let fault = BrokerFault::from(error);
        if let Some(EventsAtFault::LargerThan(limit)) = fault.at_fault {
            self.limit.learn(limit);
        }
        let others = fault.outcome_of_others();
        for OutgoingRecord { slot, record } in self
            .channel
            .take()
            .into_iter()
            .flat_map(amqp::ConfirmChannel::into_unconfirmed)
        {
            let outcome = fault.outcome_of(&record);
            records.answer(slot, outcome.unwrap_or_else(|| others.clone()));
        }
        self.ended = Some((fault, others));
    }

    fn send(
        channel: &mut amqp::ConfirmChannel<OutgoingRecord>,
        limit: &SizeLimit,
        item: &WaitingRecord,
        slot: usize,
    ) -> Decision {
        if let Some(reason) = channel.blocked() {
            return Decision::Answered(throttled(blocks(reason)));
        }
        if !channel.has_room() {
            return Decision::WaitAll;
        }
        if let Some(outcome) = limit.refuses(&item.record) {
            return Decision::Answered(outcome);
        }
        let record = item.record.clone();
        match channel.publish(OutgoingRecord { slot, record }) {
            Ok(()) => Decision::Sent(()),
            Err(outcome) => Decision::Answered(outcome),
        }
    }
}

impl Publisher for RabbitMqPublisher {
    type InFlight = ();
    type Note = ();

    fn value_bytes_max(&self) -> Option<u64> {
        self.value_bytes_max
    }

    fn advance(&mut self, records: &mut Records) {
        if let Some(channel) = &mut self.channel {
            for (message, confirmation) in channel.take_confirmed() {
                records.answer(message.slot, outcome(confirmation, &self.exchange));
            }
        }
        if let Some(error) = self.error.take() {
            self.end(records, error);
        }
        if let Some((fault, others)) = &self.ended {
            return records.decide(|item, _| {
                let outcome = fault.outcome_of(&item.record);
                Decision::Answered(outcome.unwrap_or_else(|| others.clone()))
            });
        }
        if let Some(channel) = &mut self.channel {
            let limit = &self.limit;
            records.decide(|item, next| Self::send(channel, limit, item, next.slot));
        }
    }

    async fn changed(&mut self) {
        match &mut self.channel {
            Some(channel) => self.error = channel.turn().await.err(),
            None => pending().await,
        }
    }

    async fn goodbye(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.goodbye().await;
        }
    }
}

fn outcome(confirmation: Confirmation, exchange: &str) -> Outcome {
    match confirmation {
        Confirmation::Ack => Outcome::accepted(),
        Confirmation::Nack => Outcome::later(
            "the broker refused the message (basic.nack): a queue is full and rejects publishing, \
             or the queue is in trouble; see the broker's log",
        ),
        Confirmation::None(limit) => Outcome::silent(format!(
            "no confirm within {limit:?} from a broker that reads: a quorum queue is without the \
             majority of its members, or a queue is in trouble; see the broker's log"
        )),
        Confirmation::Returned { code, text } => {
            let why = match exchange {
                "" => {
                    format!("{code} {text}: no queue has the name of its topic; declare the queue")
                }
                _ => format!(
                    "{code} {text}: no queue is bound to exchange `{exchange}` for its topic as \
                     the routing key; bind one, or give the exchange an alternate exchange"
                ),
            };
            Outcome::rejected(RejectionKind::Unroutable, why)
        }
    }
}

fn throttled(reason: String) -> Outcome {
    Outcome::Unavailable(Arc::new(Unavailability {
        wait: Some(RETRY_WAIT),
        ..Unavailability::new(Cause::Throttled, reason)
    }))
}
