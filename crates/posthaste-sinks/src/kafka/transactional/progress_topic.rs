//! The progress topic: that it is there, and compacted.

use std::time::Duration;

use posthaste_engine::SinkError;
use rdkafka::{
    ClientConfig, ClientContext,
    admin::{
        AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
    },
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::KafkaError,
    types::RDKafkaErrorCode as Code,
};
use tokio::sync::oneshot;

use super::super::{
    faults::{self, ClientFault},
    options::Settings,
};

/// Of a topic that we make. Kafka's own gigabyte is compacted when it is full, and until then a
/// lane that takes over would read all of it.
const SEGMENT_BYTES: &str = "8388608";
/// More than this in one segment is refused by a check: read over a slow link, it takes minutes.
const SEGMENT_BYTES_MAX: u64 = 128 << 20;
/// Of a topic that we make: how much of it may be superseded before it is compacted.
const DIRTY_RATIO: &str = "0.1";

/// Hands the client's words to our own log.
pub(in crate::kafka) struct LogContext;

impl ClientContext for LogContext {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for LogContext {}

/// The way to treat a topic that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kafka) enum IfAbsent {
    Make,
    /// Only asks whether it could be made.
    Check,
}

/// Refuses a topic that forgets, and one that is not there and cannot be made; a check, one that is
/// slow to read, too.
///
/// # Errors
/// [`SinkError`] with the fix.
pub(in crate::kafka) async fn ensure(
    settings: &Settings,
    topic: &str,
    absent: IfAbsent,
    limit: Duration,
) -> Result<(), SinkError> {
    let place = ProgressTopic::new(settings, topic, limit)?;
    let ensured = place.ensure(absent).await;
    // Destroying the client takes longer than the answers do, and nobody waits for it.
    tokio::task::spawn_blocking(move || drop(place.admin));
    ensured
}

struct ProgressTopic<'a> {
    settings: &'a Settings,
    topic: &'a str,
    /// To be kept until its answers are there: they come from a thread that it ends when dropped.
    admin: AdminClient<LogContext>,
    limit: Duration,
}

impl<'a> ProgressTopic<'a> {
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

    async fn ensure(&self, absent: IfAbsent) -> Result<(), SinkError> {
        let mut config = self.config().await?;
        // Nothing is told of a topic that is not there, nor of one that we may not look at.
        if cleanup_policy(&config).is_none() {
            if !self.exists().await? {
                return self.create(absent).await;
            }
            config = self.config().await?;
        }
        self.expect_compacted(&config)?;
        match absent {
            // A running relay goes on with large segments: it takes over late, and not never.
            IfAbsent::Make => Ok(()),
            IfAbsent::Check => self.expect_small_segments(&config),
        }
    }

    async fn config(&self) -> Result<ConfigResource, SinkError> {
        let asked = [ResourceSpecifier::Topic(self.topic)];
        let answers = self.admin.describe_configs(&asked, &self.options()).await;
        let mut answers = answers.map_err(|error| self.fault(error.into()))?;
        match answers.pop() {
            Some(Ok(config)) => Ok(config),
            Some(Err(code)) => Err(self.fault(fault(code))),
            None => Err(self.fault(fault(Code::Unknown))),
        }
    }

    fn expect_compacted(&self, config: &ConfigResource) -> Result<(), SinkError> {
        match cleanup_policy(config) {
            Some("compact") => Ok(()),
            Some(other) => Err(self.misconfigured(format!(
                "has cleanup.policy={other}, and would forget what was delivered: set it to \
                 `compact`, or name another topic with `progress_topic=`"
            ))),
            // The client library hides the broker's refusal to tell.
            None => Err(self.fault(ClientFault {
                code: Code::TopicAuthorizationFailed,
                words: "the broker does not tell its cleanup.policy".to_owned(),
            })),
        }
    }

    fn expect_small_segments(&self, config: &ConfigResource) -> Result<(), SinkError> {
        let bytes = config.get("segment.bytes");
        let bytes = bytes.and_then(|bytes| bytes.value.as_deref()?.parse::<u64>().ok());
        match bytes {
            Some(bytes) if bytes > SEGMENT_BYTES_MAX => Err(self.misconfigured(format!(
                "has segment.bytes={bytes}: so much is kept before it is compacted, and read by \
                 each relay that takes over; {}",
                smaller_segments(self.topic)
            ))),
            _ => Ok(()),
        }
    }

