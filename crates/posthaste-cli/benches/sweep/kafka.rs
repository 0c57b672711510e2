//! Kafka's bare client with the sink's own settings, and what transactions cost.

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

use crate::{
    Plan,
    brokers::{Broker, payload},
    outbox::Outbox,
    relayed::{self, Drained},
    report::{Report, median},
};

/// The topic of the events.
pub(crate) const TOPIC: &str = "orders";
const BARE: &str = "bare";
/// The topic of the writers that latency is measured with.
const ACCOUNTS: &str = "accounts";
pub(crate) const PARTITIONS: i32 = 4;

pub(crate) struct Kafka(KafkaServer);

impl Kafka {
    pub(crate) fn start() -> Self {
        let server = KafkaServer::builder().for_speed().start();
        for topic in [TOPIC, BARE, ACCOUNTS] {
            server.create_topic(topic, PARTITIONS, &[]);
        }
        Self(server)
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.0.bootstrap()
    }

    pub(crate) fn transactional_place(&self) -> String {
        format!("{}?delivery=transactional", self.fresh_place())
    }

    fn empty(&self, topic: &str) {
        self.0.delete_topic(topic);
        self.0.create_topic(topic, PARTITIONS, &[]);
    }
}

/// Drains the same backlog with and without transactions, in turns.
pub(crate) async fn transactions(plan: &Plan, report: &mut Report, kafka: &Kafka) -> Result<()> {
    let outbox = Outbox::start().await?;
    outbox.fill(plan.events).await?;
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        let mut round = [("idempotent", f64::NAN), ("transactional", f64::NAN)];
        // Each of the two goes first in every other round.
        if number % 2 == 1 {
            round.reverse();
        }
        for (delivery, seconds) in &mut round {
            let place = format!("{}?delivery={delivery}", kafka.fresh_place());
            let drain = |name: &str, more: &[&str], events| -> Result<Drained> {
                let name = format!("{name}-{delivery}-{number}");
                let flags = [&["--destination", &name], more].concat();
                relayed::drained(outbox.relay(&place, &flags), events)
            };
            let nothing = drain("nothing", &["--start", "now"], 0)?;
            let drained = drain("all", &[], plan.events)?;
            let arrived = kafka.0.count_committed(TOPIC);
            ensure!(arrived == plan.events, "{arrived} have arrived");
            *seconds = drained.wall - nothing.wall;
            println!(
                "round {number}: {delivery} {seconds:.3} s ({:.2} CPU s, {:.0} MiB), start and \
                 stop {:.3} s",
                drained.cpu, drained.peak_mib, nothing.wall
            );
        }
        round.sort_unstable_by_key(|&(delivery, _)| delivery);
        rounds.push(round.map(|(_, seconds)| seconds));
    }
    let all = |of: fn(&[f64; 2]) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let rate = |seconds: f64| plan.events as f64 / seconds / 1_000.0;
    report.print("relay, transactional", rate(all(|r| r[1])), "k events/s");
    report.print("transactional / idempotent", all(|r| r[0] / r[1]), "");
    Ok(())
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
        let payload = payload();
        for number in 0..events {
            let key = format!("order-{}", number % 10_000);
            let header = |key, value| Header {
                key,
                value: Some(value),
            };
            // The headers that the relay gives each of these events.
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
