//! The simulation over a fixed number of seeds. A failing seed prints the command that replays it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use posthaste_simulation::{
    Seed, run,
    totals::{Totals, Until, run_many},
};
use posthaste_testkit::long_form;

fn many(first: u64, seeds: u64) -> Totals {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let until = Until {
        seeds,
        time: None,
        first_failure: false,
    };
    run_many(first, until, threads, false)
}

/// Seeds that found something once, by the name of what they found.
fn scenarios() -> Vec<(String, u64)> {
    let lines = include_str!("scenarios.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    let scenario = |line: &str| {
        let (seed, name) = line.split_once(' ').unwrap();
        (name.to_owned(), seed.parse().unwrap())
    };
    lines.map(scenario).collect()
}

#[test]
fn a_seed_does_the_same_again() {
    for number in 1..=6 {
        let seed = Seed::new(number);
        assert_eq!(run(seed).unwrap(), run(seed).unwrap(), "{}", seed.command());
    }
}

#[test]
fn what_was_found_once_is_not_found_again() {
    for (name, number) in scenarios() {
        let seed = Seed::new(number);
        let outcome = run(seed).unwrap();
        assert_eq!(outcome.violations, [""; 0], "{name}: {}", seed.command());
    }
}

#[test]
fn random_histories_keep_every_promise() {
    let seeds = if long_form() { 4_000 } else { 100 };
    let totals = many(1, seeds);
    println!("{totals}");
    assert!(totals.failed.is_empty(), "{:?}", totals.failed);
}
