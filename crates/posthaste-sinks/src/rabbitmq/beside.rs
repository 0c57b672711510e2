//! Connections beside a lane's own, for topics in doubt.
//!
//! RabbitMQ reads no further on a channel over which it was sent a message that a quorum queue
//! without its majority cannot take: the first one of a connection, or one behind some dozens. It
//! does not tell which message that was, and no longer confirms those before it. So the topics of
//! the oldest messages without a confirm are in doubt from then on. A topic in doubt goes over a
//! connection beside, where one topic is tried at a time: a topic that is confirmed there is
//! cleared, and one over which that connection gets stuck is the one at fault. Nobody else waits.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    future::{pending, poll_fn},
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::{Duration, Instant},
};

use posthaste_engine::{Decision, LaneSpec, Outcome, SinkError, WaitingRecord};

use super::{
    Endpoint,
    fault::BrokerFault,
    limits::SizeLimit,
    message::{Channel, OutgoingRecord},
};
use crate::amqp::{self, Confirmation};

/// Of one lane at the most; topics share them.
const CONNECTIONS: usize = 4;
/// How long a topic is in doubt after it was stuck, or may have been.
const DOUBTED_FOR: Duration = Duration::from_secs(300);
/// So many topics are in doubt for one connection that got stuck: more are healthy ones.
const SUSPECTS_MAX: usize = 8;

struct Doubt {
    since: Instant,
    /// A connection got stuck over it alone: a confirm does not clear it, since its messages may go
    /// to several queues.
    is_proven: bool,
}

/// The topics in doubt; shared by all lanes of a sink.
#[derive(Default)]
pub(super) struct Doubts(Mutex<HashMap<String, Doubt>>);

impl Doubts {
    fn topics(&self) -> MutexGuard<'_, HashMap<String, Doubt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, topic: &str, is_proven: bool) {
        let since = Instant::now();
        let mut topics = self.topics();
        topics.retain(|_, doubt| doubt.since.elapsed() < DOUBTED_FOR);
        let doubt = topics.entry(topic.to_owned());
        let doubt = doubt.or_insert(Doubt { since, is_proven });
        doubt.since = since;
        doubt.is_proven |= is_proven;
    }

    /// A connection got stuck over one of these, of which the oldest come first.
    pub(super) fn suspect(&self, messages: &[OutgoingRecord]) {
        let mut suspects = BTreeSet::new();
        for message in messages {
            if suspects.len() < SUSPECTS_MAX && suspects.insert(message.record.topic()) {
                self.add(message.record.topic(), false);
            }
        }
    }

    fn clear(&self, topic: &str) {
        let mut topics = self.topics();
        if topics.get(topic).is_some_and(|doubt| !doubt.is_proven) {
            topics.remove(topic);
        }
    }

    fn hold(&self, topic: &str) -> bool {
        let topics = self.topics();
        let doubt = topics.get(topic);
        doubt.is_some_and(|doubt| doubt.since.elapsed() < DOUBTED_FOR)
    }
}

type Opening = dyn Future<Output = Result<Channel, SinkError>> + Send;

struct Open {
    channel: Channel,
    /// The topics that were answered here. They stay as long as the connection does: messages that
    /// were given up may still be ahead of theirs.
    answered: HashSet<String>,
    /// The one topic that is sent and was not answered here.
    tried: Option<String>,
}

impl Open {
    /// Whether a message of this topic may be sent here now; none if it has nothing to do here.
    fn take(&mut self, topic: &str, is_in_doubt: bool) -> Option<bool> {
        if self.answered.contains(topic) {
            return Some(true);
        }
        is_in_doubt.then(|| *self.tried.get_or_insert_with(|| topic.to_owned()) == *topic)
    }

    fn was_answered(&mut self, topic: &str) {
        if !self.answered.contains(topic) {
            self.answered.insert(topic.to_owned());
        }
        self.tried.take_if(|tried| tried == topic);
    }
}

/// One of the connections beside.
enum Beside {
    Closed,
    Opening(Pin<Box<Opening>>),
    Open(Box<Open>),
    Ended(Box<Open>, amqp::Error),
    /// It failed so. Until then its bytes may still arrive, and what is to go over it is put off,
    /// as well as these topics, which went over it without being in doubt.
    Resting(String, Instant, HashSet<String>),
    /// The broker allows no other connection, or is away as a whole. Until then the lane's own is
    /// used.
    Refused(Instant),
}

impl Beside {
    /// Waits until there is something to do. Cancel safe.
    async fn changed(&mut self) {
        match self {
            Self::Opening(opening) => {
                *self = match opening.await {
                    Ok(channel) => Self::Open(Box::new(Open {
                        channel,
                        answered: HashSet::new(),
                        tried: None,
                    })),
                    Err(error) => {
                        tracing::warn!(%error, "no other connection for a topic in doubt");
                        Self::Refused(Instant::now() + DOUBTED_FOR)
                    }
                };
            }
            Self::Open(open) => {
                if let Err(error) = open.channel.turn().await
                    && let Self::Open(open) = std::mem::replace(self, Self::Closed)
                {
                    *self = Self::Ended(open, error);
                }
            }
            Self::Closed | Self::Ended(..) | Self::Resting(..) | Self::Refused(_) => {
                pending().await
            }
        }
    }
}

/// The connections beside a lane's own.
pub(super) struct BesideConnections {
    endpoint: Arc<Endpoint>,
    spec: LaneSpec,
    doubts: Arc<Doubts>,
    connections: [Beside; CONNECTIONS],
    /// One was ever asked for.
    is_used: bool,
    hasher: RandomState,
}

