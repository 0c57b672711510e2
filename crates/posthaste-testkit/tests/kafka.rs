//! The Kafka brokers of the kit.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use posthaste_testkit::servers::kafka::{
    Isolation, KafkaMessage, KafkaServer, SASL_USERS, SaslUser,
};
use posthaste_testkit::tls::TestCa;
use posthaste_testkit::{long_form, unique_name};
use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// How long an answer that must not come is waited for; too short could only hide a fault.
const NOTHING: Duration = Duration::from_millis(200);

/// A client's settings for a listener.
fn client(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true");
    config
}

fn tls(bootstrap: &str, ca: &TestCa) -> ClientConfig {
    let mut config = client(bootstrap);
    config
        .set("security.protocol", "ssl")
        .set("ssl.ca.location", ca.certificate_file().to_str().unwrap());
    config
}

fn login(server: &KafkaServer, ca: &TestCa, user: &SaslUser, password: &str) -> ClientConfig {
    let mut config = tls(&server.sasl_ssl(), ca);
    config
        .set("security.protocol", "sasl_ssl")
        .set("sasl.mechanism", user.mechanism)
        .set("sasl.username", user.name)
        .set("sasl.password", password)
        // With no right to write anywhere, an idempotent producer fails before it asks for a topic.
        .set("enable.idempotence", "false");
    config
}

/// The fate of the records sent, and the client's complaints.
#[derive(Clone, Default)]
struct Heard {
    outcomes: Arc<Mutex<Vec<Result<(), RDKafkaErrorCode>>>>,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl ClientContext for Heard {
    fn error(&self, _: KafkaError, reason: &str) {
        self.complaints.lock().unwrap().push(reason.to_owned());
    }
}

impl ProducerContext for Heard {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let outcome = result.as_ref().map(drop).map_err(|(error, _)| {
            let code = error.rdkafka_error_code();
            code.expect("a code for a failed delivery")
        });
        self.outcomes.lock().unwrap().push(outcome);
    }
}

/// Sends one record and returns what became of it.
fn try_send(config: &ClientConfig, topic: &str) -> Result<(), RDKafkaErrorCode> {
    let heard = Heard::default();
    let producer: BaseProducer<Heard> = config.create_with_context(heard.clone()).unwrap();
    producer
        .send(BaseRecord::<str, str>::to(topic).payload("x"))
        .unwrap();
    producer.flush(LIMIT).unwrap();
    heard.outcomes.lock().unwrap().pop().expect("an outcome")
}

/// The client's complaints until one has the text: it never stops trying to log in.
fn wait_for_complaint(config: &ClientConfig, text: &str) {
    let heard = Heard::default();
    let producer: BaseProducer<Heard> = config.create_with_context(heard.clone()).unwrap();
    let asked = std::time::Instant::now();
    loop {
        producer.poll(Duration::from_millis(20));
        let complaints = heard.complaints.lock().unwrap();
        if complaints.iter().any(|complaint| complaint.contains(text)) {
            return;
        }
        assert!(asked.elapsed() < LIMIT, "no {text:?} in {complaints:?}");
    }
}

