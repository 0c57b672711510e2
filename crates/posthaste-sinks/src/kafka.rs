//! The sink that publishes to Apache Kafka, through librdkafka.
//!
//! One producer a lane, idempotent or transactional. Without transactions the broker keeps the
//! order within a partition and refuses what follows a gap there; everything else that a key's
//! order needs is the lane's: which records may be under way together, and what ends the producer.

mod batch_limits;
mod blame;
mod client;
mod connections;
mod directory;
mod faults;
mod idempotent;
mod key_partitions;
mod look_up;
mod message;
mod options;
mod refusals;
mod survey;
mod topic_names;
mod topics;
mod transactional;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo, TopicParts,
};

use crate::{address::Address, descriptors::kafka::DEDUPLICATION, publisher::InPlaceLane};
use client::Client;
use directory::Directory;
use idempotent::IdempotentPublisher;
use options::Settings;
use refusals::Refusals;
use transactional::{LaneContext, TransactionalPublisher, Unfinished};

/// How long the cluster may take to answer when a lane is opened, or a check made.
const REACH_MAX: Duration = Duration::from_millis(2_500);

/// Publishes each event to the topic that it names.
pub struct KafkaSink {
    settings: Arc<Settings>,
    refusals: Arc<Refusals>,
    directory: Arc<Directory>,
    /// With transactions.
    unfinished: Arc<Unfinished>,
}

impl KafkaSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        Ok(Self {
            settings: Arc::new(Settings::from_address(address)?),
            refusals: Arc::default(),
            directory: Arc::default(),
            unfinished: Arc::default(),
        })
    }

    /// The state that transactional lanes share; none without transactions.
    fn context(&self) -> Option<LaneContext> {
        Some(LaneContext {
            progress_topic: self.settings.progress_topic.clone()?,
            settings: Arc::clone(&self.settings),
            refusals: Arc::clone(&self.refusals),
            directory: Arc::clone(&self.directory),
            unfinished: Arc::clone(&self.unfinished),
        })
    }
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink")
            .field("target", &self.settings.target)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn info(&self) -> SinkInfo {
        let has_transactions = self.settings.progress_topic.is_some();
        SinkInfo {
            kind: "kafka",
            batch_events_max: 1_000,
            batch_bytes_max: 1 << 20,
            // The client's memory: an event costs it about a kilobyte beside its own bytes, which
            // its own limit in bytes does not count. Ten milliseconds of the fastest cluster.
            in_flight_events_max: match has_transactions {
                true => transactional::IN_FLIGHT_EVENTS_MAX,
                false => 4_000,
            },
            // Topics have limits, after compression.
            event_bytes_max: None,
            requests_max: Some(match has_transactions {
                true => 1,
                false => options::REQUESTS_MAX,
            }),
            deduplication: has_transactions.then_some(DEDUPLICATION),
            key_order: KeyOrder::Pipelined,
            fence: match has_transactions {
                true => FenceKind::Exact,
                false => FenceKind::Timing,
            },
            single_lane: false,
            parts: Some(Arc::clone(&self.directory) as Arc<dyn TopicParts>),
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let target = &self.settings.target;
        let client = Client::start(&self.settings.probe(), target, "kafka-check".to_owned())?;
        let reached = client.reach(target, REACH_MAX).await;
        let report = match &reached {
            Ok(()) => survey::survey(&client, &self.settings).await,
            Err(_) => CheckReport::default(),
        };
        client.destroy().await;
        reached?;
        if let Some(topic) = &self.settings.progress_topic {
            let absent = transactional::IfAbsent::Check;
            transactional::ensure(&self.settings, topic, absent, REACH_MAX).await?;
        }
        Ok(report)
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let limit = REACH_MAX.min(spec.publish_timeout / 2);
        if let Some(context) = self.context() {
            let publisher = TransactionalPublisher::open(context, spec, limit).await?;
            return Ok(Box::new(InPlaceLane::new(publisher)));
        }
        let (settings, refusals) = (Arc::clone(&self.settings), Arc::clone(&self.refusals));
        let directory = Arc::clone(&self.directory);
        let publisher =
            IdempotentPublisher::open(settings, refusals, directory, spec, limit).await?;
        Ok(Box::new(InPlaceLane::new(publisher)))
    }
}