impl BesideConnections {
    pub(super) fn new(endpoint: &Arc<Endpoint>, spec: LaneSpec, doubts: &Arc<Doubts>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            spec,
            doubts: Arc::clone(doubts),
            connections: std::array::from_fn(|_| Beside::Closed),
            is_used: false,
            hasher: RandomState::new(),
        }
    }

    pub(super) fn doubts(&self) -> &Doubts {
        &self.doubts
    }

    /// The connection for a record whose topic is in doubt, or why it is not sent now.
    pub(super) fn of(&mut self, item: &WaitingRecord) -> Option<Result<&mut Channel, Decision>> {
        let topic = item.record.topic();
        let is_in_doubt = self.doubts.hold(topic);
        if !is_in_doubt && !self.is_used {
            return None;
        }
        let number = self.hasher.hash_one(topic) % CONNECTIONS as u64;
        let connection = &mut self.connections[usize::try_from(number).unwrap_or_default()];
        if let Beside::Resting(_, until, _) | Beside::Refused(until) = connection
            && *until <= Instant::now()
        {
            *connection = Beside::Closed;
        }
        if is_in_doubt && matches!(connection, Beside::Closed) {
            self.is_used = true;
            let (endpoint, spec) = (Arc::clone(&self.endpoint), self.spec.clone());
            *connection = Beside::Opening(Box::pin(async move { endpoint.open(&spec).await }));
        }
        // A record that waited here would have less time for its confirm.
        let later = |why: &str| Some(Err(Decision::Answered(Outcome::later(why))));
        let put_off = |why: &str| {
            later(&format!(
                "a connection got stuck, perhaps over its topic: a quorum queue may be without the \
                 majority of its nodes; {why}"
            ))
        };
        match connection {
            Beside::Open(open) => match open.take(topic, is_in_doubt)? {
                true => Some(Ok(&mut open.channel)),
                false => put_off("another such topic is tried first"),
            },
            Beside::Resting(reason, _, topics) if is_in_doubt || topics.contains(topic) => {
                later(reason)
            }
            _ if !is_in_doubt => None,
            Beside::Refused(_) => None,
            _ => put_off("another connection is opened for it"),
        }
    }

    /// How messages ended since the last call.
    pub(super) fn take_confirmed(&mut self) -> Vec<(OutgoingRecord, Confirmation)> {
        let mut all = Vec::new();
        for connection in &mut self.connections {
            let (Beside::Open(open) | Beside::Ended(open, _)) = connection else {
                continue;
            };
            for (message, confirmation) in open.channel.take_confirmed() {
                let topic = message.record.topic();
                if let Confirmation::None(_) = confirmation {
                    self.doubts.add(topic, true);
                } else {
                    open.was_answered(topic);
                    self.doubts.clear(topic);
                }
                all.push((message, confirmation));
            }
        }
        all
    }

    /// The messages without an answer of the connections that have ended, with their outcomes.
    pub(super) fn take_ended(&mut self, limit: &SizeLimit) -> Vec<(OutgoingRecord, Outcome)> {
        // As long as a lane's bytes may arrive by default.
        let rest = (self.spec.publish_timeout / 2).max(self.spec.lease / 6);
        let mut all = Vec::new();
        for connection in &mut self.connections {
            let (open, error) = match std::mem::replace(connection, Beside::Closed) {
                Beside::Ended(open, error) => (*open, error),
                other => {
                    *connection = other;
                    continue;
                }
            };
            let fault = BrokerFault::from(error);
            limit.learn(&fault);
            let until = Instant::now() + rest;
            *connection = Beside::Resting(fault.reason.clone(), until, open.answered);
            let messages: Vec<_> = open.channel.into_unconfirmed().collect();
            let oldest = || Some(messages.first()?.record.topic().to_owned());
            let stuck = open.tried.or_else(oldest).filter(|_| fault.is_stuck);
            if let Some(topic) = &stuck {
                self.doubts.add(topic, true);
            }
            for message in messages {
                let put_off = match stuck.as_deref() == Some(message.record.topic()) {
                    true => Outcome::silent,
                    false => Outcome::later,
                };
                let outcome = fault.outcome_of(&message.record);
                let outcome = outcome.unwrap_or_else(|| put_off(&fault.reason));
                all.push((message, outcome));
            }
        }
        all
    }

    /// Destroys all. Answers the messages without an answer.
    pub(super) fn into_unconfirmed(self) -> impl Iterator<Item = OutgoingRecord> {
        let channels = self.connections.into_iter().filter_map(|of| match of {
            Beside::Open(open) | Beside::Ended(open, _) => Some(open.channel),
            _ => None,
        });
        channels.flat_map(Channel::into_unconfirmed)
    }

    /// Takes leave of the broker.
    pub(super) async fn goodbye(&mut self) {
        for connection in &mut self.connections {
            if let Beside::Open(open) = connection {
                open.channel.goodbye().await;
            }
        }
    }

    /// Waits until there is something to do. Cancel safe.
    pub(super) async fn changed(&mut self) {
        let is_busy = |of: &&mut Beside| matches!(of, Beside::Opening(_) | Beside::Open(_));
        let busy = self.connections.iter_mut().filter(is_busy);
        let mut turns: Vec<_> = busy.map(|of| Box::pin(of.changed())).collect();
        poll_fn(|context| {
            let is_ready = turns
                .iter_mut()
                .any(|of| of.as_mut().poll(context).is_ready());
            if is_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}