fn send(bootstrap: &str, topic: &str, values: &[&str]) {
    let producer: BaseProducer = client(bootstrap).create().unwrap();
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
    let producer: BaseProducer = client(&server.bootstrap()).create().unwrap();
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

#[test]
fn a_paused_broker_answers_when_it_goes_on() {
    let server = KafkaServer::start();
    server.create_topic("held", 1, &[]);
    let producer: BaseProducer = client(&server.bootstrap()).create().unwrap();
    let send = |value: &str| {
        let record = BaseRecord::<str, str>::to("held").payload(value);
        producer.send(record).unwrap();
    };
    send("1");
    producer.flush(LIMIT).unwrap();
    server.pause();
    send("2");
    assert!(producer.flush(NOTHING).is_err());
    server.resume();
    producer.flush(LIMIT).unwrap();
    assert_eq!(values(&server.consume(&["held"])), ["1", "2"]);
    server.pause();
    server.kill9();
}

#[test]
fn topics_are_made_with_settings_removed_and_otherwise_missing() {
    let server = KafkaServer::shared();
    let (small, missing) = (unique_name("small"), unique_name("missing"));
    let config = client(&server.bootstrap());
    server.create_topic(&small, 1, &[("max.message.bytes", "100")]);
    try_send(&config, &small).unwrap();
    let large = BaseRecord::<str, [u8]>::to(&small).payload(&[0; 500]);
    let heard = Heard::default();
    let producer: BaseProducer<Heard> = config.create_with_context(heard.clone()).unwrap();
    producer.send(large).unwrap();
    producer.flush(LIMIT).unwrap();
    let outcome = heard.outcomes.lock().unwrap().pop().unwrap();
    assert_eq!(outcome, Err(RDKafkaErrorCode::MessageSizeTooLarge));

    server.delete_topic(&small);
    for gone in [&small, &missing] {
        let mut config = config.clone();
        config.set("topic.metadata.propagation.max.ms", "1");
        let code = try_send(&config, gone).unwrap_err();
        assert!(
            matches!(
                code,
                RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition
            ),
            "{code}"
        );
    }
}

#[test]
fn properties_override_the_kits_own() {
    let server = KafkaServer::start_with(&[
        ("auto.create.topics.enable", "true"),
        ("num.partitions", "3"),
    ]);
    send(&server.bootstrap(), "made", &["1"]);
    assert_eq!(server.high_watermarks("made").len(), 3);
}

#[test]
fn transactions_are_seen_as_the_isolation_says() {
    let server = KafkaServer::shared();
    let topic = unique_name("transactions");
    server.create_topic(&topic, 1, &[]);
    let mut config = client(&server.bootstrap());
    let producer: BaseProducer = config.set("transactional.id", &topic).create().unwrap();
    producer.init_transactions(LIMIT).unwrap();
    let transaction = |value: &str| {
        producer.begin_transaction().unwrap();
        let record = BaseRecord::<str, str>::to(&topic).payload(value);
        producer.send(record).unwrap();
        producer.flush(LIMIT).unwrap();
    };
    transaction("committed");
    producer.commit_transaction(LIMIT).unwrap();
    transaction("aborted");
    producer.abort_transaction(LIMIT).unwrap();
    let committed = || server.consume_as(&[&topic], Isolation::ReadCommitted);
    // The last offset is the abort's mark, which no consumer gets.
    assert_eq!(values(&committed()), ["committed"]);
    assert_eq!(values(&server.consume(&[&topic])), ["committed", "aborted"]);
    transaction("open");
    assert_eq!(values(&committed()), ["committed"]);
    producer.commit_transaction(LIMIT).unwrap();
    assert_eq!(values(&committed()), ["committed", "open"]);
}

#[test]
fn many_records_are_read_in_order() {
    let server = KafkaServer::shared();
    let topics = [unique_name("many-b"), unique_name("many-a")];
    let count = if long_form() { 1_000_000 } else { 50_000 };
    let mut config = client(&server.bootstrap());
    config.set("queue.buffering.max.messages", "0");
    let producer: BaseProducer = config.create().unwrap();
    for topic in &topics {
        server.create_topic(topic, 4, &[]);
        for i in 0..count / 2_i32 {
            let value = i.to_string();
            let record = BaseRecord::<str, str>::to(topic)
                .partition(i % 4)
                .payload(&value);
            producer.send(record).unwrap();
        }
    }
    producer.flush(LIMIT).unwrap();
    let read = server.consume(&[&topics[0], &topics[1]]);
    let expected = topics.iter().flat_map(|topic| {
        let partition = move |p| {
            (0..count / 2)
                .filter(move |i| i % 4 == p)
                .map(move |i| (p, i))
        };
        (0..4)
            .flat_map(partition)
            .map(move |(p, i)| (topic.as_str(), p, i.to_string()))
    });
    let whole = read
        .iter()
        .map(|m| (m.topic.as_str(), m.partition, text(m).to_owned()));
    assert!(
        whole.eq(expected),
        "{} of {count} records, or out of order",
        read.len()
    );
}

#[test]
fn everything_a_client_does_goes_through_the_proxy() {
    let server = KafkaServer::builder().proxied().start();
    server.create_topic("cut", 1, &[]);
    assert_ne!(server.bootstrap(), server.direct());
    assert_eq!(
        server.proxy().connections(),
        0,
        "the kit itself goes past it"
    );
    let producer: BaseProducer = client(&server.bootstrap()).create().unwrap();
    let send = |value: &str| {
        let record = BaseRecord::<str, str>::to("cut").payload(value);
        producer.send(record).unwrap();
    };
    send("1");
    producer.flush(LIMIT).unwrap();
    server.proxy().stall();
    send("2");
    assert!(producer.flush(NOTHING).is_err());
    assert_eq!(values(&server.consume(&["cut"])), ["1"]);
    server.proxy().refuse();
    assert!(producer.flush(NOTHING).is_err());
    server.proxy().resume();
    producer.flush(LIMIT).unwrap();
    assert_eq!(values(&server.consume(&["cut"])), ["1", "2"]);
}

#[test]
fn tls_and_logins_are_verified_and_rights_asked_for() {
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let server = KafkaServer::start_secure(&ca);
    server.create_topic("guarded", 1, &[]);
    try_send(&tls(&server.ssl(), &ca), "guarded").unwrap();
    wait_for_complaint(&tls(&server.ssl(), &stranger), "certificate verify failed");
    for user in &SASL_USERS {
        let right = login(&server, &ca, user, user.password);
        let wrong = login(&server, &ca, user, "wrong");
        wait_for_complaint(&wrong, "uthentication fail");
        let refused = Err(RDKafkaErrorCode::TopicAuthorizationFailed);
        assert_eq!(try_send(&right, "guarded"), refused, "{}", user.mechanism);
        server.allow_write(user.name, "guarded");
        assert_eq!(try_send(&right, "guarded"), Ok(()), "{}", user.mechanism);
        server.deny_write(user.name, "guarded");
        assert_eq!(try_send(&right, "guarded"), refused, "{}", user.mechanism);
        server.forget_rights(user.name, "guarded");
        assert_eq!(try_send(&right, "guarded"), refused, "{}", user.mechanism);
        server.allow_write(user.name, "guarded");
        assert_eq!(try_send(&right, "guarded"), Ok(()), "{}", user.mechanism);
    }
    assert_eq!(server.high_watermarks("guarded"), [7]);

    let elsewhere = KafkaServer::builder()
        .secure_for(&ca, &["kafka.example"])
        .start();
    wait_for_complaint(&tls(&elsewhere.ssl(), &ca), "certificate verify failed");
}
