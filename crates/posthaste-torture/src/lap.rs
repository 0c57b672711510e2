//! One lap: a fixture is set, suffers, ends, and is judged.

use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, Instant},
};

use posthaste_testkit::checker::Report;
use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};

use crate::{
    faults::Fault,
    fixture::{DrainedFixture, LapFixture, LapOptions, WINDOW_EVENTS},
    judge::{Judge, assert_sound},
    load::Experience,
    setting::Setting,
    source::Source,
};

/// The faults of a lap, and its end.
#[derive(Debug, Clone)]
pub enum LapPlan {
    /// So many times each of these, in an order drawn by lot.
    Rounds(u32, Vec<Fault>),
    /// Everything that the setting knows, in orders drawn by lot, for so long; a giant transaction
    /// only if so.
    For {
        /// After that nothing new happens.
        time: Duration,
        /// At most one, at the beginning.
        giant: bool,
    },
}

/// A lap to be run.
#[derive(Debug, Clone)]
pub struct Lap {
    /// Where.
    pub setting: Setting,
    /// With what.
    pub options: LapOptions,
    /// The faults, and the end.
    pub plan: LapPlan,
}

/// The result of a lap.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From the first start to the verdict.
    pub took: Duration,
    /// How often each fault happened.
    pub faults: BTreeMap<Fault, u64>,
    /// The checker's counts.
    pub report: Report,
    /// The faults may have repeated so many events (I4).
    pub repeats_max: u64,
    /// Leaves of the outbox that retention emptied.
    pub truncated_leaves: u64,
    /// Crashes after which the database issued numbers a second time.
    pub numbers_issued_again: u32,
    /// Events that the operator skipped.
    pub skipped: usize,
    /// How it was to write.
    pub experience: Experience,
    /// In words, each beginning with its promise; none is what is hoped for.
    pub violations: Vec<String>,
}

impl Lap {
    /// Runs it.
    ///
    /// # Panics
    ///
    /// When something does not happen that was waited for (I5), a relay ends by itself or panics,
    /// or the torture itself fails.
    pub async fn run(&self) -> Outcome {
        let began = Instant::now();
        let mut fixture = LapFixture::start(self.setting, self.options.clone()).await;
        let mut faults = BTreeMap::new();
        let mut order = Order::of(self);
        while let Some(fault) = order.next() {
            println!("  {fault}");
            fixture.inject(fault).await;
            *faults.entry(fault).or_default() += 1;
            // Every other round one fault follows on the other, before shares are equal again.
            if order.round.is_multiple_of(2) {
                fixture.is_shared_out().await;
            }
        }
        let drained = fixture.drain().await;
        self.judge(began, faults, drained).await
    }

    async fn judge(
        &self,
        began: Instant,
        faults: BTreeMap<Fault, u64>,
        drained: DrainedFixture,
    ) -> Outcome {
        let database = drained.source.database();
        let mut facts = database.facts().await;
        assert_sound(&facts);
        let skipped: HashSet<_> = drained.skipped.iter().collect();
        facts.retain(|fact| !skipped.contains(&fact.id));
        let mut judge = Judge::of(&facts);
        for delivery in drained.target.deliveries() {
            judge.delivered(&delivery);
        }
        let windows = faults
            .iter()
            .map(|(fault, times)| fault.windows(self.options.relays) * times);
        let mut outcome = Outcome {
            took: began.elapsed(),
            report: judge.finish(),
            repeats_max: WINDOW_EVENTS * windows.sum::<u64>(),
            truncated_leaves: drained.source.truncated_leaves(),
            numbers_issued_again: drained.numbers_issued_again,
            skipped: skipped.len(),
            experience: drained.experience,
            violations: Vec::new(),
            faults,
        };
        outcome.violations = self.violations(&outcome, &drained.source);
        let parked = database.parked_with_an_attempt().await;
        let refused = [Fault::Poison, Fault::TopicsDeleted];
        if parked > 0
            && !refused
                .iter()
                .any(|fault| outcome.faults.contains_key(fault))
        {
            let parked = format!("an outage is no poison event: parked {parked} times");
            outcome.violations.push(parked);
        }
        outcome
    }

