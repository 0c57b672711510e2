//! A store and the reference, the memory store, do the same random operations, and agree in each
//! answer and in what operators are told afterwards.
//!
//! The reference records progress by marking finished events, so that it can follow whatever pages
//! the store under test reads: which events come in one page, and in which order events of
//! different keys come, is a store's own affair. Both must agree upon these: which events there
//! are, each key's order, what is set aside and what became of it, who owns what, and what
//! operators are told. Writers lock the keys they write, but for one key whose order is nobody's
//! promise.
//!
//! A sequence is a function of its seed. A failing one is cut down to the operations that it takes,
//! and told with the command that runs it again.

mod admin;
mod destinations;
mod drain;
mod driver;
mod holding;
mod observe;
mod operation;
mod ownership;
mod parking;
mod reading;
mod side;
mod state;
mod writing;

use std::{
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use super::Fixture;
use driver::Ended;
use operation::Operation;
use state::Driver;

pub use operation::Plan;

/// The environment's variable that names the seed of the one sequence to run.
pub const SEED: &str = "POSTHASTE_AGREEMENT_SEED";

/// The acts of a run, so that a caller can see that it did something.
#[derive(Debug, Default)]
pub struct Summary {
    /// Sequences.
    pub sequences: u32,
    /// Operations that had something to do.
    pub operations: u64,
    /// How often each kind of operation had.
    pub kinds: std::collections::BTreeMap<&'static str, u64>,
    /// Sequences that ended where the contract leaves the choice to the store.
    pub ended_early: u32,
}

/// Runs the plan's sequences, or the one that the environment names, and fails where the two
/// disagree.
///
/// # Panics
/// When they disagree: with the seed, and the fewest operations that it takes.
pub fn agree(subject: &Arc<dyn Fixture>, reference: &Arc<dyn Fixture>, plan: &Plan) -> Summary {
    let named = std::env::var(SEED).ok();
    let seeds: Vec<u64> = match &named {
        Some(seed) => vec![seed.parse().expect("POSTHASTE_AGREEMENT_SEED is a number")],
        None => (plan.first_seed..).take(plan.sequences).collect(),
    };
    let (mut summary, begun) = (Summary::default(), Instant::now());
    for seed in seeds {
        let operations = operation::sequence(seed, plan, &subject.capabilities());
        match attempt(subject, reference, plan, &operations) {
            Ok(ended) => summary.add(ended),
            Err(first) => {
                let shortest = shorten(subject, reference, plan, first);
                panic!("{}", report(subject.name(), seed, &shortest));
            }
        }
    }
    println!(
        "{}: {} sequences, {} operations, {} ended early, {:?}: {:?}",
        subject.name(),
        summary.sequences,
        summary.operations,
        summary.ended_early,
        begun.elapsed(),
        summary.kinds
    );
    summary
}

impl Summary {
    fn add(&mut self, ended: Ended) {
        self.sequences += 1;
        self.ended_early += u32::from(ended.early);
        for (kind, count) in ended.kinds {
            self.operations += count;
            *self.kinds.entry(kind).or_default() += count;
        }
    }
}

struct Failure {
    operations: Vec<Operation>,
    message: String,
}

fn attempt(
    subject: &Arc<dyn Fixture>,
    reference: &Arc<dyn Fixture>,
    plan: &Plan,
    operations: &[Operation],
) -> Result<Ended, Failure> {
    let reached = AtomicUsize::new(0);
    let runtime = match plan.one_thread {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    }
    .worker_threads(2)
    .enable_all()
    .build()
    .expect("a runtime");
    let sequence = async {
        let mut driver = Driver::new(subject, reference, plan).await;
        for operation in operations {
            reached.fetch_add(1, Relaxed);
            driver.apply(operation).await;
            // The end of a lease and a fence show in the comparison, and change what follows. So
            // does how much settles of what somebody has left.
            let tells = matches!(
                operation,
                Operation::Expire { .. }
                    | Operation::Fence { .. }
                    | Operation::Claim { .. }
                    | Operation::Withdraw { .. }
                    | Operation::Leave { .. }
            );
            if !driver.ended_early() && (tells || driver.due_to_compare(plan.compare_every)) {
                driver.compare().await;
            }
            if driver.ended_early() {
                break;
            }
        }
        driver.drain().await;
        driver.end()
    };
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(sequence))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Failure {
            // Later events have no part in it.
            operations: operations[..reached.load(Relaxed)].to_vec(),
            message: text.unwrap_or_else(|| "a panic without words".to_owned()),
        }
    })
}

/// Leaves out operations, many at a time at first, as long as the rest fails.
fn shorten(
    subject: &Arc<dyn Fixture>,
    reference: &Arc<dyn Fixture>,
    plan: &Plan,
    mut failure: Failure,
) -> Failure {
    let plan = &Plan {
        compare_every: 1,
        ..plan.clone()
    };
    let (mut chunk, mut tries) = (failure.operations.len().div_ceil(2), plan.shorten_tries);
    loop {
        let (mut at, mut shorter) = (0, false);
        while at < failure.operations.len() && tries > 0 {
            tries -= 1;
            let mut fewer = failure.operations.clone();
            fewer.drain(at..(at + chunk).min(fewer.len()));
            match attempt(subject, reference, plan, &fewer) {
                // Another fault may hide behind fewer operations.
                Err(other) if kind(&other.message) == kind(&failure.message) => {
                    shorter = true;
                    failure = other;
                }
                _ => at += chunk,
            }
        }
        if tries == 0 || (chunk <= 1 && !shorter) {
            return failure;
        }
        chunk = (chunk / 2).max(1);
    }
}

/// The subject of a failure: its first words.
fn kind(message: &str) -> &str {
    let end = message.find(|c: char| !c.is_alphabetic() && c != ' ' && c != '-');
    &message[..end.unwrap_or(message.len())]
}

fn report(store: &str, seed: u64, failure: &Failure) -> String {
    let mut text = format!("{store} and the reference disagree: {}\n", failure.message);
    text.push_str("after these operations, and none of them can be left out:\n");
    for operation in &failure.operations {
        writeln!(text, "    {operation:?}").expect("a string takes everything");
    }
    write!(
        text,
        "run it again: {SEED}={seed} cargo test -p posthaste-relay --test relay agreement::{store}"
    )
    .expect("a string takes everything");
    text
}
