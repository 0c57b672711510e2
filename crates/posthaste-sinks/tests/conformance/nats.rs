//! The sink `nats` against the real server: its fixture, and what only it promises.

mod broken;
mod outcomes;
mod place;
mod read;

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::nats::NatsServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};
use serde_json::json;
use tokio::task::spawn_blocking;

use place::Place;

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            breaks_with: Some(Cause::Connection),
            stalls: true,
            rejects: Some(RejectionKind::TooLarge),
            receipts: true,
            ..crate::expected("nats")
        },
        fixture,
    }]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("nats::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on a stream of its own, behind a proxy.
fn fixture() -> Box<dyn Fixture> {
    let server = NatsServer::shared();
    let place = Place::with_stream(server, &json!({ "max_msg_size": EVENT_BYTES_MAX }));
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = place.on(&server.url_through(&proxy));
    Box::new(NatsFixture {
        sink: open(&url).unwrap(),
        place: Arc::new(place),
        proxy,
    })
}

struct NatsFixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for NatsFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        let place = Arc::clone(&self.place);
        let state = spawn_blocking(move || place.state()).await.unwrap();
        format!("messages, last number: {state:?}")
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
        event.payload = Some(vec![b'x'; EVENT_BYTES_MAX]);
        event
    }
}
