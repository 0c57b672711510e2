//! Reads the progress topic.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use posthaste_engine::SinkError;
use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
    message::BorrowedMessage,
    types::RDKafkaErrorCode as Code,
};

use super::{
    super::{faults::ClientFault, options::Settings},
    progress_topic::{LogContext, client, error, fault, smaller_segments},
};

/// How soon the broker is asked again for what it does not know yet.
const POLL: Duration = Duration::from_millis(5);

/// Bytes that are fetched at a time at first. A fetch whose answer does not come within an attempt
/// was in vain: then the next one is smaller.
const FETCH_BYTES_MAX: usize = 1 << 20;
const FETCH_BYTES_MIN: usize = 16 << 10;
/// For how long what was read counts. A broker forgets after a day that a key was deleted, and a
/// reader that comes later never learns of it.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// The records that an attempt out of time has read, for the next one to go on from. Shared by the
/// lanes of a sink.
#[derive(Default)]
pub(in crate::kafka) struct Unfinished(Mutex<Option<Read>>);

impl Unfinished {
    fn kept(&self) -> MutexGuard<'_, Option<Read>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, prefix: &str) -> Read {
        let kept = self.kept().take();
        let kept = kept.filter(|read| read.prefix == prefix && read.began.elapsed() < KEPT_FOR);
        kept.unwrap_or_else(|| Read::new(prefix))
    }
}

/// The records that were read so far.
struct Read {
    prefix: String,
    began: Instant,
    /// The latest value of each key in each partition.
    latest: HashMap<(i32, Vec<u8>), Vec<u8>>,
    /// The offset behind the last record of each partition.
    next: HashMap<i32, i64>,
    bytes: usize,
    fetch_bytes: usize,
}

impl Read {
    fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            began: Instant::now(),
            latest: HashMap::new(),
            next: HashMap::new(),
            bytes: 0,
            fetch_bytes: FETCH_BYTES_MAX,
        }
    }

    fn take_in(&mut self, record: &BorrowedMessage<'_>) {
        let key = record.key().unwrap_or_default();
        let value = record.payload();
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.next.insert(record.partition(), record.offset() + 1);
        if key.starts_with(self.prefix.as_bytes()) {
            let key = (record.partition(), key.to_vec());
            match value {
                Some(value) => drop(self.latest.insert(key, value.to_vec())),
                None => drop(self.latest.remove(&key)),
            }
        }
    }
}

/// The content of the topic.
pub(super) struct FoundProgress {
    /// How many partitions it has.
    pub(super) partitions: usize,
    /// The latest record of each key in each partition.
    pub(super) records: Vec<Pair>,
}

/// Key and value.
type Pair = (Vec<u8>, Vec<u8>);

/// Reads the latest records whose keys begin with `prefix`, to the end of the topic as it is now,
/// and tells what it found. Goes on where an attempt before it ran out of time. Blocks.
///
/// Told are [`SinkError`]s when the end was not reached within the limit, or the topic is missing.
pub(super) fn read(
    settings: &Settings,
    topic: &str,
    prefix: &str,
    limit: Duration,
    unfinished: &Unfinished,
    tell: impl FnOnce(Result<FoundProgress, SinkError>),
) {
    let mut so_far = unfinished.take(prefix);
    let before = so_far.bytes;
    let reading = match Reading::new(settings, topic, limit, so_far.fetch_bytes) {
        Ok(reading) => reading,
        Err(error) => return tell(Err(error)),
    };
    // Destroying the readers takes longer than reading does, and nobody waits for it.
    let stop = match reading.found(&mut so_far) {
        Ok(partitions) => {
            let latest = so_far.latest.into_iter();
            let records = latest.map(|((_, key), value)| (key, value)).collect();
            return tell(Ok(FoundProgress {
                partitions,
                records,
            }));
        }
        Err(stop) => stop,
    };
    let late = match stop {
        ReadStop::Fault(fault) => return tell(Err(error(settings, topic, &fault))),
        ReadStop::Late(doing) => format!("{doing} took longer than {limit:?}"),
        ReadStop::Unread { left } => {
            if so_far.bytes == before {
                so_far.fetch_bytes = (so_far.fetch_bytes / 4).max(FETCH_BYTES_MIN);
            }
            format!(
                "not read within {limit:?}: {} KB are read, and {left} records at the most are \
                 left; the next attempt goes on from there. If it comes to this again, its \
                 segments are too large: {}",
                so_far.bytes >> 10,
                smaller_segments(topic)
            )
        }
    };
    *unfinished.kept() = Some(so_far);
    tell(Err(SinkError::Unavailable {
        target: settings.target.clone(),
        reason: format!("progress topic `{topic}`: {late}"),
    }));
}

