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

use super::{Endpoint, lane::Channel, message::OutgoingRecord};
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
    /// It could not be opened. What waits for it is put off, and then it is tried again.
    Failed(String),
    Ended(Box<Channel>, amqp::Error),
}

impl Beside {
    /// Waits until there is something to do. Cancel safe.
    async fn changed(&mut self) {
        match self {
            Self::Opening(opening) => {
                *self = match opening.await {
                    Ok(channel) => Self::Open(Box::new(channel)),
                    Err(error) => Self::Failed(error.to_string()),
                };
            }
            Self::Open(channel) => {
                if let Err(error) = channel.turn().await
                    && let Self::Open(channel) = std::mem::replace(self, Self::Closed)
                {
                    *self = Self::Ended(channel, error);
                }
            }
            Self::Closed | Self::Failed(_) | Self::Ended(..) => pending().await,
        }
    }
}

/// The connections beside a lane's own.
pub(super) struct BesideConnections {
    endpoint: Arc<Endpoint>,
    spec: LaneSpec,
    doubts: Arc<Doubts>,
    connections: [Beside; CONNECTIONS],
    hasher: RandomState,
}

impl BesideConnections {
    pub(super) fn new(endpoint: &Arc<Endpoint>, spec: LaneSpec, doubts: &Arc<Doubts>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            spec,
            doubts: Arc::clone(doubts),
            connections: std::array::from_fn(|_| Beside::Closed),
            hasher: RandomState::new(),
        }
    }

    /// The topic of this message is in doubt from now on.
    pub(super) fn doubt(&self, message: &OutgoingRecord) {
        self.doubts.add(message.record.topic());
    }

    /// The connection for a record whose topic is in doubt, or why it is not sent now.
    pub(super) fn of(&mut self, item: &WaitingRecord) -> Option<Result<&mut Channel, Decision>> {
        let topic = item.record.topic();
        if !self.doubts.hold(topic) {
            return None;
        }
        let number = self.hasher.hash_one(topic) % CONNECTIONS as u64;
        let connection = &mut self.connections[number as usize];
        if let Beside::Closed = connection {
            let (endpoint, spec) = (Arc::clone(&self.endpoint), self.spec.clone());
            *connection = Beside::Opening(Box::pin(async move { endpoint.open(&spec).await }));
        }
        Some(match connection {
            Beside::Open(channel) => Ok(channel),
            Beside::Failed(reason) => Err(Decision::Answered(Outcome::later(reason.as_str()))),
            Beside::Closed | Beside::Opening(_) | Beside::Ended(..) => Err(Decision::Wait),
        })
    }

    /// All that waited for a connection that could not be opened was answered.
    pub(super) fn forget_failures(&mut self) {
        for connection in &mut self.connections {
            if let Beside::Failed(_) = connection {
                *connection = Beside::Closed;
            }
        }
    }

    /// Those that are open.
    pub(super) fn open(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.connections.iter_mut().filter_map(|of| match of {
            Beside::Open(channel) => Some(&mut **channel),
            _ => None,
        })
    }

    /// Those that have ended, and why.
    pub(super) fn take_ended(&mut self) -> Vec<(Box<Channel>, amqp::Error)> {
        let mut ended = Vec::new();
        for connection in &mut self.connections {
            match std::mem::replace(connection, Beside::Closed) {
                Beside::Ended(channel, error) => ended.push((channel, error)),
                other => *connection = other,
            }
        }
        ended
    }

    /// Destroys all, and answers the messages without an answer.
    pub(super) fn into_unconfirmed(self) -> impl Iterator<Item = OutgoingRecord> {
        let channels = self.connections.into_iter().filter_map(|of| match of {
            Beside::Open(channel) | Beside::Ended(channel, _) => Some(channel),
            Beside::Closed | Beside::Opening(_) | Beside::Failed(_) => None,
        });
        channels.flat_map(|channel| channel.into_unconfirmed())
    }

    /// Waits until there is something to do. Cancel safe.
    pub(super) async fn changed(&mut self) {
        let is_closed = |of: &Beside| matches!(of, Beside::Closed);
        if self.connections.iter().all(is_closed) {
            return pending().await;
        }
        let connections = self.connections.iter_mut();
        let mut turns: Vec<_> = connections.map(|of| Box::pin(of.changed())).collect();
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
