//! Kafka's bare client with the sink's own settings.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Result, ensure};
use posthaste_testkit::servers::kafka::KafkaServer;
use rdkafka::{
    ClientConfig, ClientContext,
    error::{KafkaError, RDKafkaErrorCode},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer},
};

use crate::brokers::Broker;

/// The topic of the events.
const TOPIC: &str = "orders";
const BARE: &str = "bare";
/// The topic of the writers that latency is measured with.
const ACCOUNTS: &str = "accounts";
const PARTITIONS: i32 = 4;

pub(crate) struct Kafka(KafkaServer);

impl Kafka {
    pub(crate) fn start() -> Self {
        let server = KafkaServer::start();
        for topic in [TOPIC, BARE, ACCOUNTS] {
            server.create_topic(topic, PARTITIONS, &[]);
        }
        Self(server)
    }

    fn empty(&self, topic: &str) {
        self.0.delete_topic(topic);
        self.0.create_topic(topic, PARTITIONS, &[]);
    }
}

impl Broker for Kafka {
    fn fresh_place(&self) -> String {
        self.empty(TOPIC);
        format!("kafka://{}", self.0.bootstrap())
    }

    fn bare(&self, events: u64) -> Result<()> {
        self.empty(BARE);
        let producer: ThreadedProducer<Counted> = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap())
            .set("enable.idempotence", "true")
            .set("compression.type", "lz4")
            // The sink's own defaults.
            .set("linger.ms", "1")
            .set("queue.buffering.max.messages", "5000")
            .create_with_context(Counted::default())?;
        let payload = format!("{{\"order\":1000000,\"note\":\"{}\"}}", "x".repeat(270));
        for number in 0..events {
            let key = format!("order-{}", number % 10_000);
            let header = |key, value| Header {
                key,
                value: Some(value),
            };
            // What the relay gives each of these events.
            let headers = OwnedHeaders::new_with_capacity(4)
                .insert(header("id", "0199d4f0-0000-7000-8000-000000000000"))
                .insert(header("type", "OrderPlaced"))
                .insert(header("content-type", "application/json"))
                .insert(header("occurred-at", "2026-01-01T00:00:00.000000Z"));
            let mut record = BaseRecord::to(BARE)
                .key(&key)
                .payload(&payload)
                .headers(headers);
            while let Err((error, again)) = producer.send(record) {
                let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
                ensure!(error == full, "{error}");
                std::thread::sleep(Duration::from_micros(500));
                record = again;
            }
        }
        producer.flush(Duration::from_secs(60))?;
        let accepted = producer.context().0.load(Relaxed);
        ensure!(accepted == events, "{accepted} of {events} were accepted");
        Ok(())
    }

    fn arrived(&self) -> u64 {
        let ends = self.0.high_watermarks(TOPIC).into_iter();
        ends.map(|end| u64::try_from(end).unwrap_or(0)).sum()
    }

    fn memory_mib_max(&self) -> f64 {
        96.0
    }
}

#[derive(Default)]
struct Counted(AtomicU64);

impl ClientContext for Counted {}

impl ProducerContext for Counted {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.0.fetch_add(u64::from(result.is_ok()), Relaxed);
    }
}
