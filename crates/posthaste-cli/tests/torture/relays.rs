//! Several relays share the work, and each in turn dies, stands still past its lease, is cut off from the
//! database only or from its broker only, stops in order; the database's server crashes. Nothing is lost,
//! invented or out of order, and progress is nobody's but the newest owner's (I1 to I4, I8).
//!
//! First deliveries are what is judged (I3): only time fences these lanes, and a process that stood still,
//! or bytes that a network kept, may bring a repeat late, even last. Such are counted and printed.

mod clocks;
mod faults;
mod fleet;
#[cfg(feature = "kafka")]
mod handover;
#[cfg(feature = "kafka")]
mod transactional;

use std::sync::Arc;

use posthaste_testkit::{long_form, servers::postgres::PostgresServer};

#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
use self::fleet::Brokered;
use self::{
    clocks::Clocks,
    faults::{Fault, shuffled},
    fleet::{Fleet, Shared, Target},
};
#[cfg(feature = "kafka")]
use crate::brokers::kafka::Kafka;
#[cfg(feature = "rabbitmq")]
use crate::brokers::rabbitmq::RabbitMq;
use crate::{
    database::Database,
    load::{Load, OnTrouble},
    postgres::Postgres,
    relay::Delivered,
    verdict::judge,
};

/// Small, so that what a fault repeats is held to a bound that means something.
const WINDOW_EVENTS: u64 = 500;
/// Short, so that a fault outlasts it soon.
const FLAGS: [&str; 6] = [
    "--lease",
    "3s",
    "--window-events",
    "500",
    "--batch-events",
    "100",
];
const LEASE: std::time::Duration = std::time::Duration::from_secs(3);

/// What is done to how many relays.
struct Trial<'a> {
    relays: usize,
    target: Arc<dyn Target>,
    faults: &'a [Fault],
    wrong_clocks: bool,
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_kafka_lose_nothing_and_keep_order() {
    let (sizes, faults): (&[usize], &[_]) = if long_form() {
        (&[2, 4, 8], &Fault::ALL)
    } else {
        (
            &[4],
            &[
                Fault::Two,
                Fault::CutBroker,
                Fault::CutDatabase,
                Fault::Crash,
            ],
        )
    };
    for &relays in sizes {
        let trial = Trial {
            relays,
            target: Arc::new(Brokered(Arc::new(Kafka::for_relays(relays)))),
            faults,
            wrong_clocks: false,
        };
        trial.run().await;
    }
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_to_rabbitmq_with_wrong_wall_clocks_lose_nothing_and_keep_order() {
    let (sizes, faults): (&[usize], &[_]) = if long_form() {
        (&[2, 4, 8], &Fault::ALL)
    } else {
        (&[2], &[Fault::Freeze, Fault::CutBroker, Fault::Stop])
    };
    for &relays in sizes {
        let trial = Trial {
            relays,
            target: Arc::new(Brokered(Arc::new(RabbitMq::for_relays(relays)))),
            faults,
            wrong_clocks: true,
        };
        trial.run().await;
    }
}

/// A file has one lane: one relay owns all partitions, the other stands by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_to_a_file_lose_nothing_and_keep_order() {
    let all = [
        Fault::Freeze,
        Fault::CutDatabase,
        Fault::Crash,
        Fault::Kill,
        Fault::Stop,
    ];
    // Kills and stops are what the tests of a single relay do to it.
    let faults = if long_form() { &all[..] } else { &all[..3] };
    let trial = Trial {
        relays: 2,
        target: Arc::new(Shared(Delivered::new())),
        faults,
        wrong_clocks: false,
    };
    trial.run().await;
}

impl Trial<'_> {
    async fn run(&self) {
        let rounds = if long_form() { 6 } else { 1 };
        // What nobody waits for stays unwritten, so that a crash takes aborted numbers with it.
        let server = PostgresServer::builder()
            .setting("wal_writer_delay", "10s")
            .start();
        let postgres = Arc::new(Postgres::new(&server).with_paced_writers());
        postgres.watch_ownership();
        let database: Arc<dyn Database> = Arc::clone(&postgres) as Arc<dyn Database>;
        let mut fleet = Fleet::new(&server, &postgres, &self.target, self.relays, &FLAGS);
        let mut clocks = self.wrong_clocks.then(|| Clocks::for_all_of(&mut fleet));
        fleet.start_all();
        fleet.is_shared_out().await;
        let load = Load::start(&database, OnTrouble::Reconnect);
        let mut repeats_max = 0;
        for round in 0..rounds {
            for fault in shuffled(self.faults) {
                if fault == Fault::Two && self.relays < 3 {
                    continue;
                }
                fleet.delivers().await;
                clocks.iter_mut().for_each(Clocks::step);
                fleet.suffers(fault, &server, &load).await;
                repeats_max += WINDOW_EVENTS * fault.windows(self.relays);
                // Every other round one fault follows on the other, before shares are equal again.
                if round % 2 == 1 {
                    fleet.is_shared_out().await;
                }
            }
        }
        fleet.delivers().await;
        load.stop().await;
        fleet.is_shared_out().await;
        fleet.is_drained().await;
        fleet.stop_all();
        postgres.assert_nothing_was_stolen();

        let report = judge(&*database, self.target.deliveries()).await;
        let (relays, faults) = (self.relays, self.faults);
        println!("{relays} relays, {rounds} x {faults:?}: {report}");
        let judged = (report.lost, report.phantom, report.out_of_order);
        assert_eq!(judged, (0, 0, 0), "{report}");
        assert!(
            report.duplicates <= repeats_max,
            "more than {repeats_max} repeats: {report}"
        );
    }
}
