//! Reads topics back, as any consumer would see them.

use super::KafkaServer;
use super::admin::{partition_count, watermarks};
use super::waiting::LIMIT;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);

/// A record as its topic holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaMessage {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
    /// The record's offset in its partition.
    pub offset: i64,
    /// The key; empty is not the same as none.
    pub key: Option<Vec<u8>>,
    /// The value; none is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers in order, repeated names included; a value may be none.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// The record's time in milliseconds since 1970; none if it has none.
    pub timestamp_ms: Option<i64>,
}

impl KafkaMessage {
    /// The value of the first header with this name, if there is one and it has a value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(header, _)| header == name)?;
        value.as_deref()
    }
}

/// The transactions that a consumer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Every record, those of open and aborted transactions too.
    ReadUncommitted,
    /// Records outside of transactions and of committed ones, up to the first open transaction.
    ReadCommitted,
}

impl KafkaServer {
    /// All records of the topics from the beginning to where they end now: topic by topic in the
    /// order given, in it partition by partition, in that in the order of offsets.
    ///
    /// # Panics
    ///
    /// When a topic does not exist, or the broker gives nothing for a minute.
    #[must_use]
    pub fn consume(&self, topics: &[&str]) -> Vec<KafkaMessage> {
        self.consume_as(topics, Isolation::ReadUncommitted)
    }

    /// [`Self::consume`] with a choice of isolation.
    ///
    /// # Panics
    ///
    /// As [`Self::consume`].
    #[must_use]
    pub fn consume_as(&self, topics: &[&str], isolation: Isolation) -> Vec<KafkaMessage> {
        let read = |topic: &&str| self.read_topic(topic, isolation);
        topics.iter().flat_map(read).collect()
    }

    /// How many records of a topic are committed, from the beginning to where it ends now.
    ///
    /// # Panics
    ///
    /// As [`Self::consume`].
    #[must_use]
    pub fn count_committed(&self, topic: &str) -> u64 {
        self.settle_transactions();
        let mut count = 0;
        self.read_each(topic, Isolation::ReadCommitted, |_| count += 1);
        count
    }

    fn read_topic(&self, topic: &str, isolation: Isolation) -> Vec<KafkaMessage> {
        let mut messages = Vec::new();
        self.read_each(topic, isolation, |record| messages.push(owned(record)));
        messages.sort_by_key(|message| (message.partition, message.offset));
        messages
    }

    /// A consumer a topic: the client tells of a partition's end without naming its topic.
    fn read_each(
        &self,
        topic: &str,
        isolation: Isolation,
        mut each: impl FnMut(&BorrowedMessage<'_>),
    ) {
        let level = match isolation {
            Isolation::ReadUncommitted => "read_uncommitted",
            Isolation::ReadCommitted => "read_committed",
        };
        let consumer = self.consumer(&[
            ("isolation.level", level),
            // Records that a consumer never sees (a transaction's marks, those of an aborted one)
            // may be a partition's last, so that no record's offset tells that the end is reached.
            ("enable.partition.eof", "true"),
        ]);
        let mut left = assign_from_beginning(&consumer, topic);
        let mut heard = Instant::now();
        while !left.is_empty() {
            let polled = consumer.poll(POLL);
            if let Some(Ok(_)) = polled {
                heard = Instant::now();
            }
            assert!(
                heard.elapsed() < LIMIT,
                "Kafka gave nothing of {topic} for {LIMIT:?}; not yet read are {left:?}"
            );
            match polled {
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    left.remove(&partition);
                }
                // Of other errors the client recovers by itself.
                None | Some(Err(_)) => {}
                Some(Ok(record)) => {
                    let Some(offsets) = left.get_mut(&record.partition()) else {
                        continue;
                    };
                    // Out of the range: either new since the call, or read again after a fault.
                    if offsets.contains(&record.offset()) {
                        offsets.start = record.offset() + 1;
                        each(&record);
                    }
                    if record.offset() + 1 >= offsets.end {
                        left.remove(&record.partition());
                    }
                }
            }
        }
    }
}

/// Assigns the partitions that hold records and returns the offsets that each has now.
fn assign_from_beginning(consumer: &BaseConsumer, topic: &str) -> BTreeMap<i32, Range<i64>> {
    let mut left = BTreeMap::new();
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partition_count(consumer, topic) {
        let (first, end) = watermarks(consumer, topic, partition);
        if first < end {
            left.insert(partition, first..end);
            assignment
                .add_partition_offset(topic, partition, Offset::Beginning)
                .expect("an offset to begin at");
        }
    }
    consumer.assign(&assignment).expect("assign partitions");
    left
}

fn owned(record: &BorrowedMessage<'_>) -> KafkaMessage {
    let headers = record.headers().map(|headers| {
        let owned =
            |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(Vec::from));
        headers.iter().map(owned).collect()
    });
    KafkaMessage {
        topic: record.topic().to_owned(),
        partition: record.partition(),
        offset: record.offset(),
        key: record.key().map(Vec::from),
        value: record.payload().map(Vec::from),
        headers: headers.unwrap_or_default(),
        timestamp_ms: record.timestamp().to_millis(),
    }
}
