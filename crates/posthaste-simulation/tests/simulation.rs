//! The simulation over a fixed number of seeds. A failing seed prints the command that replays it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use posthaste_simulation::{
    Emphasis, Injection, Reached, Seed, Time, run,
    totals::{Totals, Until, run_many},
};
use posthaste_testkit::long_form;

fn many(first: Seed, seeds: u64) -> Totals {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let until = Until {
        seeds,
        time: None,
        first_failure: false,
    };
    run_many(first, until, threads, false)
}

/// Seeds that found something once, with the name of what they found.
fn scenarios() -> Vec<(String, Seed)> {
    let lines = include_str!("scenarios.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    let scenario = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let mut part = || parts.next().unwrap();
        let (named, number, name) = (part(), part(), part());
        let mut all = Emphasis::ALL.iter().copied();
        let emphasis = all.find(|emphasis| format!("{emphasis:?}") == named);
        let seed = Seed {
            emphasis: emphasis.unwrap(),
            ..Seed::new(number.parse().unwrap())
        };
        (name.to_owned(), seed)
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
    for (name, seed) in scenarios() {
        let outcome = run(seed).unwrap();
        assert_eq!(outcome.violations, [""; 0], "{name}: {}", seed.command());
    }
}

/// A promise that was kept where nothing happened is no evidence: the same seeds bring each fault
/// often, and come to each place of the mechanism.
#[test]
fn random_histories_keep_every_promise_under_every_fault() {
    let (seeds, often) = if long_form() {
        (6_000, 1_000)
    } else {
        (150, 300)
    };
    let totals = many(Seed::new(1), seeds);
    println!("{totals}");
    assert!(totals.failed.is_empty(), "{:?}", totals.failed);
    for injection in Injection::ALL {
        let times = totals.injected.get(injection).copied().unwrap_or(0);
        assert!(times >= often, "{injection} happened {times} times only");
    }
    for place in Reached::ALL {
        assert!(
            totals.reached.contains_key(place),
            "no history reached {place:?}"
        );
    }
}

/// Reads overlap advances, and events of blocked keys could fill a page.
#[test]
fn a_store_that_marks_events_keeps_every_promise() {
    let first = Seed {
        emphasis: Emphasis::Marks,
        ..Seed::new(1)
    };
    let totals = many(first, if long_form() { 2_000 } else { 24 });
    println!("{totals}");
    assert!(totals.failed.is_empty(), "{:?}", totals.failed);
    assert!(totals.reached.contains_key(&Reached::Join));
}

/// Relays share a destination over a broker that fences by time alone. Answers what is wrong.
fn sharing(time: Time, seeds: u64) -> Vec<String> {
    let first = Seed {
        emphasis: Emphasis::Sharing,
        time,
        ..Seed::new(1)
    };
    let totals = many(first, seeds);
    println!("{time:?}: {totals}");
    totals.failed.into_values().flatten().collect()
}

fn sharing_seeds() -> u64 {
    if long_form() { 4_000 } else { 24 }
}

#[test]
fn random_histories_keep_order_and_lose_nothing() {
    assert_eq!(sharing(Time::Right, sharing_seeds()), [""; 0]);
}

#[test]
fn clocks_that_drift_by_one_percent_change_nothing() {
    assert_eq!(sharing(Time::Drifts, sharing_seeds()), [""; 0]);
}

/// Where a clock was set, the checker of order asks for no contiguous replay.
#[test]
fn clocks_that_are_set_shuffle_repeats_at_the_most() {
    assert_eq!(sharing(Time::IsSet, sharing_seeds()), [""; 0]);
}

/// The histories can fail: they do when nobody waits for the bytes of a lane that is gone.
#[test]
fn without_a_settle_time_a_late_repeat_is_found() {
    let wrong = sharing(Time::WithoutSettleTime, 40);
    let late = |wrong: &String| wrong.starts_with("I3") && wrong.contains("broken replay");
    assert!(wrong.iter().any(late), "{wrong:?}");
}
