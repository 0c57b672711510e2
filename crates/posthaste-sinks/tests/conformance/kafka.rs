//! The sink `kafka` against the real broker: its fixture, and what only it promises.

mod broken;
mod brokers;
mod driving;
mod outcomes;
mod renamed;
mod secure;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::Sink;
use posthaste_sinks::open;
use posthaste_testkit::sink_suite::{Fixture, SuiteEvent};

use brokers::Broker;
use renamed::{Names, Renamed};

/// Bounds a hang, nothing more.
const HANG: Duration = Duration::from_secs(180);

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all.extend(secure::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    Trial::test(format!("kafka::{name}"), move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(async {
                tokio::time::timeout(HANG, test()).await.expect("hung");
            });
        Ok(())
    })
}

/// A sink on topics of its own, behind the proxy of a broker that nobody else uses meanwhile.
struct KafkaFixture {
    broker: Arc<Broker>,
    names: Arc<Names>,
    sink: Arc<dyn Sink>,
}

pub(crate) fn fixture() -> Box<dyn Fixture> {
    let broker = Arc::new(Broker::take());
    let sink = open(&format!("kafka://{}", broker.server().bootstrap())).unwrap();
    let names = Arc::new(Names::new());
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
    })
}

#[async_trait]
impl Fixture for KafkaFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
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
        let topics = self.names.all();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let server = self.broker.server();
        brokers::consume(server, &topics)
            .iter()
            .map(|message| SuiteEvent {
                topic: self.names.original(&message.topic),
                ..brokers::read(message)
            })
            .collect()
    }

    async fn take_away(&self) {
        self.broker.server().proxy().refuse();
    }

    async fn bring_back(&self) {
        self.broker.server().proxy().resume();
    }

    async fn stall(&self) {
        self.broker.server().proxy().stall();
    }

    /// What an aborted lane left in the proxy reaches the broker before a new lane can.
    async fn resume(&self) {
        let proxy = self.broker.server().proxy();
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
