//! Sends the records of a lane, and turns the broker's answers into outcomes.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use posthaste_engine::{Cause, Decision, Outcome, RejectionKind, WaitingRecord};
use tokio::time::{Instant, sleep_until};

use super::{
    address_name::AddressPattern,
    client::{End, Room, Session},
    fault::{self, Blame, BrokerFault, Refusal, Told},
    message::{self, MessageOptions},
};
use crate::publisher::{Publisher, RecordsOf};

/// Where records go, and as what.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) addresses: AddressPattern,
    /// The kind that the broker is told to expect.
    pub(super) kind: Option<&'static str>,
    pub(super) options: MessageOptions,
}

impl Target {
    /// Whether each topic has an address of its own, whose fault is its own then.
    pub(super) fn is_own(&self) -> bool {
        self.addresses.only_address().is_none()
    }
}

/// The publisher of a lane.
pub(super) struct AmqpPublisher {
    /// None once the lane has ended.
    session: Option<Session>,
    target: Arc<Target>,
    /// How long a record may wait for credit.
    credit_limit: Duration,
    /// When the first record has waited for so long.
    credit_due: Option<Instant>,
    /// Why the connection has just ended.
    fault: Option<BrokerFault>,
    /// The outcome of every record once the lane has ended.
    ended: Option<Outcome>,
}

/// A record that waits.
#[derive(Debug, Default)]
pub(super) struct Note {
    address: Option<Arc<str>>,
    since: Option<Instant>,
}

type Records = RecordsOf<AmqpPublisher>;

impl AmqpPublisher {
    pub(super) fn new(session: Session, target: Arc<Target>, credit_limit: Duration) -> Self {
        Self {
            session: Some(session),
            target,
            credit_limit,
            credit_due: None,
            fault: None,
            ended: None,
        }
    }

    /// Answers the messages that have ended. Answers the addresses whose links did, with the
    /// outcome of what waits for them.
    fn settle(&mut self, records: &mut Records) -> HashMap<Arc<str>, Outcome> {
        let (Some(session), target) = (&mut self.session, &self.target) else {
            return HashMap::new();
        };
        let is_own = target.is_own();
        let mut struck = HashSet::new();
        for (slot, end) in session.take_ended() {
            let address = records.get(slot).map(Arc::clone).unwrap_or_default();
            let is_of_link = matches!(end, End::LinkEnded { .. });
            records.answer(slot, outcome(end, &address, is_own));
            if is_of_link {
                struck.insert(address);
            }
        }
        let ended = session.take_ended_links().into_iter();
        let ended = ended.filter_map(|(address, why)| {
            let refusal = Refusal::of(&why, Told::Link);
            let refusal = match refusal.blame {
                // Of a message that was on it: records that wait are not at fault.
                Blame::Event(_) if struck.contains(&address) => return None,
                Blame::Event(_) => refusal.of_address(),
                Blame::Place(_) | Blame::Service(_) => refusal,
            };
            let outcome = refusal.outcome(&address, is_own);
            Some((address, outcome))
        });
        ended.collect()
    }

    fn decide(
        &mut self,
        ended: &HashMap<Arc<str>, Outcome>,
        item: &mut WaitingRecord<Note>,
        slot: usize,
        now: Instant,
    ) -> Decision<Arc<str>> {
        let Some(session) = &mut self.session else {
            return Decision::WaitAll;
        };
        if !session.has_room() {
            return Decision::WaitAll;
        }
        let address = match address_of(item, &self.target.addresses) {
            Ok(address) => address,
            Err(reason) => {
                return Decision::Answered(Outcome::rejected(RejectionKind::Invalid, reason));
            }
        };
        if let Some(outcome) = ended.get(&address) {
            return Decision::Answered(outcome.clone());
        }
        let (handle, message_bytes_max) = match session.room(&address) {
            Room::Yes {
                handle,
                message_bytes_max,
            } => (handle, message_bytes_max),
            Room::No { sent } => {
                // A link that sends now and then is slow, and not stuck.
                let since = *item.note.since.get_or_insert(now);
                let due = sent.map_or(since, |sent| sent.max(since)) + self.credit_limit;
                if due <= now {
                    let refusal = Refusal::no_credit(self.credit_limit);
                    return Decision::Answered(refusal.outcome(&address, self.target.is_own()));
                }
                self.credit_due = Some(self.credit_due.map_or(due, |first| first.min(due)));
                return Decision::Wait;
            }
        };
        let bytes = match message::encode(&item.record, self.target.options) {
            Ok(bytes) => bytes,
            Err(outcome) => return Decision::Answered(outcome),
        };
        if let Some(limit) = message_bytes_max
            && bytes.len() as u64 > limit
        {
            return Decision::Answered(too_large(bytes.len(), limit, &address));
        }
        session.send(slot, handle, bytes);
        Decision::Sent(address)
    }
}

/// The address of a record, made once however often it is looked at.
fn address_of(
    item: &mut WaitingRecord<Note>,
    addresses: &AddressPattern,
) -> Result<Arc<str>, &'static str> {
    let address = match item.note.address.take() {
        Some(address) => address,
        None => addresses.address(item.record.topic())?.into(),
    };
    Ok(Arc::clone(item.note.address.insert(address)))
}

fn outcome(end: End, address: &str, is_own: bool) -> Outcome {
    match end {
        End::State(state) => fault::outcome(&state, address, is_own),
        End::LinkEnded { why, is_alone } => {
            let refusal = Refusal::of(&why, Told::Link);
            match refusal.blame {
                // Nobody knows which one it was.
                Blame::Event(_) if !is_alone => {
                    Outcome::unavailable(Cause::Unknown, refusal.reason)
                }
                _ => refusal.outcome(address, is_own),
            }
        }
        End::Silence { limit, was_read } => {
            let reason = format!(
                "address `{address}`: no outcome within {limit:?}; the broker is slow, or in \
                 trouble: see its log"
            );
            match was_read {
                true => Outcome::silent(reason),
                false => Outcome::unavailable(Cause::Unknown, reason),
            }
        }
    }
}

fn too_large(bytes: usize, limit: u64, address: &str) -> Outcome {
    let reason = format!(
        "a message of {bytes} bytes with its properties, over the {limit} that address \
         `{address}` takes (its max-message-size); raise it, and start the relay again, which is \
         told when a link begins"
    );
    Outcome::rejected(RejectionKind::TooLarge, reason)
}

impl Publisher for AmqpPublisher {
    /// Its address.
    type InFlight = Arc<str>;
    type Note = Note;

    fn advance(&mut self, records: &mut Records) {
        let ended = self.settle(records);
        if let Some(BrokerFault(fault)) = self.fault.take() {
            // Destroys the connection.
            self.session = None;
            let outcome = Outcome::Unavailable(Arc::new(fault));
            records.answer_all(&outcome);
            self.ended = Some(outcome);
        }
        if let Some(outcome) = &self.ended {
            return records.decide(|_, _| Decision::Answered(outcome.clone()));
        }
        self.credit_due = None;
        let now = Instant::now();
        records.decide(|item, next| self.decide(&ended, item, next.slot, now));
    }

    async fn changed(&mut self) {
        let Some(session) = &mut self.session else {
            return pending().await;
        };
        let turned = async {
            match self.credit_due {
                Some(due) => tokio::select! {
                    turned = session.turn() => turned,
                    () = sleep_until(due) => Ok(()),
                },
                None => session.turn().await,
            }
        };
        self.fault = turned.await.err().map(BrokerFault::from);
    }

    async fn goodbye(&mut self) {
        if let Some(session) = &mut self.session {
            session.goodbye().await;
        }
    }
}
