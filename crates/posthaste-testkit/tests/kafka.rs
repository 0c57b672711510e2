//! The Kafka brokers of the kit.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use posthaste_testkit::servers::kafka::{KafkaMessage, KafkaServer};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn producer(bootstrap: &str) -> BaseProducer {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .create()
        .unwrap()
}

fn send(bootstrap: &str, topic: &str, values: &[&str]) {
    let producer = producer(bootstrap);
    for value in values {
        producer
            .send(BaseRecord::<str, str>::to(topic).key("k").payload(value))
            .unwrap();
    }
    producer.flush(LIMIT).unwrap();
}

fn text(message: &KafkaMessage) -> &str {
    std::str::from_utf8(message.value.as_deref().unwrap()).unwrap()
}

fn values(messages: &[KafkaMessage]) -> Vec<&str> {
    messages.iter().map(text).collect()
}

#[test]
fn a_record_comes_back_as_it_was_sent() {
    let server = KafkaServer::shared();
    server.create_topic("whole", 3, &[("max.message.bytes", "2000000")]);
    let headers = OwnedHeaders::new()
        .insert(Header {
            key: "b",
            value: Some("1"),
        })
        .insert(Header {
            key: "a",
            value: Some(""),
        })
        .insert(Header {
            key: "b",
            value: None::<&str>,
        });
    let producer = producer(&server.bootstrap());
    let record = BaseRecord::<[u8], [u8]>::to("whole").partition(2);
    let full = record
        .key(b"")
        .payload(b"\xff\x00")
        .timestamp(1_700_000_000_123);
    producer.send(full.headers(headers)).unwrap();
    producer
        .send(
            BaseRecord::<[u8], [u8]>::to("whole")
                .partition(1)
                .key(b"gone"),
        )
        .unwrap();
    producer.flush(LIMIT).unwrap();

    let read = server.consume(&["whole"]);
    assert_eq!(read.len(), 2);
    assert_eq!(
        (read[0].partition, read[0].key.as_deref()),
        (1, Some(&b"gone"[..]))
    );
    assert_eq!(read[0].value, None);
    let full = &read[1];
    assert_eq!((full.partition, full.offset), (2, 0));
    assert_eq!(full.key.as_deref(), Some(&b""[..]));
    assert_eq!(full.value.as_deref(), Some(&b"\xff\x00"[..]));
    assert_eq!(full.timestamp_ms, Some(1_700_000_000_123));
    let header = |name: &str, value: Option<&[u8]>| (name.to_owned(), value.map(Vec::from));
    assert_eq!(
        full.headers,
        [
            header("b", Some(b"1")),
            header("a", Some(b"")),
            header("b", None)
        ]
    );
    assert_eq!(full.header("b"), Some(&b"1"[..]));
    assert_eq!(server.high_watermarks("whole"), [0, 1, 1]);
}

#[test]
fn a_killed_broker_comes_back_with_its_records() {
    let server = KafkaServer::start();
    server.create_topic("kept", 2, &[]);
    send(&server.bootstrap(), "kept", &["1", "2", "3"]);
    server.kill9();
    server.start_again();
    send(&server.bootstrap(), "kept", &["4"]);
    server.stop();
    server.start_again();
    assert_eq!(values(&server.consume(&["kept"])), ["1", "2", "3", "4"]);
}
