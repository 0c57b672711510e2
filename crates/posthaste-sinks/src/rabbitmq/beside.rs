//! Connections beside a lane's own, for topics in doubt.
//!
//! RabbitMQ reads no further on a channel over which it was sent a message that a quorum queue
//! without its majority cannot take: the first one of a connection, or one behind some dozens. It
//! does not tell which message that was. The topic of the oldest message without a confirm is in
//! doubt from then on, and goes over a connection beside: where that is stuck, nobody else waits.

use std::{
    collections::HashMap,
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
    message::{Channel, OutgoingRecord},
};
use crate::amqp;

/// Of one lane at the most; topics share them.
const CONNECTIONS: usize = 4;
/// How long a topic is in doubt after it was stuck.
const DOUBTED_FOR: Duration = Duration::from_secs(300);

/// The topics in doubt; shared by all lanes of a sink.
#[derive(Default)]
pub(super) struct Doubts(Mutex<HashMap<String, Instant>>);

impl Doubts {
    fn topics(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, topic: &str) {
        let mut topics = self.topics();
        topics.retain(|_, since| since.elapsed() < DOUBTED_FOR);
        topics.insert(topic.to_owned(), Instant::now());
    }

    fn hold(&self, topic: &str) -> bool {
        let topics = self.topics();
        let since = topics.get(topic);
        since.is_some_and(|since| since.elapsed() < DOUBTED_FOR)
    }
}

type Opening = dyn Future<Output = Result<Channel, SinkError>> + Send;

/// One of the connections beside.
enum Beside {
    Closed,
    Opening(Pin<Box<Opening>>),
    Open(Box<Channel>),
    Ended(Box<Channel>, amqp::Error),
    /// It failed so. Until then its bytes may still arrive, and what is to go over it is put off.
    Resting(String, Instant),
}

impl Beside {
    /// Waits until there is something to do. Cancel safe.
    async fn changed(&mut self, rest: Duration) {
        match self {
            Self::Opening(opening) => {
                *self = match opening.await {
                    Ok(channel) => Self::Open(Box::new(channel)),
                    Err(error) => Self::Resting(error.to_string(), Instant::now() + rest),
                };
            }
            Self::Open(channel) => {
                if let Err(error) = channel.turn().await
                    && let Self::Open(channel) = std::mem::replace(self, Self::Closed)
                {
                    *self = Self::Ended(channel, error);
                }
            }
            Self::Closed | Self::Ended(..) | Self::Resting(..) => pending().await,
        }
    }
}

/// The connections beside a lane's own.
pub(super) struct BesideConnections {
    endpoint: Arc<Endpoint>,
    /// Half of the lane's time: opening and the wait for a confirm come to less than all of it.
    spec: LaneSpec,
    doubts: Arc<Doubts>,
    connections: [Beside; CONNECTIONS],
    hasher: RandomState,
}

impl BesideConnections {
    pub(super) fn new(endpoint: &Arc<Endpoint>, spec: LaneSpec, doubts: &Arc<Doubts>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            spec: LaneSpec {
                publish_timeout: spec.publish_timeout / 2,
                ..spec
            },
            doubts: Arc::clone(doubts),
            connections: std::array::from_fn(|_| Beside::Closed),
            hasher: RandomState::new(),
        }
    }

    /// Destroys a connection. Answers the messages without an answer: if one is stuck, the topic of
    /// the oldest is in doubt.
    pub(super) fn doubt_oldest(
        &self,
        channel: Channel,
        fault: &BrokerFault,
    ) -> impl Iterator<Item = OutgoingRecord> + use<> {
        let mut messages = channel.into_unconfirmed().peekable();
        if let Some(oldest) = messages.peek().filter(|_| fault.is_stuck) {
            self.doubts.add(oldest.record.topic());
        }
        messages
    }

    /// The connection for a record whose topic is in doubt, or why it is not sent now.
    pub(super) fn of(&mut self, item: &WaitingRecord) -> Option<Result<&mut Channel, Decision>> {
        let topic = item.record.topic();
        if !self.doubts.hold(topic) {
            return None;
        }
        let number = self.hasher.hash_one(topic) % CONNECTIONS as u64;
        let connection = &mut self.connections[usize::try_from(number).unwrap_or_default()];
        if let Beside::Resting(_, until) = connection
            && *until <= Instant::now()
        {
            *connection = Beside::Closed;
        }
        if let Beside::Closed = connection {
            let (endpoint, spec) = (Arc::clone(&self.endpoint), self.spec.clone());
            *connection = Beside::Opening(Box::pin(async move { endpoint.open(&spec).await }));
        }
        Some(match connection {
            Beside::Open(channel) => Ok(channel),
            Beside::Resting(reason, _) => Err(Decision::Answered(Outcome::later(reason.as_str()))),
            Beside::Closed | Beside::Opening(_) | Beside::Ended(..) => Err(Decision::Wait),
        })
    }

    /// Those that are open.
    pub(super) fn open(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.connections.iter_mut().filter_map(|of| match of {
            Beside::Open(channel) => Some(&mut **channel),
            _ => None,
        })
    }

    /// Those that have ended, and why. They rest.
    pub(super) fn take_ended(&mut self) -> Vec<(Channel, BrokerFault)> {
        let mut ended = Vec::new();
        for connection in &mut self.connections {
            match std::mem::replace(connection, Beside::Closed) {
                Beside::Ended(channel, error) => {
                    let fault = BrokerFault::from(error);
                    let until = Instant::now() + self.spec.publish_timeout;
                    *connection = Beside::Resting(fault.reason.clone(), until);
                    ended.push((*channel, fault));
                }
                other => *connection = other,
            }
        }
        ended
    }

    /// Destroys all. Answers the messages without an answer.
    pub(super) fn into_unconfirmed(self) -> impl Iterator<Item = OutgoingRecord> {
        let channels = self.connections.into_iter().filter_map(|of| match of {
            Beside::Open(channel) | Beside::Ended(channel, _) => Some(channel),
            Beside::Closed | Beside::Opening(_) | Beside::Resting(..) => None,
        });
        channels.flat_map(|channel| channel.into_unconfirmed())
    }

    /// Waits until there is something to do. Cancel safe.
    pub(super) async fn changed(&mut self) {
        let is_busy = |of: &&mut Beside| !matches!(of, Beside::Closed | Beside::Resting(..));
        let busy = self.connections.iter_mut().filter(is_busy);
        let rest = self.spec.publish_timeout;
        let mut turns: Vec<_> = busy.map(|of| Box::pin(of.changed(rest))).collect();
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
