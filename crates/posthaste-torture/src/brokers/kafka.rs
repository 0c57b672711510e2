//! Apache Kafka, one broker.

use std::time::Duration;

use posthaste_testkit::{
    proxy::Proxy,
    servers::kafka::{Isolation, KafkaMessage, KafkaServer},
};
use rdkafka::{
    ClientConfig, ClientContext, Message,
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext},
};
use uuid::Uuid;

use super::Broker;
use crate::judge::Delivery;

/// The topic of the torture's events; several partitions, each with its keys.
const FACTS: &str = "facts";
const PROBES: &str = "probes";

/// A broker with topics for the torture's events and for probes.
pub struct Kafka {
    server: KafkaServer,
    /// What stands behind the `?` of every address.
    options: &'static str,
    isolation: Isolation,
}

impl Kafka {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = KafkaServer::builder().proxied().ways(count).start();
        // So that the times of records are the broker's.
        server.create_topic(FACTS, 4, &[("message.timestamp.type", "LogAppendTime")]);
        server.create_topic(PROBES, 1, &[]);
        Self {
            server,
            options: "",
            isolation: Isolation::ReadUncommitted,
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
}

impl Broker for Kafka {
    fn url(&self) -> String {
        format!("kafka://{}{}", self.server.bootstrap(), self.options)
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let proxy = &self.server.ways()[relay];
        let url = format!("kafka://127.0.0.1:{}{}", proxy.port(), self.options);
        (url, proxy)
    }

    fn proxy(&self) -> &Proxy {
        self.server.proxy()
    }

    fn stop(&self) {
        self.server.stop();
    }

    fn kill9(&self) {
        self.server.kill9();
    }

    fn start_again(&self) {
        self.server.start_again();
    }

    fn pause(&self) {
        self.server.pause();
    }

    fn resume(&self) {
        self.server.resume();
    }

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

    fn arrived(&self) -> u64 {
        let ends = self.server.high_watermarks(FACTS);
        ends.into_iter()
            .map(|end| u64::try_from(end).unwrap())
            .sum()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.messages().iter().map(delivery).collect()
    }
}

/// What a record of the torture says.
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
    // What cannot be reached is what a probe is for.
    fn error(&self, _error: rdkafka::error::KafkaError, _reason: &str) {}
}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &rdkafka::message::DeliveryResult<'_>, (): ()) {
        let accepted = result.as_ref().is_ok_and(|message| message.offset() >= 0);
        self.0.store(accepted, std::sync::atomic::Ordering::Relaxed);
    }
}
