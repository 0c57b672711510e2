//! Relays that deliver in Kafka's transactions, killed and stopped beyond their lease: a consumer that reads
//! what is committed sees each event exactly once, in the order of its key.

use std::sync::Arc;

use posthaste_testkit::{long_form, servers::postgres::PostgresServer};

use super::{
    FLAGS,
    faults::Fault,
    fleet::{Brokered, Fleet, Target},
};
use crate::{
    brokers::kafka::Kafka,
    database::Database,
    load::{Load, OnTrouble},
    postgres::Postgres,
    verdict::judge,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_seen_exactly_once_through_kills_and_stops() {
    let each = if long_form() { 20 } else { 5 };
    let kafka = Kafka::for_relays(3).transactional();
    let target: Arc<dyn Target> = Arc::new(Brokered(Arc::new(kafka)));
    let server = PostgresServer::builder()
        .setting("wal_writer_delay", "10s")
        .start();
    let postgres = Arc::new(Postgres::new(&server).with_paced_writers());
    let database: Arc<dyn Database> = Arc::clone(&postgres) as Arc<dyn Database>;
    let mut fleet = Fleet::new(&server, &postgres, &target, 3, &FLAGS);
    fleet.start_all();
    fleet.is_shared_out().await;
    let load = Load::start(&database, OnTrouble::Reconnect);
    for round in 0..each {
        fleet.delivers().await;
        fleet.suffers(Fault::Two, &server, &load).await;
        if round % 5 == 2 {
            fleet.suffers(Fault::Crash, &server, &load).await;
        }
        if round % 4 == 3 {
            fleet.is_shared_out().await;
        }
    }
    load.stop().await;
    fleet.is_shared_out().await;
    fleet.is_drained().await;
    fleet.stop_all();
    let report = judge(&*database, target.deliveries()).await;
    println!("{each} kills and {each} stops: {report}");
    report.assert_good();
    assert_eq!(report.duplicates, 0, "{report}");
}
