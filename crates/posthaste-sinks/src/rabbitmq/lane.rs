//! Publishes the records of a lane, and turns the broker's answers into outcomes.

use std::{future::pending, iter, sync::Arc, time::Duration};

use posthaste_engine::{Cause, Decision, Outcome, RejectionKind, Unavailability, WaitingRecord};

use super::{
    beside::BesideConnections,
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

pub(super) type Channel = amqp::ConfirmChannel<OutgoingRecord>;

pub(super) struct Connections {
    pub(super) channel: Channel,
    pub(super) beside: BesideConnections,
}

impl Connections {
    fn open(&mut self) -> impl Iterator<Item = &mut Channel> {
        iter::once(&mut self.channel).chain(self.beside.open())
    }
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

/// Whether a message may be stuck, and what was sent behind it with it.
fn is_stuck(error: &amqp::Error) -> bool {
    matches!(error, amqp::Error::Unconfirmed { blocked: None, .. })
}

impl RabbitMqPublisher {
    /// Destroys the connections, and answers everything.
    fn end(&mut self, records: &mut Records, error: amqp::Error) {
        let is_stuck = is_stuck(&error);
        let fault = self.fault(error);
        let others = fault.outcome_of_others();
        let Some(Connections { channel, beside }) = self.connections.take() else {
            return;
        };
        let mut messages = channel.into_unconfirmed().peekable();
        if let Some(oldest) = messages.peek().filter(|_| is_stuck) {
            beside.doubt(oldest);
        }
        for OutgoingRecord { slot, record } in messages.chain(beside.into_unconfirmed()) {
            let outcome = fault.outcome_of(&record);
            records.answer(slot, outcome.unwrap_or_else(|| others.clone()));
        }
        self.ended = Some((fault, others));
    }

    /// Ends a connection beside, and puts its messages off.
    fn end_beside(&mut self, records: &mut Records, channel: Channel, error: amqp::Error) {
        let is_stuck = is_stuck(&error);
        let fault = self.fault(error);
        let mut messages = channel.into_unconfirmed().peekable();
        if let (Some(oldest), Some(Connections { beside, .. })) =
            (messages.peek(), &self.connections)
            && is_stuck
        {
            beside.doubt(oldest);
        }
        for OutgoingRecord { slot, record } in messages {
            let put_off = || match is_stuck {
                true => Outcome::silent(fault.reason.as_str()),
                false => Outcome::later(fault.reason.as_str()),
            };
            records.answer(slot, fault.outcome_of(&record).unwrap_or_else(put_off));
        }
    }

    fn fault(&self, error: amqp::Error) -> BrokerFault {
        let fault = BrokerFault::from(error);
        if let Some(EventsAtFault::LargerThan(limit)) = fault.at_fault {
            self.limit.learn(limit);
        }
        fault
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
        for channel in self.connections.iter_mut().flat_map(Connections::open) {
            for (message, confirmation) in channel.take_confirmed() {
                records.answer(message.slot, outcome(confirmation, &self.exchange));
            }
        }
        let beside = self.connections.as_mut().map(|of| of.beside.take_ended());
        for (channel, error) in beside.unwrap_or_default() {
            self.end_beside(records, *channel, error);
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
            beside.forget_failures();
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
        for channel in self.connections.iter_mut().flat_map(Connections::open) {
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
