//! The kinds of simulated brokers, and of what is bad to them.

use posthaste_engine::KeyOrder;

use crate::listed::listed;

listed! {
    /// The kind of a broker.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        /// Kafka with an idempotent producer: a gap in the sequence numbers is fatal to the lane;
        /// only time fences.
        KafkaIdempotent,
        /// Kafka with transactions: producer epochs fence, and the ids of what was accepted are
        /// committed with it.
        KafkaTransactional,
        /// RabbitMQ: confirms come in any order, a message may be refused alone; only time fences.
        RabbitMq,
        /// Acknowledges before it has flushed (NATS, Redis by default), and suppresses repeated ids
        /// within a window.
        Forgetful,
        /// Compares the lane's token with the newest of each key's slot.
        Token,
        /// One file: one lane at a time, held by a lock.
        File,
    }
}

impl Kind {
    /// Whether an aborted lane's bytes cannot arrive once the next one has taken over.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, Self::KafkaTransactional | Self::Token | Self::File)
    }

    pub(crate) fn key_order(self) -> KeyOrder {
        match self {
            Self::RabbitMq | Self::Forgetful => KeyOrder::OneAtATime,
            _ => KeyOrder::Pipelined,
        }
    }
}

/// A broker's answer to a bad key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadKey {
    /// It refuses every event.
    Refused,
    /// It ends the connection over one event, and does not tell over which.
    EndsTheConnection,
    /// It hangs over one event: nothing on that connection is answered any more.
    HangsTheConnection,
}

impl BadKey {
    pub(crate) const ALL: [Self; 3] = [
        Self::Refused,
        Self::EndsTheConnection,
        Self::HangsTheConnection,
    ];
}
