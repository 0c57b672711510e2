//! Many runs, and what they came to.

use std::{
    collections::BTreeMap,
    fmt, panic,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    faults::{Injection, Reached},
    seed::Seed,
    world::{Outcome, run},
};

/// Runs together.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// How many.
    pub runs: u64,
    /// Virtual time.
    pub simulated: Duration,
    /// Events delivered, repeats among them.
    pub deliveries: u64,
    /// Steps of the traces.
    pub steps: u64,
    /// Faults by kind.
    pub injected: BTreeMap<Injection, u64>,
    /// Places of the mechanism.
    pub reached: BTreeMap<Reached, u64>,
    /// Seeds that violate a promise, with what is wrong.
    pub failed: BTreeMap<u64, Vec<String>>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, seed: u64, outcome: Outcome) {
        self.runs += 1;
        self.simulated += outcome.simulated;
        self.deliveries += outcome.deliveries;
        self.steps += outcome.steps;
        for (injection, times) in outcome.injected {
            *self.injected.entry(injection).or_default() += times;
        }
        for (place, times) in outcome.reached {
            *self.reached.entry(place).or_default() += times;
        }
        if !outcome.violations.is_empty() {
            self.failed.insert(seed, outcome.violations);
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seeds, {} simulated seconds, {} deliveries, {} steps, {} failed",
            self.runs,
            self.simulated.as_secs(),
            self.deliveries,
            self.steps,
            self.failed.len()
        )?;
        for injection in Injection::ALL {
            let times = self.injected.get(injection).copied().unwrap_or_default();
            writeln!(
                f,
                "  {injection:<20} {times:>9}",
                injection = injection.to_string()
            )?;
        }
        for place in Reached::ALL {
            let times = self.reached.get(place).copied().unwrap_or_default();
            writeln!(f, "  reached {:<26} {times:>9}", format!("{place:?}"))?;
        }
        Ok(())
    }
}

/// A run whose panic is a violation like any other.
#[must_use]
pub fn run_caught(seed: Seed) -> Outcome {
    let wrong = |words: String| Outcome {
        hash: 0,
        violations: vec![words],
        injected: BTreeMap::new(),
        reached: BTreeMap::new(),
        deliveries: 0,
        steps: 0,
        simulated: Duration::ZERO,
    };
    match panic::catch_unwind(|| run(seed)) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => wrong(format!("no runtime: {error}")),
        Err(_) => wrong("it panicked".to_owned()),
    }
}

/// When runs end.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// After so many seeds.
    pub seeds: u64,
    /// After so long, on the wall.
    pub time: Option<Duration>,
    /// At the first failure.
    pub first_failure: bool,
}

/// Runs seeds from `first` on, on so many threads, and prints what each failing one is replayed by.
#[must_use]
pub fn run_many(first: Seed, until: Until, threads: usize, progress: bool) -> Totals {
    let (next, stop) = (AtomicU64::new(first.number), AtomicBool::new(false));
    let totals = Mutex::new(Totals::default());
    let (began, said) = (Instant::now(), AtomicU64::new(0));
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let late = until.time.is_some_and(|time| began.elapsed() >= time);
            if late || number - first.number >= until.seeds || stop.load(Relaxed) {
                return;
            }
            let seed = Seed { number, ..first };
            let outcome = run_caught(seed);
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            if !outcome.violations.is_empty() {
                println!("{}", seed.command());
                for wrong in outcome.violations.iter().take(5) {
                    println!("    {wrong}");
                }
                stop.fetch_or(until.first_failure, Relaxed);
            }
            totals.add(number, outcome);
            let minutes = began.elapsed().as_secs() / 60;
            if progress && said.fetch_max(minutes, Relaxed) < minutes {
                println!("{minutes} min: {totals}");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    totals.into_inner().unwrap_or_else(PoisonError::into_inner)
}