/// Why the topic was not read to its end.
enum ReadStop {
    Fault(ClientFault),
    Late(&'static str),
    /// So many offsets are left, at the most.
    Unread {
        left: i64,
    },
}

impl From<KafkaError> for ReadStop {
    fn from(error: KafkaError) -> Self {
        ClientFault::from(error).into()
    }
}

impl From<ClientFault> for ReadStop {
    fn from(fault: ClientFault) -> Self {
        match fault.code {
            Code::OperationTimedOut => Self::Late("the broker's answer"),
            _ => Self::Fault(fault),
        }
    }
}

struct Reading<'a> {
    topic: &'a str,
    until: Instant,
    committed: BaseConsumer<LogContext>,
    /// A client is told a partition's end as its isolation has it: this one, where it truly is.
    uncommitted: BaseConsumer<LogContext>,
}

impl<'a> Reading<'a> {
    fn new(
        settings: &Settings,
        topic: &'a str,
        limit: Duration,
        fetch_bytes: usize,
    ) -> Result<Self, SinkError> {
        let reader = |isolation| {
            let mut config = settings.reader(isolation);
            config.set("fetch.message.max.bytes", fetch_bytes.to_string());
            client(&config, settings)
        };
        Ok(Self {
            topic,
            until: Instant::now() + limit,
            committed: reader("read_committed")?,
            uncommitted: reader("read_uncommitted")?,
        })
    }

    /// Reads on. Answers the number of partitions.
    fn found(&self, read: &mut Read) -> Result<usize, ReadStop> {
        let mut ends = Vec::new();
        for partition in 0..self.partitions()? {
            ends.push(self.ends(&self.uncommitted, partition)?.1);
        }
        let end = |partition: i32| ends.get(usize::try_from(partition).ok()?).copied();
        let is_another =
            |(&partition, &next): (&i32, &i64)| end(partition).is_none_or(|e| e < next);
        if read.next.iter().any(is_another) {
            // It was made anew.
            *read = Read::new(&read.prefix);
        }
        let mut assigned = TopicPartitionList::new();
        let mut open = HashMap::new();
        for (partition, &end) in (0..).zip(&ends) {
            let first = self.wait_until_stable(partition, end)?;
            let next = read
                .next
                .get(&partition)
                .map_or(first, |&next| next.max(first));
            if next < end {
                assigned.add_partition_offset(self.topic, partition, Offset::Offset(next))?;
                open.insert(partition, end);
            }
        }
        self.committed.assign(&assigned)?;
        self.read_on(open, read)?;
        Ok(ends.len())
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits until the topic is known: one that was made just now is not at once.
    fn partitions(&self) -> Result<i32, ReadStop> {
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
                    missing = Some(ReadStop::Fault(fault(code)));
                    thread::sleep(POLL);
                }
                code => return Err(ReadStop::Fault(fault(code))),
            }
        }
    }

    /// The first offset and the one behind the last, as the consumer sees them.
    fn ends(
        &self,
        consumer: &BaseConsumer<LogContext>,
        partition: i32,
    ) -> Result<(i64, i64), ReadStop> {
        loop {
            match consumer.fetch_watermarks(self.topic, partition, self.left()) {
                Ok(ends) => return Ok(ends),
                Err(error) => {
                    let fault = ClientFault::from(error);
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

    /// Waits until nothing before `end` belongs to an open transaction: a consumer is given nothing
    /// behind the first open one, also of another producer. Answers the first offset.
    fn wait_until_stable(&self, partition: i32, end: i64) -> Result<i64, ReadStop> {
        let mut is_told = false;
        loop {
            match self.ends(&self.committed, partition) {
                Ok((first, stable)) if stable >= end => return Ok(first),
                Ok(_) if !self.left().is_zero() => is_told = true,
                Err(stop) if !is_told => return Err(stop),
                // A time-out means what was told before it; the client's come up to a millisecond
                // early.
                Err(stop @ ReadStop::Fault(_)) if !self.left().is_zero() => return Err(stop),
                Ok(_) | Err(_) => {
                    return Err(ReadStop::Late(
                        "waiting for other relays' open transactions",
                    ));
                }
            }
            thread::sleep(POLL);
        }
    }

    /// Reads each of these partitions up to this offset at least.
    fn read_on(&self, mut open: HashMap<i32, i64>, read: &mut Read) -> Result<(), ReadStop> {
        while !open.is_empty() {
            if self.left().is_zero() {
                let unread = |(partition, &end): (&i32, &i64)| {
                    end - read.next.get(partition).copied().unwrap_or_default()
                };
                let left = open.iter().map(unread).sum();
                return Err(ReadStop::Unread { left });
            }
            match self.committed.poll(self.left()) {
                None => {}
                Some(Ok(record)) => read.take_in(&record),
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    open.remove(&partition);
                }
                Some(Err(error)) => match error.rdkafka_error_code() {
                    Some(
                        code @ (Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition),
                    ) => {
                        return Err(ReadStop::Fault(fault(code)));
                    }
                    // Of others the client recovers by itself, or the limit ends it.
                    _ => tracing::debug!(%error, "reading progress"),
                },
            }
        }
        Ok(())
    }
}
