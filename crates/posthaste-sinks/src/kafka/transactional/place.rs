//! The progress topic: that it is there and compacted, and what it says.

use std::{
    collections::{HashMap, HashSet},
    thread,
    time::{Duration, Instant},
};

use posthaste_engine::SinkError;
use rdkafka::{
    ClientConfig, ClientContext, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::KafkaError,
    types::RDKafkaErrorCode as Code,
};

use super::super::{
    faults::{self, Fault},
    options::Settings,
};

/// Of a topic that we make. Kafka's own gigabyte is compacted when it is full, and until then a lane that
/// takes over would read all of it.
const SEGMENT_BYTES: &str = "8388608";
/// Of a topic that we make: how much of it may be superseded before it is compacted.
const DIRTY_RATIO: &str = "0.1";
const POLL: Duration = Duration::from_millis(5);

/// What the topic says.
pub(super) struct Found {
    /// How many partitions it has.
    pub(super) partitions: usize,
    /// The latest record of each key in each partition.
    pub(super) records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Hands the client's words to our own log.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Quiet {}

/// Makes the topic unless it is there, and refuses one that forgets.
///
/// # Errors
/// [`SinkError`] with the fix.
pub(super) async fn ensure(
    settings: &Settings,
    topic: &str,
    limit: Duration,
) -> Result<(), SinkError> {
    let place = Place::new(settings, topic, limit)?;
    match place.is_compacted().await? {
        true => Ok(()),
        false => place.create(false).await,
    }
}

/// [`ensure`] without making anything.
pub(in crate::kafka) async fn check(
    settings: &Settings,
    topic: &str,
    limit: Duration,
) -> Result<(), SinkError> {
    let place = Place::new(settings, topic, limit)?;
    match place.is_compacted().await? {
        true => Ok(()),
        false => place.create(true).await,
    }
}

struct Place<'a> {
    settings: &'a Settings,
    topic: &'a str,
    /// To be kept until its answers are there: they come from a thread that it ends when dropped.
    admin: AdminClient<Quiet>,
    limit: Duration,
}

impl<'a> Place<'a> {
    fn new(settings: &'a Settings, topic: &'a str, limit: Duration) -> Result<Self, SinkError> {
        let admin = client(&settings.probe(), settings)?;
        Ok(Self {
            settings,
            topic,
            admin,
            limit,
        })
    }

    fn options(&self) -> AdminOptions {
        AdminOptions::new()
            .request_timeout(Some(self.limit))
            .operation_timeout(Some(self.limit))
    }

    /// False: it does not exist.
    async fn is_compacted(&self) -> Result<bool, SinkError> {
        if !self.exists().await? {
            return Ok(false);
        }
        let asked = [ResourceSpecifier::Topic(self.topic)];
        let answers = self.admin.describe_configs(&asked, &self.options()).await;
        let mut answers = answers.map_err(|error| self.fault(error.into()))?;
        let policy = match answers.pop() {
            Some(Ok(config)) => config.get("cleanup.policy").and_then(|p| p.value.clone()),
            Some(Err(code)) => return Err(self.fault(fault(code))),
            None => None,
        };
        match policy.as_deref() {
            Some("compact") => Ok(true),
            Some(other) => Err(SinkError::Misconfigured {
                target: self.settings.target.clone(),
                reason: format!(
                    "progress topic `{}` has cleanup.policy={other}, and would forget what was \
                     delivered: set it to `compact`, or name another topic with `progress_topic=`",
                    self.topic,
                ),
            }),
            // The client library hides the broker's refusal to tell.
            None => Err(self.fault(Fault {
                code: Code::TopicAuthorizationFailed,
                words: "the broker does not tell its cleanup.policy".to_owned(),
            })),
        }
    }

