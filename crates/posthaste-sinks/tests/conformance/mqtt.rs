//! The sink `mqtt` against the real broker: its fixture, and what only it promises.

mod broken;
mod fence;
mod outcomes;
mod place;
mod read;
mod scripted;
mod secure;

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::mqtt::MqttServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};
use tokio::task::spawn_blocking;

use place::Place;

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;

/// A row for each way in which a message goes: all that an event has must arrive in each.
pub(crate) fn rows() -> Vec<Row> {
    let expected = Expected {
        event_bytes_max: Some(EVENT_BYTES_MAX as u64),
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::TooLarge),
        ..crate::expected("mqtt")
    };
    let row = |sink, fixture| Row {
        expected: Expected { sink, ..expected },
        fixture,
    };
    vec![
        row("mqtt", || fixture("qos=1")),
        row("mqtt-qos-2", || fixture("qos=2")),
        row("mqtt-structured", || fixture("format=structured")),
        row("mqtt-3.1.1", || fixture("version=3.1.1")),
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all.extend(fence::trials());
    all.extend(scripted::trials());
    all.extend(secure::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("mqtt::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on topics of its own, behind a proxy.
fn fixture(options: &'static str) -> Box<dyn Fixture> {
    let server = MqttServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = place.on(&server.url_through(&proxy));
    let url = format!("{url}&{options}&max_event_bytes={EVENT_BYTES_MAX}");
    Box::new(MqttFixture {
        sink: open(&url).unwrap(),
        place: Arc::new(place),
        proxy,
    })
}

struct MqttFixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for MqttFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        let place = Arc::clone(&self.place);
        let count = spawn_blocking(move || place.messages().len());
        format!("{} messages", count.await.unwrap())
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
        event.payload = Some(vec![b'x'; EVENT_BYTES_MAX + 1]);
        event
    }
}
