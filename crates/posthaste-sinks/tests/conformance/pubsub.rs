//! The sink `pubsub` against the server of Google's client library: its fixture, and what only it
//! promises.

mod broken;
mod outcomes;
mod place;
mod read;
mod secure;
mod survey;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_testkit::{
    proxy::Proxy,
    servers::pubsub::PubSubServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};
use tokio::task::spawn_blocking;

use place::Place;

/// The default.
const EVENT_BYTES_MAX: usize = 9_437_184;

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            event_bytes_max: Some(EVENT_BYTES_MAX as u64),
            tells_repeats: false,
            headers_in_order: false,
            breaks_with: Some(Cause::Connection),
            stalls: true,
            rejects: Some(RejectionKind::TooLarge),
            ..crate::expected("pubsub")
        },
        fixture,
    }]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all.extend(secure::trials());
    all.extend(survey::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("pubsub::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on a topic of its own, behind a proxy.
fn fixture() -> Box<dyn Fixture> {
    let server = PubSubServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    Box::new(PubSubFixture {
        sink: place.sink_at(&server.options_through(&proxy)),
        place: Arc::new(place),
        proxy,
    })
}

struct PubSubFixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for PubSubFixture {
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
        let records = move || place.messages().into_iter().map(read::record).collect();
        spawn_blocking(records).await.unwrap()
    }

    async fn take_away(&self) {
        self.proxy.refuse();
        // A call over a connection that is still open would be answered.
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
