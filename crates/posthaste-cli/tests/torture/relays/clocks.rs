//! Relays whose wall clocks are wrong by ten minutes, in steps and drifting: only the database's clock and
//! the time since boot count, so nothing changes.

use std::{fs, path::PathBuf, sync::Arc};

use posthaste_testkit::{long_form, servers::postgres::PostgresServer};

use super::{
    FLAGS,
    faults::{Fault, shuffled},
    fleet::{Fleet, Target},
};
use crate::{
    database::Database,
    load::{Load, OnTrouble},
    postgres::Postgres,
    verdict::judge,
};

/// Ten minutes ahead, behind, and away at twice the speed.
const WRONG: [&str; 4] = ["+600", "-600", "+0 x2", "-600 x0.5"];

/// What Debian's package `faketime` puts between a program and its clock.
fn library() -> PathBuf {
    let folders = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let mut files = folders
        .iter()
        .map(|folder| PathBuf::from(format!("/usr/lib/{folder}/faketime/libfaketimeMT.so.1")));
    files.find(|file| file.exists()).expect(
        "faketime is not installed; ./test installs it, or by hand: apt-get install faketime",
    )
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_wall_clocks_change_nothing() {
    use super::fleet::Brokered;
    use crate::brokers::rabbitmq::RabbitMq;

    let target: Arc<dyn Target> = Arc::new(Brokered(Arc::new(RabbitMq::for_relays(2))));
    let server = PostgresServer::builder().start();
    let postgres = Arc::new(Postgres::new(&server).with_paced_writers());
    let database: Arc<dyn Database> = Arc::clone(&postgres) as Arc<dyn Database>;
    let mut fleet = Fleet::new(&server, &postgres, &target, 2, &FLAGS);
    let folder = tempfile::tempdir().unwrap();
    let clock = |who: usize| folder.path().join(format!("clock-{who}"));
    for who in 0..2 {
        fs::write(clock(who), WRONG[who]).unwrap();
        fleet.set_environment(who, "LD_PRELOAD", library().to_str().unwrap());
        fleet.set_environment(who, "FAKETIME_TIMESTAMP_FILE", clock(who).to_str().unwrap());
        fleet.set_environment(who, "FAKETIME_NO_CACHE", "1");
        // It is the wall's clock alone that is wrong.
        fleet.set_environment(who, "DONT_FAKE_MONOTONIC", "1");
    }
    fleet.start_all();
    fleet.is_shared_out().await;
    let load = Load::start(&database, OnTrouble::Fail);
    let rounds = if long_form() { 4 } else { 1 };
    let faults = [Fault::Kill, Fault::Freeze, Fault::Stop];
    let mut steps = WRONG.iter().cycle();
    for _ in 0..rounds {
        for fault in shuffled(&faults) {
            for who in 0..2 {
                // Replaced as a whole: a relay that reads it while it is empty would have the right time.
                let new = folder.path().join("new");
                fs::write(&new, steps.next().unwrap()).unwrap();
                fs::rename(&new, clock(who)).unwrap();
            }
            steps.next();
            fleet.delivers().await;
            fleet.suffers(fault, &server, &load).await;
            fleet.is_shared_out().await;
        }
    }
    load.stop().await;
    fleet.is_drained().await;
    fleet.stop_all();
    let report = judge(&*database, target.deliveries()).await;
    println!("{rounds} x {faults:?} with wrong clocks: {report}");
    let judged = (report.lost, report.phantom, report.out_of_order);
    assert_eq!(judged, (0, 0, 0), "{report}");
    let unclean = u64::try_from(rounds * 2).unwrap();
    assert!(
        report.duplicates <= super::WINDOW_EVENTS * unclean,
        "{report}"
    );
}
