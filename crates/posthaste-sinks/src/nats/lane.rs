//! Publishes the records of a lane, and turns the server's answers into outcomes.

use std::{future::pending, sync::Arc};

use posthaste_engine::{Decision, Outcome, RejectionKind, WaitingRecord};

use super::{fault::ServerFault, publishing::Publishing, subject::SubjectPattern};
use crate::publisher::{Publisher, RecordsOf};

/// Where records go.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) subject: SubjectPattern,
    /// The stream that must take them; none: any.
    pub(super) stream: Option<String>,
}

/// The publisher of a lane.
pub(super) struct NatsPublisher {
    /// None once the lane has ended.
    publishing: Option<Publishing>,
    target: Arc<Target>,
    /// Why the connection has just ended.
    fault: Option<ServerFault>,
    /// The outcome of every record once the lane has ended.
    ended: Option<Outcome>,
}

type Records = RecordsOf<NatsPublisher>;

impl NatsPublisher {
    pub(super) fn new(publishing: Publishing, target: Arc<Target>) -> Self {
        Self {
            publishing: Some(publishing),
            target,
            fault: None,
            ended: None,
        }
    }

    fn send(
        publishing: &mut Publishing,
        target: &Target,
        item: &WaitingRecord,
        slot: usize,
    ) -> Decision {
        if !publishing.has_room() {
            return Decision::WaitAll;
        }
        let record = &item.record;
        let subject = match target.subject.subject(record.topic()) {
            Ok(subject) => subject,
            Err(fault) => {
                let reason = format!("its topic makes no subject to publish to: {fault}");
                return Decision::Answered(Outcome::rejected(RejectionKind::Invalid, reason));
            }
        };
        match publishing.publish(slot, record, subject, target.stream.as_deref()) {
            Ok(()) => Decision::Sent(()),
            Err(outcome) => Decision::Answered(outcome),
        }
    }
}

impl Publisher for NatsPublisher {
    type InFlight = ();
    type Note = ();

    fn advance(&mut self, records: &mut Records) {
        if let Some(publishing) = &mut self.publishing {
            for (sent, answer) in publishing.take_ended() {
                records.answer(sent.slot, answer.outcome(&sent.subject));
            }
        }
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
            records.decide(|item, next| Self::send(publishing, target, item, next.slot));
        }
    }

    async fn changed(&mut self) {
        match &mut self.publishing {
            Some(publishing) => self.fault = publishing.turn().await.err(),
            None => pending().await,
        }
    }
}