    async fn exists(&self) -> Result<bool, SinkError> {
        // A producer's look would make the topic where brokers make topics on demand.
        let consumer: BaseConsumer<Quiet> =
            client(&self.settings.reader("read_uncommitted"), self.settings)?;
        let (topic, limit) = (self.topic.to_owned(), self.limit);
        let look = move || {
            let metadata = consumer.fetch_metadata(Some(&topic), limit)?;
            let error = metadata.topics().first().map(|topic| topic.error());
            Ok::<Option<Code>, KafkaError>(match error {
                None => Some(Code::UnknownTopicOrPartition),
                Some(error) => error.map(Code::from),
            })
        };
        let looked = tokio::task::spawn_blocking(look).await;
        let looked = looked.map_err(|error| SinkError::Bug {
            target: self.settings.target.clone(),
            reason: format!("the task that looks for the progress topic broke down: {error}"),
        })?;
        match looked.map_err(|error| self.fault(error.into()))? {
            None | Some(Code::LeaderNotAvailable) => Ok(true),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(false),
            Some(code) => Err(self.fault(fault(code))),
        }
    }

    async fn create(&self, only_ask: bool) -> Result<(), SinkError> {
        // Whoever takes over waits for open transactions in each partition, so that more than one buys
        // nothing. Replicas as the cluster has them by default.
        let new = NewTopic::new(self.topic, 1, TopicReplication::Fixed(-1))
            .set("cleanup.policy", "compact")
            .set("segment.bytes", SEGMENT_BYTES)
            .set("min.cleanable.dirty.ratio", DIRTY_RATIO);
        let options = self.options().validate_only(only_ask);
        let answers = self.admin.create_topics([&new], &options).await;
        let mut answers = answers.map_err(|error| self.fault(error.into()))?;
        match answers.pop() {
            // Another relay was faster.
            Some(Ok(_) | Err((_, Code::TopicAlreadyExists))) => {
                if !only_ask {
                    tracing::info!(topic = self.topic, "made the progress topic");
                }
                Ok(())
            }
            Some(Err((_, code))) => Err(self.fault(fault(code))),
            None => Err(self.fault(fault(Code::Unknown))),
        }
    }

    fn fault(&self, fault: Fault) -> SinkError {
        error(self.settings, self.topic, &fault)
    }
}

/// A fault of the progress topic, with the fix.
pub(super) fn error(settings: &Settings, topic: &str, fault: &Fault) -> SinkError {
    let target = settings.target.clone();
    let words = format!("progress topic `{topic}`: {}", fault.words);
    let make = format!(
        "make it with `kafka-topics.sh --create --topic {topic} --config cleanup.policy=compact \
         --config segment.bytes={SEGMENT_BYTES}`"
    );
    match fault.code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => SinkError::Denied {
            target,
            reason: format!(
                "{words}; {make}, and allow the user READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on it"
            ),
        },
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::PolicyViolation
        | Code::InvalidReplicationFactor
        | Code::InvalidPartitions
        | Code::InvalidConfig
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature => SinkError::Misconfigured {
            target,
            reason: format!("{words}; {make}"),
        },
        code => faults::error(&target, code, &words),
    }
}

fn fault(code: Code) -> Fault {
    Fault {
        code,
        words: code.to_string(),
    }
}

fn client<C: rdkafka::config::FromClientConfigAndContext<Quiet>>(
    config: &ClientConfig,
    settings: &Settings,
) -> Result<C, SinkError> {
    C::from_config_and_context(config, Quiet).map_err(|error| SinkError::Misconfigured {
        target: settings.target.clone(),
        reason: format!("the Kafka client refuses its settings: {error}"),
    })
}

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
        Self::Fault(error.into())
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
        loop {
            let metadata = self
                .uncommitted
                .fetch_metadata(Some(self.topic), self.left())?;
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
                        return Err(Stop::Fault(fault));
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
                Err(stop) if !is_told || !self.left().is_zero() => return Err(stop),
                Ok(_) | Err(_) => {
                    return Err(Stop::Late("waiting for other relays' open transactions"));
                }
            }
            thread::sleep(POLL);
        }
    }

    fn records(
        &self,
        assigned: &TopicPartitionList,
        prefix: &str,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Stop> {
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
