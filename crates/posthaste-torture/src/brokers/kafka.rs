//! Apache Kafka, one broker.

use std::{sync::Mutex, time::Duration};

use posthaste_testkit::{
    proxy::Proxy,
    servers::kafka::{Isolation, KafkaMessage, KafkaServer},
};
use rdkafka::{
    ClientConfig, ClientContext, Message,
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext},
};
use uuid::Uuid;

use super::{Broker, asks_its_server};
use crate::{database::FACTS, judge::Delivery};

const PROBES: &str = "probes";
/// Where transactions keep their progress unless told otherwise.
const PROGRESS: &str = "posthaste-progress";

/// A broker with topics for the torture's events and for probes.
pub struct Kafka {
    server: KafkaServer,
    /// The options of every address, `?` included.
    options: &'static str,
    isolation: Isolation,
    elsewhere: Mutex<Elsewhere>,
}

/// Topics beside the one of the torture's events.
#[derive(Default)]
struct Elsewhere {
    topics: Vec<String>,
    /// The messages of topics that were deleted.
    gathered: Vec<KafkaMessage>,
}

/// So that the times of records are the broker's.
const BY_THE_BROKER: (&str, &str) = ("message.timestamp.type", "LogAppendTime");

impl Kafka {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = KafkaServer::builder().proxied().ways(count).start();
        // Several partitions, each with its keys.
        server.create_topic(FACTS, 4, &[BY_THE_BROKER]);
        server.create_topic(PROBES, 1, &[]);
        Self {
            server,
            options: "",
            isolation: Isolation::ReadUncommitted,
            elsewhere: Mutex::default(),
        }
    }

    /// Delivered to, and read back, in transactions.
    pub fn transactional(mut self) -> Self {
        self.options = "?delivery=transactional";
        self.isolation = Isolation::ReadCommitted;
        self
    }

    /// The torture's events as a consumer sees them, in order for each key.
    pub fn messages(&self) -> Vec<KafkaMessage> {
        self.server.consume_as(&[FACTS], self.isolation)
    }

    /// Makes another topic that events of the torture go to.
    pub fn begin_elsewhere(&self, topic: &str) {
        self.server.create_topic(topic, 1, &[BY_THE_BROKER]);
        self.elsewhere.lock().unwrap().topics.push(topic.to_owned());
    }

    /// Deletes it when its events were read.
    pub fn delete_elsewhere(&self, topic: &str) {
        let mut elsewhere = self.elsewhere.lock().unwrap();
        let read = self.server.consume_as(&[topic], self.isolation);
        elsewhere.gathered.extend(read);
        elsewhere.topics.retain(|known| known != topic);
        self.server.delete_topic(topic);
    }

    /// Events that arrived there, as a reader sees them: under transactions, the committed ones.
    pub fn arrived_at(&self, topic: &str) -> usize {
        self.server.consume_as(&[topic], self.isolation).len()
    }

    /// Deletes the topic that progress is kept in.
    pub fn delete_progress(&self) {
        self.server.delete_topic(PROGRESS);
    }
}

impl Broker for Kafka {
    fn url(&self) -> String {
        format!("kafka://{}{}", self.server.bootstrap(), self.options)
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let ways = self.server.ways();
        let url = format!("kafka://{}{}", ways.host(), self.options);
        (url, ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        self.server.proxy()
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        let producer: BaseProducer<Acknowledged> = ClientConfig::new()
            .set("bootstrap.servers", self.server.bootstrap())
            .set("message.timeout.ms", "500")
            .create_with_context(Acknowledged::default())
            .unwrap();
        let record = BaseRecord::<(), [u8], ()>::to(PROBES).payload(b"probe");
        producer.send(record).map_err(|(error, _)| error).unwrap();
        // Its failure is the answer too.
        drop(producer.flush(Duration::from_secs(1)));
        producer
            .context()
            .0
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    fn kafka(&self) -> Option<&Kafka> {
        Some(self)
    }

    fn arrived(&self) -> u64 {
        let ends = self.server.high_watermarks(FACTS);
        ends.into_iter()
            .map(|end| u64::try_from(end).unwrap())
            .sum()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let elsewhere = self.elsewhere.lock().unwrap();
        let mut messages = elsewhere.gathered.clone();
        let topics: Vec<&str> = elsewhere.topics.iter().map(String::as_str).collect();
        messages.extend(
            self.server
                .consume_as(&[&[FACTS], &topics[..]].concat(), self.isolation),
        );
        if !topics.is_empty() {
            // A key's events stand in several topics; those of a partition keep their order.
            messages.sort_by_key(|message| message.timestamp_ms);
        }
        messages.iter().map(delivery).collect()
    }
}

/// The event of a record.
///
/// # Panics
///
/// When it is none.
pub fn delivery(message: &KafkaMessage) -> Delivery {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Delivery {
        key: text(message.key.as_deref().unwrap()),
        n: text(message.value.as_deref().unwrap())
            .trim_end()
            .parse()
            .unwrap(),
        id: Uuid::parse_str(&text(message.header("id").unwrap())).unwrap(),
    }
}

/// Whether the broker acknowledged.
#[derive(Default)]
struct Acknowledged(std::sync::atomic::AtomicBool);

impl ClientContext for Acknowledged {
    // A probe is for a broker that cannot be reached.
    fn error(&self, _error: rdkafka::error::KafkaError, _reason: &str) {}
}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &rdkafka::message::DeliveryResult<'_>, (): ()) {
        let accepted = result.as_ref().is_ok_and(|message| message.offset() >= 0);
        self.0.store(accepted, std::sync::atomic::Ordering::Relaxed);
    }
}
