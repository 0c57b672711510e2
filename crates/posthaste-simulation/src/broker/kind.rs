//! The kinds of simulated brokers, and of what is bad to them.

use std::sync::Arc;

use posthaste_engine::{KeyOrder, Record, TopicParts};

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

    pub(crate) fn parts(self) -> Option<Arc<dyn TopicParts>> {
        match self {
            Self::KafkaIdempotent | Self::KafkaTransactional => Some(Arc::new(KafkaPartitions)),
            _ => None,
        }
    }

    /// Whether the record is for what is full while something is: half of the partitions, where
    /// there are any.
    pub(crate) fn is_full_for(self, record: &Record) -> bool {
        let part = self.parts().and_then(|parts| parts.part(record));
        part.is_none_or(|part| part < KAFKA_PARTITIONS / 2)
    }
}

const KAFKA_PARTITIONS: u32 = 4;

#[derive(Debug)]
struct KafkaPartitions;

impl TopicParts for KafkaPartitions {
    fn part(&self, record: &Record) -> Option<u32> {
        let hash = record.order_key()?;
        u32::try_from(hash % u64::from(KAFKA_PARTITIONS)).ok()
    }

    fn knows(&self, _: &str) -> bool {
        true
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
