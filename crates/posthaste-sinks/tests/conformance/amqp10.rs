//! The sink `amqp10` against ActiveMQ Artemis: its fixture, and what only it promises.

mod broken;
mod outcomes;
mod place;
mod read;
mod secure;

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::artemis::ArtemisServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};
use tokio::task::spawn_blocking;

use place::Place;

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            headers_in_order: false,
            breaks_with: Some(Cause::Connection),
            stalls: true,
            rejects: Some(RejectionKind::Invalid),
            ..crate::expected("amqp10")
        },
        fixture,
    }]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all.extend(secure::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("amqp10::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on a queue of its own, behind a proxy.
fn fixture() -> Box<dyn Fixture> {
    let server = ArtemisServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    Box::new(Amqp10Fixture {
        sink: open(&place.on(&server.url_through(&proxy))).unwrap(),
        place: Arc::new(place),
        proxy,
    })
}

struct Amqp10Fixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for Amqp10Fixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        let place = Arc::clone(&self.place);
        let count = spawn_blocking(move || place.count()).await.unwrap();
        format!("messages: {count}")
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        let place = Arc::clone(&self.place);
        spawn_blocking(move || place.events()).await.unwrap()
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
        event.occurred_at = i64::MAX;
        event
    }
}
