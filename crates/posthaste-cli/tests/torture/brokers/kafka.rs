use std::{sync::Arc, time::Duration};

use posthaste_testkit::{proxy::Proxy, servers::kafka::KafkaServer};
use rdkafka::{
    ClientConfig, ClientContext, Message,
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext},
};
use uuid::Uuid;

use super::{
    Broker, Delivery, outages_and_crashes_lose_and_park_nothing, outages_lose_and_park_nothing,
};

/// The topic of the torture's events; several partitions, each with its keys.
const FACTS: &str = "facts";
const PROBES: &str = "probes";

struct Kafka(KafkaServer);

fn broker() -> Arc<dyn Broker> {
    let server = KafkaServer::builder().proxied().start();
    server.create_topic(FACTS, 4, &[]);
    server.create_topic(PROBES, 1, &[]);
    Arc::new(Kafka(server))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_kafka_lose_and_park_nothing() {
    outages_lose_and_park_nothing(broker()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_kafka_with_kills_and_crashes_lose_and_park_nothing() {
    outages_and_crashes_lose_and_park_nothing(broker()).await;
}

impl Broker for Kafka {
    fn url(&self) -> String {
        format!("kafka://{}", self.0.bootstrap())
    }

    fn proxy(&self) -> &Proxy {
        self.0.proxy()
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn kill9(&self) {
        self.0.kill9();
    }

    fn start_again(&self) {
        self.0.start_again();
    }

    fn probe(&self) -> bool {
        let producer: BaseProducer<Acknowledged> = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap())
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
        let ends = self.0.high_watermarks(FACTS);
        ends.into_iter()
            .map(|end| u64::try_from(end).unwrap())
            .sum()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let messages = self.0.consume(&[FACTS]);
        let delivery = |message: posthaste_testkit::servers::kafka::KafkaMessage| Delivery {
            key: text(message.key.as_deref().unwrap()),
            n: text(message.value.as_deref().unwrap())
                .trim_end()
                .parse()
                .unwrap(),
            id: Uuid::parse_str(&text(message.header("id").unwrap())).unwrap(),
        };
        messages.into_iter().map(delivery).collect()
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
