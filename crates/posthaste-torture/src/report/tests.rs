use std::time::Duration;

use super::{LapRecord, Report, grouped, quantile};
use crate::{
    options::Torture,
    setting::{DatabaseKind, Setting, SinkKind},
};

#[test]
fn numbers_are_read_easily() {
    assert_eq!(
        [7, 1_000, 1_234_567].map(grouped),
        ["7", "1 000", "1 234 567"]
    );
}

#[test]
fn a_quantile_is_one_of_the_times() {
    let times: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
    assert_eq!(quantile(&times, 0.5), Duration::from_millis(50));
    assert_eq!(quantile(&times, 0.99), Duration::from_millis(99));
    assert_eq!(quantile(&[], 0.5), Duration::ZERO);
}

#[test]
fn a_lap_that_does_not_end_is_not_good_and_says_how_to_run_it_again() {
    let report = Report {
        torture: Torture {
            time: Duration::from_secs(60),
            seed: 7,
            lap: None,
            writer: None,
        },
        commit: "0123456789ab".to_owned(),
        took: Duration::from_secs(61),
        laps: vec![LapRecord {
            number: 3,
            setting: Setting::new(DatabaseKind::Postgres, SinkKind::File),
            standby: true,
            seed: 9,
            outcome: Err("not within 120s: delivery".to_owned()),
        }],
    };
    assert!(!report.is_good());
    let text = report.to_string();
    for part in [
        "Not every lap came to its end",
        "| 3 | PostgreSQL to a file, standby |",
        "not within 120s: delivery",
        "--for \"1m\" --seed 7 --lap 3",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
