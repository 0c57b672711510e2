//! The sink `redis` against the real server: its fixture, and what only it promises.

mod broken;
mod cluster;
mod fence;
mod outcomes;
mod own_keys;
mod place;
mod read;
mod replicas;

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::{
    proxy::Proxy,
    servers::redis::RedisServer,
    sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord},
};
use tokio::task::spawn_blocking;

use place::Place;

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            fenced_by_successor: true,
            event_bytes_max: Some(EVENT_BYTES_MAX as u64),
            breaks_with: Some(Cause::Connection),
            stalls: true,
            rejects: Some(RejectionKind::TooLarge),
            ..crate::expected("redis")
        },
        fixture,
    }]
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = outcomes::trials();
    all.extend(broken::trials());
    all.extend(cluster::trials());
    all.extend(fence::trials());
    all.extend(own_keys::trials());
    all.extend(replicas::trials());
    all
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    crate::trial::trial(
        format!("redis::{name}"),
        crate::trial::beside_blocking_calls,
        test,
    )
}

/// A sink on a stream of its own, behind a proxy.
fn fixture() -> Box<dyn Fixture> {
    let server = RedisServer::shared();
    let place = Place::new(server);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let name = &place.name;
    let url = server.url_through(&proxy);
    let url = format!("{url}?stream={name}&max_event_bytes={EVENT_BYTES_MAX}");
    Box::new(RedisFixture {
        sink: open(&url).unwrap(),
        place: Arc::new(place),
        proxy,
    })
}

struct RedisFixture {
    sink: Arc<dyn Sink>,
    place: Arc<Place<'static>>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for RedisFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    async fn trace(&self) -> String {
        let place = Arc::clone(&self.place);
        let state = spawn_blocking(move || (place.keys(), place.count("")));
        let (keys, entries) = state.await.unwrap();
        format!("{entries} entries; keys {keys:?}")
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        let place = Arc::clone(&self.place);
        spawn_blocking(move || place.events("")).await.unwrap()
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
