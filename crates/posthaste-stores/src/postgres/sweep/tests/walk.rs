//! Random histories: many more than anybody would write down, each by its seed.

use std::collections::HashMap;

use posthaste_testkit::long_form;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{
    Advance,
    sim::{Naive, Rules, Sent, Trial},
};

const STEPS: u32 = 120;

/// A relay with what it has under way, writers that lock a key before they insert, and faults.
struct Walk {
    trial: Trial,
    random: SmallRng,
    /// Open writers by key: transaction and rows to come.
    writers: HashMap<u32, (u64, u32)>,
    poll: Option<Sent>,
    advance: Option<(Advance, Option<u64>)>,
    /// Whether the database is copied now and then.
    copies: bool,
}

impl Walk {
    fn new(seed: u64, rules: Rules) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut trial = Trial::new(rules);
        trial.page_size = random.random_range(1..4);
        trial.bits = random.random_range(1..4);
        trial.restart(0);
        Self {
            trial,
            random,
            writers: HashMap::new(),
            poll: None,
            advance: None,
            copies: false,
        }
    }

    fn with_copies(mut self) -> Self {
        self.copies = true;
        self
    }

    fn write(&mut self) {
        let key = self.random.random_range(0..4);
        let Some((xid, rows)) = self.writers.get_mut(&key) else {
            let rows = self.random.random_range(0..4);
            self.writers.insert(key, (self.trial.db.begin(), rows));
            return;
        };
        let xid = *xid;
        if *rows > 0 {
            *rows -= 1;
            self.trial.db.insert(xid, key);
            return;
        }
        self.writers.remove(&key);
        if self.random.random_bool(0.2) {
            self.trial.db.abort(xid);
        } else {
            self.trial.db.commit(xid);
        }
    }

    fn read(&mut self) {
        match self.poll.take() {
            Some(sent) => self.trial.take(sent),
            None => self.poll = Some(self.trial.send()),
        }
    }

    /// Sent, then numbered, then committed and answered, each at its own time.
    fn move_cursor(&mut self) {
        match self.advance.take() {
            None => self.advance = self.trial.advance_send().map(|advance| (advance, None)),
            Some((advance, None)) => match self.trial.advance_begin() {
                Some(xid) => self.advance = Some((advance, Some(xid))),
                None => self.forget(),
            },
            Some((mut advance, Some(xid))) => {
                self.trial.advance_commit(&mut advance, xid);
                self.trial.sweep.advanced(&advance);
            }
        }
    }

    fn forget(&mut self) {
        self.poll = None;
        if let Some((_, Some(xid))) = self.advance.take() {
            self.trial.db.abort(xid);
        }
        if self.random.random_bool(0.5) {
            self.trial.claim();
        } else {
            self.trial.restart(0);
        }
    }

    fn crash(&mut self) {
        self.writers.clear();
        self.advance = None;
        self.trial.db.crash();
        self.forget();
    }

    /// Somebody may write to the copy before its era begins.
    fn copy(&mut self) {
        self.writers.clear();
        self.advance = None;
        self.trial.db.copy(self.random.random_range(3..200));
        for _ in 0..self.random.random_range(0..3) {
            let (xid, key) = (self.trial.db.begin(), self.random.random_range(0..4));
            self.trial.db.insert(xid, key);
            self.trial.db.commit(xid);
        }
        self.trial.begin_era();
        self.forget();
    }

    fn run(mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            match self.random.random_range(0..100) {
                0..45 => self.write(),
                45..75 => self.read(),
                75..95 => self.move_cursor(),
                95..97 => self.forget(),
                97 if self.copies && self.random.random_bool(0.7) => self.copy(),
                97 => self.crash(),
                _ => self.trial.db.truncate(),
            }
        }
        for (xid, _) in std::mem::take(&mut self.writers).into_values() {
            self.trial.db.commit(xid);
        }
        self.forget();
        self.trial.verdict()
    }
}

/// Histories until a rule that is left out has to be missed.
const SEEDS_MAX: u64 = 20_000;

fn histories() -> u64 {
    if long_form() { 200_000 } else { 5_000 }
}

#[test]
fn random_histories_lose_and_invert_nothing() {
    for seed in 0..histories() {
        if let Err(broken) = Walk::new(seed, Rules::default()).run() {
            panic!("seed {seed}: {broken}");
        }
    }
}

#[test]
fn random_copies_lose_and_invert_nothing() {
    for seed in 0..histories() {
        if let Err(broken) = Walk::new(seed, Rules::default()).with_copies().run() {
            panic!("seed {seed}: {broken}");
        }
    }
    let naive = |seed| Walk::new(seed, Rules(Some(Naive::CopyWithoutEra)));
    let found = (0..SEEDS_MAX).any(|seed| naive(seed).with_copies().run().is_err());
    assert!(found, "a copy without an era was not found");
}

#[test]
fn the_walker_finds_left_out_rules() {
    for naive in [
        Naive::UnprovenFloor,
        Naive::StragglerTakesNewFloor,
        Naive::ProofAtTheAnswer,
        Naive::SequenceReadByTheAdvance,
        Naive::FloorMinWithoutStragglers,
        Naive::FinishedStragglerOnePollLate,
        Naive::ShortPageIsTheEnd,
    ] {
        let found = (0..SEEDS_MAX).any(|seed| Walk::new(seed, Rules(Some(naive))).run().is_err());
        assert!(found, "{naive:?} was not found");
    }
}
