//! Brokers for the tests, and what a consumer reads there.

use std::{
    fs,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use posthaste_testkit::{
    proxy::Proxy,
    servers::kafka::{KafkaMessage, KafkaServer},
    sink_suite::{SuiteEvent, WireRecord},
};
use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer as _},
};

use crate::lines;

/// A way to a broker behind a proxy of its own, used by one test at a time: a proxy that cuts, cuts
/// everybody. Starting a broker takes seconds, so tests share it, and its ways are used again.
pub(super) struct Broker {
    server: &'static KafkaServer,
    way: usize,
}

/// Ways to one broker: as many tests as run at a time, mostly.
const WAYS: usize = 4;

/// The ways that no test uses. Brokers are never dropped: the kit stops them with this process.
static IDLE: Mutex<Vec<Broker>> = Mutex::new(Vec::new());

impl Broker {
    pub(super) fn take() -> Self {
        let mut idle = idle();
        if idle.is_empty() {
            let server = KafkaServer::builder().ways(WAYS).start();
            let server: &KafkaServer = Box::leak(Box::new(server));
            idle.extend((0..WAYS).map(|way| Self { server, way }));
        }
        let taken = idle.pop();
        taken.expect("there are several")
    }

    pub(super) fn server(&self) -> &'static KafkaServer {
        self.server
    }

    /// `host:port` for clients, which come through [`proxy`](Self::proxy).
    pub(super) fn bootstrap(&self) -> String {
        let address = self.server.ways().addresses().nth(self.way);
        address.expect("the way that was asked for")
    }

    pub(super) fn proxy(&self) -> &'static Proxy {
        self.server.ways().proxy(self.way)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.proxy().resume();
        let (server, way) = (self.server, self.way);
        idle().push(Self { server, way });
    }
}

fn idle() -> MutexGuard<'static, Vec<Broker>> {
    // A start that failed has been reported; the next test shall see the reason too.
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of all topics.
pub(super) fn topics(server: &KafkaServer) -> Vec<String> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", server.direct())
        .create()
        .unwrap();
    let metadata = consumer
        .fetch_metadata(None, Duration::from_secs(60))
        .unwrap();
    let topics = metadata.topics().iter();
    topics.map(|topic| topic.name().to_owned()).collect()
}

/// Returns when the broker has made the topic in which it keeps consumers' groups: it does so for
/// the first consumer that asks for its group, which may be another test's.
pub(super) fn until_groups_are_kept(server: &KafkaServer, topic: &str) {
    let member: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", server.direct())
        .set("group.id", "posthaste")
        .create()
        .unwrap();
    loop {
        // Served meanwhile: so it asks.
        member.poll(Duration::from_millis(10));
        let metadata = member.fetch_metadata(None, Duration::from_secs(60));
        let metadata = metadata.unwrap();
        if metadata.topics().iter().any(|found| found.name() == topic) {
            return;
        }
    }
}

/// A new topic's name.
pub(super) fn fresh_topic(
    server: &KafkaServer,
    partitions: i32,
    config: &[(&str, &str)],
) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("topic-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    create_topic(server, &name, partitions, config);
    name
}

/// A topic that keeps its records: the suite's events are years old, and a broker removes what is
/// older than a topic's `retention.ms`, half a minute after its start and then every five minutes.
pub(super) fn create_topic(
    server: &KafkaServer,
    name: &str,
    partitions: i32,
    config: &[(&str, &str)],
) {
    let keep = [("retention.ms", "-1")];
    server.create_topic(name, partitions, &[config, &keep].concat());
}

/// All that the topics hold: at least what the broker says they do.
pub(super) fn consume(server: &KafkaServer, topics: &[&str]) -> Vec<KafkaMessage> {
    let offsets = topics
        .iter()
        .flat_map(|topic| server.high_watermarks(topic));
    let least = usize::try_from(offsets.sum::<i64>()).unwrap();
    let messages = server.consume(topics);
    assert!(
        messages.len() >= least,
        "{} of {least} read",
        messages.len()
    );
    messages
}

/// A message as a consumer reads it: our headers first, then the event's own.
pub(super) fn read(message: &KafkaMessage) -> SuiteEvent {
    let mut headers = message.headers.iter().peekable();
    let mut text = |name: &str| {
        let (_, value) = headers.next_if(|(found, _)| found == name)?;
        Some(String::from_utf8(value.clone()?).unwrap())
    };
    let id = text("id").expect("an id in front").parse().unwrap();
    let time = text("occurred-at").expect("a time behind it");
    let occurred_at = time.parse::<jiff::Timestamp>().unwrap().as_microsecond();
    assert_eq!(time.len(), "2000-01-01T00:00:00.000000Z".len(), "{time}");
    assert_eq!(message.timestamp_ms, Some((occurred_at / 1_000).max(1)));
    let key = message.key.clone();
    SuiteEvent {
        id,
        topic: message.topic.clone(),
        key: key.map(|key| String::from_utf8(key).unwrap()),
        kind: text("type"),
        content_type: text("content-type"),
        payload: message.value.clone(),
        occurred_at,
        correlation_id: text("correlation-id"),
        causation_id: text("causation-id"),
        tenant_id: text("tenant-id"),
        traceparent: text("traceparent"),
        tracestate: text("tracestate"),
        headers: headers
            .map(|(name, value)| {
                let value = value.clone().map(|value| String::from_utf8(value).unwrap());
                (name.clone(), value)
            })
            .collect(),
    }
}

/// The record of a message, whoever made its headers.
pub(super) fn record(message: KafkaMessage) -> WireRecord {
    let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
    let headers = message.headers.into_iter();
    let mut record = WireRecord {
        key: message.key,
        value: message.value,
        headers: headers
            .map(|(name, value)| (name, value.map(text)))
            .collect(),
        timestamp: message.timestamp_ms.map(|millis| millis * 1_000),
        partition: u32::try_from(message.partition).ok(),
        wire_id: None,
    };
    record.wire_id = record.header("id");
    if let Some(time) = record.header("occurred-at") {
        assert_eq!(
            record.timestamp,
            Some(lines::micros(&time).div_euclid(1_000) * 1_000)
        );
    }
    record
}

/// Bytes that no compression makes smaller.
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + 1);
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

/// Whether this process has a thread of that name, of 15 bytes at most.
pub(super) fn has_thread(name: &str) -> bool {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok())
        .any(|found| found.trim_end() == name)
}