    /// First deliveries are judged, everywhere. Where only time fences a lane, a process that stood
    /// still, or bytes that a network kept, may bring a repeat late, even last: such are counted,
    /// and no violation.
    fn violations(&self, outcome: &Outcome, source: &Source) -> Vec<String> {
        let report = &outcome.report;
        let mut counts = vec![
            ("I1: events lost", report.lost),
            ("I2: phantoms", report.phantom),
            ("I3: first deliveries out of order", report.out_of_order),
            (
                "I4: repeats beyond what the faults may bring",
                report.duplicates.saturating_sub(outcome.repeats_max),
            ),
        ];
        if self.setting.is_exactly_once() {
            let times = outcome.faults.get(&Fault::TopicsDeleted).unwrap_or(&0);
            // A deleted progress forgets the events that were accepted and not yet stored.
            let forgotten =
                WINDOW_EVENTS * Fault::TopicsDeleted.windows(self.options.relays) * times;
            let repeats = report.duplicates.saturating_sub(forgotten);
            counts.push(("effectively once: repeats", repeats));
            if forgotten == 0 {
                counts.push(("effectively once: broken replays", report.broken_replays));
            }
        }
        let counted = counts.into_iter().filter(|(_, count)| *count > 0);
        let mut violations: Vec<_> = counted
            .map(|(what, count)| format!("{what}: {count}"))
            .collect();
        if !violations.is_empty() {
            violations.extend(report.examples.iter().cloned());
        }
        let thefts = source.thefts().into_iter();
        violations.extend(thefts.map(|theft| format!("I8: {theft}")));
        let troubles = outcome.experience.troubles.iter();
        violations.extend(troubles.map(|trouble| format!("I11: a writer failed: {trouble}")));
        let waits = source.long_waits().into_iter();
        violations.extend(waits.map(|wait| format!("I11: waited for a table: {wait}")));
        violations
    }
}

impl Outcome {
    /// Asserts that no promise was broken, and shows everything.
    ///
    /// # Panics
    ///
    /// When one was.
    pub fn assert_good(&self) {
        println!("{:?}: {}", self.faults, self.report);
        assert!(
            self.violations.is_empty(),
            "{:#?}\n{}",
            self.violations,
            self.report
        );
    }
}

/// Faults in rounds, each with every one of them once, shuffled.
struct Order {
    random: SmallRng,
    each: Vec<Fault>,
    left: Vec<Fault>,
    round: u32,
    rounds_max: u32,
    until: Option<Instant>,
}

impl Order {
    fn of(lap: &Lap) -> Self {
        // Another one than the fixture's, which does not draw the same number of times in each run.
        let random = SmallRng::seed_from_u64(!lap.options.seed);
        let knows = |fault: &&Fault| {
            lap.setting.knows(**fault, lap.options.relays)
                && (**fault != Fault::WriterKill || lap.options.writer.is_some())
                && (**fault != Fault::StandbyReader || lap.options.standby)
        };
        match &lap.plan {
            LapPlan::Rounds(rounds, faults) => Self {
                random,
                each: faults.iter().filter(knows).copied().collect(),
                left: Vec::new(),
                round: 0,
                rounds_max: *rounds,
                until: None,
            },
            LapPlan::For { time, giant } => {
                let mut each: Vec<Fault> = Fault::ALL.iter().filter(knows).copied().collect();
                let giants = each.extract_if(.., |fault| *fault == Fault::Giant);
                let left: Vec<Fault> = if *giant {
                    giants.collect()
                } else {
                    drop(giants);
                    Vec::new()
                };
                // The most frequent thing to happen to a relay, and the cheapest.
                each.extend([Fault::Kill; 3]);
                Self {
                    random,
                    each,
                    left,
                    round: 0,
                    rounds_max: u32::MAX,
                    until: Some(Instant::now() + *time),
                }
            }
        }
    }
}

impl Iterator for Order {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        if self.left.is_empty() && self.round < self.rounds_max {
            self.left.clone_from(&self.each);
            self.left.shuffle(&mut self.random);
            self.round += 1;
        }
        self.left.pop()
    }
}
