//! The sink `kafka` against the real broker: its fixture, and what only it promises.

mod broken;
mod brokers;
mod driving;
mod outcomes;
mod progress;
mod renamed;
mod replicas;
mod secure;
mod topics;
mod transactional;

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::kafka::{Isolation, KafkaMessage},
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};

use brokers::Broker;
use renamed::{Names, Renamed};
use tokio::runtime::Builder;

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;

pub(crate) fn rows() -> Vec<Row> {
    let offers = |expected| Expected {
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::TooLarge),
        partitions: true,
        ..expected
    };
    vec![
        Row {
            expected: Expected {
                receipts: true,
                ..offers(crate::expected("kafka"))
            },
            fixture,
        },
        Row {
            expected: Expected {
                fenced_by_successor: true,
                ..offers(crate::expected("kafka-transactional"))
            },
            fixture: transactional_fixture,
        },
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all.extend(secure::trials());
    all.extend(topics::trials());
    all.extend(progress::trials());
    all.extend(replicas::trials());
    all.extend(transactional::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(format!("kafka::{name}"), Builder::new_current_thread, test)
}

/// A sink on topics of its own, by a way to a broker that nobody else uses meanwhile.
struct KafkaFixture {
    broker: Arc<Broker>,
    names: Arc<Names>,
    sink: Arc<dyn Sink>,
    isolation: Isolation,
}

fn fixture() -> Box<dyn Fixture> {
    fixture_with(|_| String::new(), Isolation::ReadUncommitted)
}

fn transactional_fixture() -> Box<dyn Fixture> {
    let options = |names: &Names| {
        let progress = names.own("progress");
        format!("?delivery=transactional&progress_topic={progress}")
    };
    fixture_with(options, Isolation::ReadCommitted)
}

fn fixture_with(options: fn(&Names) -> String, isolation: Isolation) -> Box<dyn Fixture> {
    let broker = Arc::new(Broker::take());
    let names = Arc::new(Names::new());
    let (bootstrap, options) = (broker.bootstrap(), options(&names));
    let sink = open(&format!("kafka://{bootstrap}{options}")).unwrap();
    let making = Arc::clone(&broker);
    let make = move |topic: &str| {
        let limit = EVENT_BYTES_MAX.to_string();
        let config = [("max.message.bytes", limit.as_str())];
        brokers::create_topic(making.server(), topic, 3, &config);
    };
    names.add("suite", &make);
    Box::new(KafkaFixture {
        sink: Arc::new(Renamed::new(sink, Arc::clone(&names), Arc::new(make))),
        broker,
        names,
        isolation,
    })
}

impl KafkaFixture {
    fn messages(&self) -> Vec<KafkaMessage> {
        let topics = self.names.all();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let server = self.broker.server();
        match self.isolation {
            Isolation::ReadUncommitted => brokers::consume(server, &topics),
            Isolation::ReadCommitted => {
                server.settle_transactions();
                server.consume_as(&topics, self.isolation)
            }
        }
    }
}

#[async_trait]
impl Fixture for KafkaFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        self.broker.server().settle_transactions();
        let topics: Vec<String> = brokers::topics(self.broker.server())
            .into_iter()
            .filter(|topic| self.names.is_ours(topic))
            .map(|topic| {
                let offsets = self.broker.server().high_watermarks(&topic);
                format!("{topic}: {offsets:?}\n")
            })
            .collect();
        topics.concat()
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        let messages = self.messages();
        messages
            .iter()
            .map(|message| SuiteEvent {
                topic: self.names.original(&message.topic),
                ..brokers::read(message)
            })
            .collect()
    }

    async fn arrived_records(&self) -> Vec<WireRecord> {
        self.messages().into_iter().map(brokers::record).collect()
    }

    async fn take_away(&self) {
        self.broker.proxy().refuse();
    }

    async fn bring_back(&self) {
        self.broker.proxy().resume();
    }

    async fn stall(&self) {
        self.broker.proxy().stall();
    }

    /// Bytes that an aborted lane left in the proxy reach the broker before a new lane can.
    async fn resume(&self) {
        let proxy = self.broker.proxy();
        proxy.resume();
        while proxy.connections() > 0 {
            tokio::task::yield_now().await;
        }
    }

    fn spoil(&self, mut event: SuiteEvent) -> SuiteEvent {
        // The limit counts after compression.
        event.payload = Some(brokers::noise(0, EVENT_BYTES_MAX + 1_000));
        event
    }
}
