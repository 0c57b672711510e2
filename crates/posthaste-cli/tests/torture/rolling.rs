//! Relays are replaced one by one under load, as a Deployment of Kubernetes does it: a new one with
//! a name of its own starts beside the old ones, and an old one is told to stop once the new one is
//! ready. Each stop is planned, so that nothing is lost, out of order or repeated (I1, I3, I4).
//!
//! A Deployment waits longer than this between the steps, until the shares are equal again.

use std::{sync::Arc, time::Duration};

use posthaste_testkit::long_form;
use posthaste_torture::{
    brokers::{Broker, Brokered, Target, kafka::Kafka},
    fleet::Fleet,
    judge::judge,
    load::{Load, OnTrouble},
    relay::{LIMIT, assert_no_panic, posthaste, until},
    source::Source,
};

/// As many as a release has by default.
const RELAYS: usize = 2;
/// `terminationGracePeriodSeconds` of the chart by default. Then a pod is killed.
const GRACE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_loses_and_repeats_nothing() {
    let updates = if long_form() { 6 } else { 2 };
    let pods = RELAYS * (1 + updates);
    let kafka = Arc::new(Kafka::for_relays(pods));
    let target: Arc<dyn Target> = Arc::new(Brokered(Arc::clone(&kafka)));
    let source = Arc::new(Source::postgres());
    let database = source.database();
    let mut fleet = Fleet::new(&source, &target, pods, &["--http", "127.0.0.1:0"]);
    for first in 0..RELAYS {
        fleet.start(first);
        is_ready(&fleet, first).await;
    }
    fleet.is_shared_out().await;
    let load = Load::start(&database, OnTrouble::Fail);
    fleet.delivers().await;
    for new in RELAYS..pods {
        fleet.start(new);
        is_ready(&fleet, new).await;
        let old = fleet.take(new - RELAYS);
        old.terminate();
        assert_no_panic(&old.wait(GRACE).expect_status(0).stderr);
        fleet.delivers().await;
    }
    let commits = load.stop().await;
    fleet.is_drained().await;
    fleet.stop_all();
    let report = judge(&*database, kafka.deliveries()).await;
    println!(
        "{commits} transactions, {} replacements: {report}",
        pods - RELAYS
    );
    let judged = (report.lost, report.phantom, report.out_of_order);
    assert_eq!(judged, (0, 0, 0), "{report}");
    assert_eq!(
        report.duplicates, 0,
        "a planned stop repeats nothing: {report}"
    );
}

/// As the kubelet asks.
async fn is_ready(fleet: &Fleet, who: usize) {
    const LINE: &str = "monitoring is at ";
    let relay = fleet.running(who);
    relay.wait_for_stderr(LINE, LIMIT);
    let log = relay.stderr();
    let (_, url) = log.split_once(LINE).unwrap();
    let url = url.split(' ').next().unwrap().to_owned();
    assert!(url.ends_with("/readyz"), "{url}");
    until("readiness", || {
        posthaste(&["health", "--url", &url]).status.success()
    })
    .await;
}
