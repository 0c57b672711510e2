//! The one source of chance, and the one memory of what happened.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    io::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use crate::{
    checkers::{Checkers, Owed, Rules},
    faults::{Injection, Reached},
    seen::{At, Seen},
};

/// Shared by everything of a run. One thread runs it all, so that the order of draws is the order
/// of steps.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<TraceState>>);

struct TraceState {
    began: Instant,
    dice: SmallRng,
    hash: Hash,
    print: bool,
    checkers: Checkers,
    owed: Owed,
    violations: Vec<String>,
    injected: BTreeMap<Injection, u64>,
    reached: BTreeMap<Reached, u64>,
    deliveries: u64,
    steps: u64,
    /// Nothing is drawn to fail any more.
    quiet: bool,
}

/// The result of a run.
pub(crate) struct TraceResult {
    pub(crate) hash: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) injected: BTreeMap<Injection, u64>,
    pub(crate) reached: BTreeMap<Reached, u64>,
    pub(crate) deliveries: u64,
    pub(crate) steps: u64,
    pub(crate) simulated: Duration,
}

/// FNV-1a over the words of the trace.
struct Hash(u64);

impl Write for Hash {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        self.0 = words.bytes().fold(self.0, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Ok(())
    }
}

/// The reader of the trace may have closed it.
fn say(words: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{words}");
}

impl TraceState {
    fn note(&mut self, words: fmt::Arguments<'_>) {
        let at = self.began.elapsed();
        self.steps += 1;
        if self.print {
            say(format_args!("{:>10.3} {words}", at.as_secs_f64()));
        }
        // Writing into a number cannot fail.
        let _ = write!(self.hash, "{} {words}", at.as_millis());
    }
}

impl Trace {
    pub(crate) fn new(seed: u64, rules: &Rules, print: bool) -> Self {
        Self(Arc::new(Mutex::new(TraceState {
            began: Instant::now(),
            dice: SmallRng::seed_from_u64(seed),
            hash: Hash(0xcbf2_9ce4_8422_2325),
            print,
            checkers: Checkers::new(rules),
            owed: Owed::that_reopens(rules.places),
            violations: Vec::new(),
            injected: BTreeMap::new(),
            reached: BTreeMap::new(),
            deliveries: 0,
            steps: 0,
            quiet: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, TraceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number below `sides`.
    pub(crate) fn roll(&self, sides: u64) -> u64 {
        self.lock().dice.random_range(0..sides.max(1))
    }

    pub(crate) fn one_in(&self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    /// From 0 to below 1.
    pub(crate) fn share(&self) -> f64 {
        self.lock().dice.random()
    }

    pub(crate) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.roll(to - from))
    }

    /// Has every fact shown to one more checker.
    #[cfg(test)]
    pub(crate) fn watch(&self, checker: impl crate::checkers::Checker + 'static) {
        self.lock().checkers.add(checker);
    }

    /// Notes a fact, and has it judged.
    pub(crate) fn see(&self, seen: &Seen) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.note(format_args!("{seen:?}"));
        inner.deliveries += u64::from(matches!(seen, Seen::Delivered { .. }));
        inner.owed.see(seen);
        let at: At = inner.began.elapsed();
        let known = inner.violations.len();
        inner.checkers.see(at, seen, &mut inner.violations);
        if inner.print {
            for wrong in &inner.violations[known..] {
                say(format_args!("!!! {wrong}"));
            }
        }
    }

    /// Notes a step that nobody judges.
    pub(crate) fn note(&self, words: fmt::Arguments<'_>) {
        self.lock().note(words);
    }

    pub(crate) fn inject(&self, injection: Injection) {
        let mut inner = self.lock();
        inner.note(format_args!("{injection}"));
        *inner.injected.entry(injection).or_default() += 1;
    }

    pub(crate) fn reach(&self, place: Reached) {
        self.reach_times(place, 1);
    }

    pub(crate) fn reach_times(&self, place: Reached, times: u64) {
        *self.lock().reached.entry(place).or_default() += times;
    }

    /// How many events are owed.
    pub(crate) fn owed(&self) -> usize {
        self.lock().owed.all()
    }

    pub(crate) fn wrong(&self, words: String) {
        self.lock().violations.push(words);
    }

    pub(crate) fn be_quiet(&self, quiet: bool) {
        self.lock().quiet = quiet;
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.lock().quiet
    }

    pub(crate) fn end(&self) -> TraceResult {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.checkers.end(&mut inner.violations);
        TraceResult {
            hash: inner.hash.0,
            violations: std::mem::take(&mut inner.violations),
            injected: std::mem::take(&mut inner.injected),
            reached: std::mem::take(&mut inner.reached),
            deliveries: inner.deliveries,
            steps: inner.steps,
            simulated: inner.began.elapsed(),
        }
    }
}
