//! What the progress topic says.

use std::{
    collections::{HashMap, HashSet},
    thread,
    time::{Duration, Instant},
};

use posthaste_engine::SinkError;
use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
    types::RDKafkaErrorCode as Code,
};

use super::{
    super::{faults::Fault, options::Settings},
    place::{Quiet, client, error, fault},
};

/// How soon the broker is asked again for what it does not know yet.
const POLL: Duration = Duration::from_millis(5);

/// What the topic says.
pub(super) struct Found {
    /// How many partitions it has.
    pub(super) partitions: usize,
    /// The latest record of each key in each partition.
    pub(super) records: Vec<Pair>,
}

/// Key and value.
type Pair = (Vec<u8>, Vec<u8>);

/// Reads the latest records whose keys begin with `prefix`, to the end of the topic as it is now, and tells
/// what it found. Blocks.
///
/// Told are [`SinkError`]s when the end was not reached within the limit, or the topic is missing.
pub(super) fn read(
    settings: &Settings,
    topic: &str,
    prefix: &str,
    limit: Duration,
    tell: impl FnOnce(Result<Found, SinkError>),
) {
    match Reading::new(settings, topic, limit) {
        Err(error) => tell(Err(error)),
        // Destroying the readers takes longer than reading does, and nobody waits for it.
        Ok(reading) => tell(reading.found(prefix).map_err(|stop| match stop {
            Stop::Fault(fault) => error(settings, topic, &fault),
            Stop::Late(doing) => SinkError::Unavailable {
                target: settings.target.clone(),
                reason: format!("progress topic `{topic}`: {doing} took longer than {limit:?}"),
            },
        })),
    }
}

/// Why the topic was not read to its end.
enum Stop {
    Fault(Fault),
    Late(&'static str),
}

impl From<KafkaError> for Stop {
    fn from(error: KafkaError) -> Self {
        Fault::from(error).into()
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault.code {
            Code::OperationTimedOut => Self::Late("the broker's answer"),
            _ => Self::Fault(fault),
        }
    }
}

struct Reading<'a> {
    topic: &'a str,
    until: Instant,
    committed: BaseConsumer<Quiet>,
    /// A client is told a partition's end as its isolation has it: this one, where it truly is.
    uncommitted: BaseConsumer<Quiet>,
}

impl<'a> Reading<'a> {
    fn new(settings: &Settings, topic: &'a str, limit: Duration) -> Result<Self, SinkError> {
        Ok(Self {
            topic,
            until: Instant::now() + limit,
            committed: client(&settings.reader("read_committed"), settings)?,
            uncommitted: client(&settings.reader("read_uncommitted"), settings)?,
        })
    }

    fn found(&self, prefix: &str) -> Result<Found, Stop> {
        let mut ends = Vec::new();
        for partition in 0..self.partitions()? {
            ends.push(self.ends(&self.uncommitted, partition)?.1);
        }
        let mut assigned = TopicPartitionList::new();
        for (partition, &end) in (0..).zip(&ends) {
            if self.wait_until_stable(partition, end)? < end {
                assigned.add_partition_offset(self.topic, partition, Offset::Beginning)?;
            }
        }
        Ok(Found {
            partitions: ends.len(),
            records: self.records(&assigned, prefix)?,
        })
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits until the topic is known: one that was made just now is not at once.
    fn partitions(&self) -> Result<i32, Stop> {
        let mut missing = None;
        loop {
            let metadata = match self
                .uncommitted
                .fetch_metadata(Some(self.topic), self.left())
            {
                Ok(metadata) => metadata,
                // Out of time with the answer known.
                Err(error) => return Err(missing.unwrap_or_else(|| error.into())),
            };
            let topic = metadata.topics().first();
            let code = match topic.and_then(|topic| topic.error()) {
                Some(code) => code.into(),
                None => match topic.map_or(0, |topic| topic.partitions().len()) {
                    0 => Code::UnknownTopicOrPartition,
                    count => return Ok(i32::try_from(count).unwrap_or(i32::MAX)),
                },
            };
            match code {
                Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::LeaderNotAvailable
                    if !self.left().is_zero() =>
                {
                    missing = Some(Stop::Fault(fault(code)));
                    thread::sleep(POLL);
                }
                code => return Err(Stop::Fault(fault(code))),
            }
        }
    }

    /// The first offset and the one behind the last, as the consumer sees them.
    fn ends(&self, consumer: &BaseConsumer<Quiet>, partition: i32) -> Result<(i64, i64), Stop> {
        loop {
            match consumer.fetch_watermarks(self.topic, partition, self.left()) {
                Ok(ends) => return Ok(ends),
                Err(error) => {
                    let fault = Fault::from(error);
                    let is_new = matches!(
                        fault.code,
                        Code::UnknownTopicOrPartition
                            | Code::UnknownPartition
                            | Code::LeaderNotAvailable
                            | Code::NotLeaderForPartition
                    );
                    if !is_new || self.left().is_zero() {
                        return Err(fault.into());
                    }
                    thread::sleep(POLL);
                }
            }
        }
    }

    /// Waits until nothing before `end` belongs to an open transaction: what a consumer is given ends in
    /// front of the first one, whoever's it is. Answers the first offset.
    fn wait_until_stable(&self, partition: i32, end: i64) -> Result<i64, Stop> {
        let mut is_told = false;
        loop {
            match self.ends(&self.committed, partition) {
                Ok((first, stable)) if stable >= end => return Ok(first),
                Ok(_) if !self.left().is_zero() => is_told = true,
                Err(stop) if !is_told => return Err(stop),
                // A time-out means what was told before it; the client's come up to a millisecond early.
                Err(stop @ Stop::Fault(_)) if !self.left().is_zero() => return Err(stop),
                Ok(_) | Err(_) => {
                    return Err(Stop::Late("waiting for other relays' open transactions"));
                }
            }
            thread::sleep(POLL);
        }
    }

    fn records(&self, assigned: &TopicPartitionList, prefix: &str) -> Result<Vec<Pair>, Stop> {
        self.committed.assign(assigned)?;
        let assigned = assigned.elements();
        let mut open: HashSet<i32> = assigned.iter().map(|element| element.partition()).collect();
        let mut latest: HashMap<(i32, Vec<u8>), Vec<u8>> = HashMap::new();
        while !open.is_empty() {
            if self.left().is_zero() {
                return Err(Stop::Late("reading"));
            }
            match self.committed.poll(self.left()) {
                None => {}
                Some(Ok(record)) => {
                    let key = record.key().unwrap_or_default();
                    if key.starts_with(prefix.as_bytes()) {
                        let key = (record.partition(), key.to_vec());
                        match record.payload() {
                            Some(value) => drop(latest.insert(key, value.to_vec())),
                            None => drop(latest.remove(&key)),
                        }
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    open.remove(&partition);
                }
                Some(Err(error)) => match error.rdkafka_error_code() {
                    Some(
                        code @ (Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition),
                    ) => {
                        return Err(Stop::Fault(fault(code)));
                    }
                    // Of others the client recovers by itself, or the limit ends it.
                    _ => tracing::debug!(%error, "reading progress"),
                },
            }
        }
        Ok(latest
            .into_iter()
            .map(|((_, key), value)| (key, value))
            .collect())
    }
}
