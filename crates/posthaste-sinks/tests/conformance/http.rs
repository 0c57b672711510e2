//! The sink `http` against a server of the test kit: its fixture, and what only it promises.

mod broken;
mod outcomes;
mod place;
mod proxied;
mod read;
mod secure;
mod topics;
mod verified;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::http::WebhookServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};
use tokio::task::spawn_blocking;

use place::{Place, SECRET};

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;
/// Above the header of 16 KiB that must arrive.
const HEADER_BYTES_MAX: usize = 100_000;

/// A row for each format: all that an event has must arrive in each.
pub(crate) fn rows() -> Vec<Row> {
    let expected = Expected {
        event_bytes_max: Some(EVENT_BYTES_MAX as u64),
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::TooLarge),
        ..crate::expected("http")
    };
    let row = |sink, fixture| Row {
        expected: Expected { sink, ..expected },
        fixture,
    };
    vec![
        row("http", || fixture("binary")),
        row("http-structured", || fixture("structured")),
        row("http-raw", || fixture("raw")),
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all.extend(topics::trials());
    all.extend(secure::trials());
    all.extend(proxied::trials());
    all.extend(verified::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("http::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on an endpoint of its own, behind a proxy.
fn fixture(format: &'static str) -> Box<dyn Fixture> {
    let server = WebhookServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let url = server.url_through(&proxy, &place.name);
    let url = format!(
        "{url}?allow_private=true&format={format}&secret={SECRET}&\
         max_event_bytes={EVENT_BYTES_MAX}&max_header_bytes={HEADER_BYTES_MAX}"
    );
    Box::new(HttpFixture {
        sink: open(&url).unwrap(),
        place: Arc::new(place),
        proxy,
    })
}

struct HttpFixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for HttpFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        let place = Arc::clone(&self.place);
        let count = spawn_blocking(move || place.requests().len());
        format!("{} requests", count.await.unwrap())
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
        // A request over a connection that is still open would be answered.
        while self.proxy.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
