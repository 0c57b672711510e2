//! A short run of `posthaste-torture`: two relays on an SQLite file, killed, stopped beyond their
//! lease and stopped in order, their file full or away, events that are refused.

use std::time::Duration;

use posthaste_torture::options::Torture;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_run_on_sqlite_breaks_no_promise() {
    let torture = Torture {
        time: Duration::from_secs(15),
        seed: rand::random_range(0..1_000_000),
        lap: Some(1),
        writer: None,
    };
    let report = torture.run().await;
    println!("{report}");
    assert!(report.is_good());
    assert!(report.committed() > 0 && !report.faults().is_empty());
    assert!(report.to_string().contains("| 1 | SQLite to a file |"));
}
