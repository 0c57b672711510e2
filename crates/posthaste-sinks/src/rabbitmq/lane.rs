//! Publishes the records of a lane, and turns the broker's answers into outcomes.

use std::{future::pending, sync::Arc, time::Duration};

use posthaste_engine::{Cause, Decision, Outcome, RejectionKind, Unavailability, WaitingRecord};

use super::{
    beside::BesideConnections,
    fault::{BrokerFault, blocks},
    limits::SizeLimit,
    message::{Channel, OutgoingRecord},
};
use crate::{
    amqp::{self, Confirmation},
    publisher::{Publisher, RecordsOf},
};

/// How long to wait after a broker asked to slow down. It does not say how long it wants.
const RETRY_WAIT: Duration = Duration::from_secs(1);

pub(super) struct Connections {
    pub(super) channel: Channel,
    pub(super) beside: BesideConnections,
}

/// The publisher of a lane.
pub(super) struct RabbitMqPublisher {
    /// None once the lane has ended.
    pub(super) connections: Option<Connections>,
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
    /// Destroys the connections, and answers everything.
    fn end(&mut self, records: &mut Records, error: amqp::Error) {
        let Some(Connections { channel, beside }) = self.connections.take() else {
            return;
        };
        let fault = BrokerFault::from(error);
        self.limit.learn(&fault);
        let others = fault.outcome_of_others();
        let messages: Vec<_> = channel.into_unconfirmed().collect();
        if fault.is_stuck {
            beside.doubts().suspect(&messages);
        }
        let messages = messages.into_iter().chain(beside.into_unconfirmed());
        for OutgoingRecord { slot, record } in messages {
            let outcome = fault.outcome_of(&record);
            records.answer(slot, outcome.unwrap_or_else(|| others.clone()));
        }
        self.ended = Some((fault, others));
    }

    fn send(
        channel: &mut Channel,
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
        if let Some(Connections { channel, beside }) = &mut self.connections {
            let confirmed = channel.take_confirmed().into_iter();
            for (message, confirmation) in confirmed.chain(beside.take_confirmed()) {
                records.answer(message.slot, outcome(confirmation, &self.exchange));
            }
            for (message, outcome) in beside.take_ended(&self.limit) {
                records.answer(message.slot, outcome);
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
        if let Some(Connections { channel, beside }) = &mut self.connections {
            let limit = &self.limit;
            records.decide(|item, next| match beside.of(item) {
                None => Self::send(channel, limit, item, next.slot),
                Some(Err(decision)) => decision,
                Some(Ok(channel)) => match Self::send(channel, limit, item, next.slot) {
                    Decision::WaitAll => Decision::Wait,
                    decision => decision,
                },
            });
        }
    }

    async fn changed(&mut self) {
        match &mut self.connections {
            Some(Connections { channel, beside }) => tokio::select! {
                turned = channel.turn() => self.error = turned.err(),
                () = beside.changed() => {}
            },
            None => pending().await,
        }
    }

    async fn goodbye(&mut self) {
        if let Some(Connections { channel, beside }) = &mut self.connections {
            beside.goodbye().await;
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
