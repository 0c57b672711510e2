//! The sink `rabbitmq` against the real broker: its fixture, and what only it promises.

mod beside;
mod broken;
mod cluster;
mod outcomes;
mod place;
mod read;
mod tls;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::rabbitmq::RabbitMqServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};

use place::Place;
use tokio::task::spawn_blocking;

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            // Headers are a table.
            headers_in_order: false,
            breaks_with: Some(Cause::Connection),
            stalls: true,
            rejects: Some(RejectionKind::Unroutable),
            event_bytes_max: Some(16 << 20),
            ..crate::expected("rabbitmq")
        },
        fixture,
    }]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(beside::trials());
    all.extend(broken::trials());
    all.extend(cluster::trials());
    all.extend(tls::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("rabbitmq::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on an exchange and a queue of its own, behind a proxy.
fn fixture() -> Box<dyn Fixture> {
    let server = RabbitMqServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = place.on(&server.url_through(&proxy, "/"));
    Box::new(RabbitMqFixture {
        sink: open(&url).unwrap(),
        place: Arc::new(place),
        proxy,
        taken: Mutex::new(Vec::new()),
    })
}

struct RabbitMqFixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
    /// The messages that were read from the queue, which thereby are gone from there.
    taken: Mutex<Vec<SuiteEvent>>,
}

#[async_trait]
impl Fixture for RabbitMqFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        let messages = self.arrived().await.len();
        format!("{messages} messages")
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        let place = Arc::clone(&self.place);
        let read = spawn_blocking(move || place.events()).await.unwrap();
        let mut taken = self.taken.lock().unwrap();
        taken.extend(read);
        taken.clone()
    }

    async fn arrived_records(&self) -> Vec<WireRecord> {
        let place = Arc::clone(&self.place);
        spawn_blocking(move || place.records()).await.unwrap()
    }

    async fn take_away(&self) {
        self.proxy.refuse();
    }

    async fn bring_back(&self) {
        self.proxy.resume();
    }

    async fn stall(&self) {
        self.proxy.stall();
    }

    async fn resume(&self) {
        self.proxy.resume();
    }

    fn spoil(&self, mut event: SuiteEvent) -> SuiteEvent {
        // The queue is bound to topics of one word.
        event.topic = "nobody.wants.this".to_owned();
        event
    }
}
