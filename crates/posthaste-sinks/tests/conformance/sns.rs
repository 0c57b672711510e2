//! The sink `sns` against moto: its fixture, and what only it promises.

mod outcomes;
mod place;
mod secure;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::moto::MotoServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};
use tokio::task::spawn_blocking;

use place::Place;

/// A message has 262144 bytes, and 16 KiB of headers must arrive.
const EVENT_BYTES_MAX: usize = 240_000;

/// A row for each kind of topic.
pub(crate) fn rows() -> Vec<Row> {
    let expected = |mode| Expected {
        event_bytes_max: Some(EVENT_BYTES_MAX as u64),
        tells_repeats: false,
        breaks_with: Some(Cause::Connection),
        stalls: true,
        rejects: Some(RejectionKind::TooLarge),
        ..crate::expected(mode)
    };
    vec![
        Row {
            expected: expected("sns"),
            fixture: || fixture(""),
        },
        Row {
            expected: expected("sns-fifo"),
            fixture: || fixture(".fifo"),
        },
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(secure::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("sns::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on a topic of its own, behind a proxy.
fn fixture(suffix: &str) -> Box<dyn Fixture> {
    let server = MotoServer::shared();
    let place = Place::new(server, suffix);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let options = server.options_through(&proxy);
    let url = format!(
        "sns://{}?max_event_bytes={EVENT_BYTES_MAX}&{options}",
        server.arn(&place.name)
    );
    Box::new(SnsFixture {
        sink: open(&url).unwrap(),
        place: Arc::new(place),
        proxy,
    })
}

struct SnsFixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for SnsFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        let place = Arc::clone(&self.place);
        let count = spawn_blocking(move || place.records().len());
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
