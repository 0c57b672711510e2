//! Runs the simulation: one seed with its trace, a number of seeds, for a time, or until it is
//! stopped.

use std::{fmt::Debug, process::ExitCode, time::Duration};

use clap::Parser;
use posthaste_engine::rule::Rule;
use posthaste_simulation::{
    Emphasis, Seed, Time,
    totals::{Until, run_caught, run_many},
};

/// The deterministic simulation of Posthaste's relay.
#[derive(Parser)]
struct Options {
    /// Run this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: print each step.
    #[arg(long)]
    trace: bool,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many seeds. Default: until stopped.
    #[arg(long)]
    seeds: Option<u64>,
    /// For how long: 1h, 30min.
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Threads. Default: all processors.
    #[arg(long)]
    threads: Option<usize>,
    /// End at the first seed that fails.
    #[arg(long)]
    first_failure: bool,
    /// Faults that happen more often than usual.
    #[arg(long, value_parser = named(Emphasis::ALL.iter().copied()), default_value = "Usual")]
    emphasis: Emphasis,
    /// How the relays' time goes.
    #[arg(long = "time", value_parser = named(Time::ALL.iter().copied()), default_value = "Drawn")]
    relays_time: Time,
    /// A rule that is left out, to see that it is missed.
    #[arg(long, value_parser = named(rules()))]
    leave_out: Option<Rule>,
}

/// The rules that the simulation can run without.
fn rules() -> impl Iterator<Item = Rule> {
    Rule::ALL.into_iter().filter(|rule| rule.is_in_simulation())
}

/// One of these, by its name.
fn named<T: Debug + Copy + Send + Sync + 'static>(
    all: impl IntoIterator<Item = T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    let all: Vec<T> = all.into_iter().collect();
    move |name| {
        let found = all.iter().find(|one| format!("{one:?}") == name);
        found
            .copied()
            .ok_or_else(|| format!("it is one of {all:?}"))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let good = match options.seed {
        Some(number) => one(seed(&options, number)),
        None => many(&options),
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn seed(options: &Options, number: u64) -> Seed {
    Seed {
        number,
        print: options.trace,
        emphasis: options.emphasis,
        time: options.relays_time,
        leave_out: options.leave_out,
    }
}

fn one(seed: Seed) -> bool {
    let outcome = run_caught(seed);
    println!(
        "seed {}: hash {:016x}, {} deliveries, {} simulated seconds",
        seed.number,
        outcome.hash,
        outcome.deliveries,
        outcome.simulated.as_secs()
    );
    for wrong in &outcome.violations {
        println!("    {wrong}");
    }
    outcome.violations.is_empty()
}

fn many(options: &Options) -> bool {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let until = Until {
        seeds: options.seeds.unwrap_or(u64::MAX),
        time: options.time,
        first_failure: options.first_failure,
    };
    let threads = options.threads.unwrap_or(processors);
    let totals = run_many(seed(options, options.from), until, threads, true);
    println!("{totals}");
    totals.failed.is_empty()
}