    fn misconfigured(&self, reason: String) -> SinkError {
        SinkError::Misconfigured {
            target: self.settings.target.clone(),
            reason: format!("progress topic `{}` {reason}", self.topic),
        }
    }

    async fn exists(&self) -> Result<bool, SinkError> {
        // A producer's look would make the topic where brokers make topics on demand.
        let consumer: BaseConsumer<LogContext> =
            client(&self.settings.reader("read_uncommitted"), self.settings)?;
        let (topic, limit) = (self.topic.to_owned(), self.limit);
        let look = move |consumer: &BaseConsumer<LogContext>| {
            let metadata = consumer.fetch_metadata(Some(&topic), limit)?;
            let error = metadata.topics().first().map(|topic| topic.error());
            Ok::<Option<Code>, KafkaError>(match error {
                None => Some(Code::UnknownTopicOrPartition),
                Some(error) => error.map(Code::from),
            })
        };
        let (tell, told) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            // The lane may have been given up meanwhile. Told before the client is destroyed.
            let _ = tell.send(look(&consumer));
        });
        let looked = told.await.map_err(|_| SinkError::Bug {
            target: self.settings.target.clone(),
            reason: "the task that looks for the progress topic broke down".to_owned(),
        })?;
        match looked.map_err(|error| self.fault(error.into()))? {
            None | Some(Code::LeaderNotAvailable) => Ok(true),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(false),
            Some(code) => Err(self.fault(fault(code))),
        }
    }

    async fn create(&self, absent: IfAbsent) -> Result<(), SinkError> {
        // A new owner waits for open transactions in each partition, so that more than one
        // buys nothing. Replicas as the cluster has them by default.
        let new = NewTopic::new(self.topic, 1, TopicReplication::Fixed(-1))
            .set("cleanup.policy", "compact")
            .set("segment.bytes", SEGMENT_BYTES)
            .set("min.cleanable.dirty.ratio", DIRTY_RATIO);
        let options = self.options().validate_only(absent == IfAbsent::Check);
        let answers = self.admin.create_topics([&new], &options).await;
        let mut answers = answers.map_err(|error| self.fault(error.into()))?;
        match answers.pop() {
            // Another relay was faster.
            Some(Ok(_) | Err((_, Code::TopicAlreadyExists))) => {
                if absent == IfAbsent::Make {
                    tracing::info!(topic = self.topic, "made the progress topic");
                }
                Ok(())
            }
            Some(Err((_, code))) => Err(self.fault(fault(code))),
            None => Err(self.fault(fault(Code::Unknown))),
        }
    }

    fn fault(&self, fault: ClientFault) -> SinkError {
        error(self.settings, self.topic, &fault)
    }
}

fn cleanup_policy(config: &ConfigResource) -> Option<&str> {
    config.get("cleanup.policy")?.value.as_deref()
}

/// How a topic that has grown large is made small.
pub(super) fn smaller_segments(topic: &str) -> String {
    format!(
        "make them smaller with `kafka-configs.sh --alter --topic {topic} --add-config \
         segment.bytes={SEGMENT_BYTES},min.cleanable.dirty.ratio={DIRTY_RATIO}`"
    )
}

/// A fault of the progress topic, with the fix.
pub(super) fn error(settings: &Settings, topic: &str, fault: &ClientFault) -> SinkError {
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
                "{words}; {make}, and allow the user READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS \
                 on it"
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

pub(super) fn fault(code: Code) -> ClientFault {
    ClientFault {
        code,
        words: code.to_string(),
    }
}

pub(in crate::kafka) fn client<C: rdkafka::config::FromClientConfigAndContext<LogContext>>(
    config: &ClientConfig,
    settings: &Settings,
) -> Result<C, SinkError> {
    C::from_config_and_context(config, LogContext).map_err(|error| SinkError::Misconfigured {
        target: settings.target.clone(),
        reason: format!("the Kafka client refuses its settings: {error}"),
    })
}
