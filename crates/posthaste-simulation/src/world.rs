//! One run: what the seed draws happens, everything heals, and what is owed must come.

mod late;
mod plan;
#[cfg(test)]
mod sharing;
mod trouble;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_engine::{
    DeadAction, DestinationState, ParkedFilter, ParkedState, StoreError, rule::leave_out,
};
use posthaste_relay::RelayBuilder;
use tokio::time::Instant;

use crate::{
    broker::{BadKey, Broker, Kind, NETWORK},
    database::{Database, Memory, Postgres},
    faults::{Injection, Reached},
    observed::{Observer, place_of},
    process::{Equipment, LEASE, Process},
    seed::{Emphasis, Seed},
    seen::{DestinationIndex, Seen},
    trace::Trace,
    writers::{BusinessTable, FULL},
};
use late::Late;
use plan::{Engine, Plan};
use trouble::Undo;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Of all steps: equal seeds have equal hashes.
    pub hash: u64,
    /// Broken promises in words, each with its promise's name.
    pub violations: Vec<String>,
    /// Faults by kind.
    pub injected: BTreeMap<Injection, u64>,
    /// Places of the mechanism.
    pub reached: BTreeMap<Reached, u64>,
    /// Events delivered, repeats among them.
    pub deliveries: u64,
    /// Steps of the trace: what was committed, claimed, read, submitted, delivered, stored, or went
    /// wrong.
    pub steps: u64,
    /// Virtual time.
    pub simulated: Duration,
}

/// Runs a seed to its end.
///
/// # Errors
/// When no runtime can be made.
pub fn run(seed: Seed) -> std::io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    let history = || runtime.block_on(history(seed));
    Ok(match seed.leave_out {
        Some(rule) => leave_out(rule, history),
        None => history(),
    })
}

/// The database's clock is set by less, each time.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(20);

struct World {
    plan: Plan,
    trace: Trace,
    observer: Observer,
    database: Arc<dyn Database>,
    database_away: Arc<AtomicBool>,
    brokers: Vec<Broker>,
    late: Late,
    processes: Vec<Process>,
    /// Asked to stop, and not ended yet.
    stopping: Vec<Process>,
    started: u64,
    undo: Vec<(Instant, Undo)>,
    business: BusinessTable,
}

async fn history(seed: Seed) -> Outcome {
    let mut world = World::new(seed);
    world.run().await;
    world.outcome()
}

impl World {
    fn new(seed: Seed) -> Self {
        let plan = Plan::draw(seed);
        let trace = Trace::new(seed.number, &plan.rules(), seed.print);
        let database: Arc<dyn Database> = match plan.engine {
            Engine::Memory(mode) => Arc::new(Memory::new(mode)),
            Engine::Postgres => Arc::new(Postgres::new(seed, &trace)),
        };
        let broker = |(place, kind): (usize, &Kind)| {
            let broker = Broker::new(*kind, place, plan.order_by(place), trace.clone());
            match seed.emphasis {
                // A slow broker keeps a relay sending for long; a wide one makes it repeat much.
                Emphasis::Zombies if seed.number.is_multiple_of(2) => broker.slow(6),
                Emphasis::Zombies => broker.slow(60),
                _ if seed.number.is_multiple_of(5) => broker.scattering(),
                _ => broker,
            }
        };
        World {
            observer: Observer::new(trace.clone()),
            business: BusinessTable::new(trace.clone(), Arc::clone(&database)),
            brokers: plan.kinds.iter().enumerate().map(broker).collect(),
            database,
            database_away: Arc::default(),
            late: Late::new(&plan),
            processes: Vec::new(),
            stopping: Vec::new(),
            started: 0,
            undo: Vec::new(),
            trace,
            plan,
        }
    }

    fn outcome(&self) -> Outcome {
        let evidence = self.trace.end();
        Outcome {
            hash: evidence.hash,
            violations: evidence.violations,
            injected: evidence.injected,
            reached: evidence.reached,
            deliveries: evidence.deliveries,
            steps: evidence.steps,
            simulated: evidence.simulated,
        }
    }

    async fn run(&mut self) {
        self.trace.note(format_args!(
            "{:?} {:?} steps {} drift {}",
            self.plan.engine, self.plan.kinds, self.plan.steps, self.plan.drift
        ));
        let writers: Vec<_> = (0..4)
            .map(|_| tokio::spawn(self.business.clone().write()))
            .collect();
        self.start();
        let until = Instant::now() + self.plan.lasts;
        while Instant::now() < until {
            tokio::time::sleep(self.trace.millis(20, 700)).await;
            self.undo_due().await;
            self.late_destinations();
            self.trouble().await;
            if !self.trace.one_in(4) {
                self.database.replicate();
            }
        }
        self.business.closed.store(true, Relaxed);
        self.heal().await;
        for writer in writers {
            // A writer ends by itself; a panic of it is one of this run.
            if let Err(error) = writer.await {
                self.trace.wrong(format!("a writer failed: {error}"));
            }
        }
        if self.drained().await {
            self.trace.see(&Seen::Drained);
            // Clocks that were set back leave waits that no calm ends soon.
            if !self.plan.steps {
                self.calm().await;
            }
        }
        // A late repeat would come now.
        tokio::time::sleep(NETWORK).await;
        self.close().await;
    }

    fn start(&mut self) {
        self.start_with(|builder| builder);
    }

    fn start_with(&mut self, change: impl FnOnce(RelayBuilder) -> RelayBuilder) {
        self.started += 1;
        let sign = if self.started.is_multiple_of(2) {
            1.0
        } else {
            -1.0
        };
        if self.plan.drift > 0.0 {
            self.trace.inject(Injection::RelayClockDrift);
        }
        let equipment = Equipment {
            trace: &self.trace,
            store: self.database.store(),
            observer: &self.observer,
            database_away: &self.database_away,
            brokers: &self.brokers[..self.late.known],
            policy: self.plan.policy,
            emphasis: self.plan.emphasis,
            settle: self.plan.settle,
            rate: 1.0 + sign * self.plan.drift,
        };
        let process = Process::start(format!("relay-{}", self.started), &equipment, change);
        self.processes.push(process);
    }

    async fn set_paused(&self, place: DestinationIndex, paused: bool) {
        let state = match paused {
            true => DestinationState::Paused,
            false => DestinationState::Active,
        };
        let name = format!("d{place}");
        let store = self.database.store();
        self.answered("pausing", store.set_destination(&name, state).await);
    }

    /// One topic of the destination alone.
    async fn set_topic_paused(&self, place: DestinationIndex, paused: bool) {
        let (name, store) = (format!("d{place}"), self.database.store());
        self.answered("pausing", store.set_place(&name, FULL, paused).await);
    }

    /// An operator's call that fails for another reason than the database's absence is wrong.
    fn answered<T>(&self, what: &str, answer: Result<T, StoreError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) if error.is_retryable() => None,
            Err(error) => {
                self.trace.wrong(format!("{what}: {error}"));
                None
            }
        }
    }

    async fn operate(&mut self) {
        let store = self.database.store();
        let waiting = store.parked(&ParkedFilter::default(), 100).await;
        let waiting = self.answered("listing", waiting).unwrap_or_default();
        match self.trace.roll(5) {
            0 => {
                let place = self.any_place();
                self.trace.inject(Injection::Pause);
                // A whole one, or a topic alone.
                match waiting.len() % 2 {
                    0 => self.set_paused(place, true).await,
                    _ => self.set_topic_paused(place, true).await,
                }
                self.later(5_000, Undo::Pause(place));
            }
            1 | 2 if !waiting.is_empty() => {
                self.trace.inject(Injection::Retry);
                let filter = ParkedFilter::default();
                self.answered("retrying", store.act(&filter, DeadAction::Retry).await);
            }
            3 | 4 if !waiting.is_empty() => {
                let at = usize::try_from(self.trace.roll(waiting.len() as u64));
                let parked = &waiting[at.unwrap_or_default()];
                let filter = ParkedFilter {
                    destination: Some(parked.destination.clone()),
                    id: Some(parked.event.id()),
                    ..ParkedFilter::default()
                };
                let action = match self.trace.one_in(2) {
                    true => DeadAction::Skip,
                    false => DeadAction::Discard,
                };
                let acted = self.answered("skipping", store.act(&filter, action).await);
                if acted.is_some_and(|events| events > 0) {
                    self.trace.inject(Injection::Skip);
                    self.trace.see(&Seen::LeftBehind {
                        place: place_of(&parked.destination),
                        id: parked.event.id(),
                    });
                }
            }
            _ => {}
        }
    }

    async fn ask_for_the_status(&self) {
        self.note_what_was_gone();
        self.trace.see(&Seen::StatusAsked);
        let status = self.database.store().status().await;
        let Some(status) = self.answered("status", status) else {
            return;
        };
        self.note_what_was_gone();
        for destination in status.destinations {
            self.trace.see(&Seen::StatusAnswered {
                place: place_of(&destination.name),
                pending: destination.pending,
                parked: destination.parked + destination.dead,
            });
        }
    }

    /// From here on nothing fails.
    async fn heal(&mut self) {
        self.trace.be_quiet(true);
        self.late.known = self.brokers.len();
        self.undo.clear();
        self.come_back();
        for broker in &self.brokers {
            broker.set_away(false);
            broker.be_content();
        }
        for process in self.processes.iter().chain(&self.stopping) {
            process.heal();
        }
        for place in 0..self.brokers.len() {
            self.set_paused(place, false).await;
            self.set_topic_paused(place, false).await;
        }
        self.start();
        self.trace.see(&Seen::Healed);
    }

    /// Reads the records: a relay that died may not have heard that it had skipped something.
    async fn note_what_was_left_behind(&self) {
        for state in [ParkedState::Skipped, ParkedState::Discarded] {
            let filter = ParkedFilter {
                state: Some(state),
                ..ParkedFilter::default()
            };
            let left = self.database.store().parked(&filter, usize::MAX).await;
            for row in self.answered("listing", left).unwrap_or_default() {
                self.trace.see(&Seen::LeftBehind {
                    place: place_of(&row.destination),
                    id: row.event.id(),
                });
            }
        }
    }

    /// Waits until nothing is owed, longer than it may take; operators have dead events tried again
    /// meanwhile.
    async fn drained(&self) -> bool {
        let limit = self.plan.rules().drain(self.trace.owed()) * 2;
        let (began, store) = (Instant::now(), self.database.store());
        let mut turns = 0;
        while began.elapsed() < limit {
            self.note_what_was_gone();
            if self.business.closed.load(Relaxed) && self.trace.owed() == 0 {
                return true;
            }
            if turns % 40 == 0 {
                let dead = ParkedFilter {
                    state: Some(ParkedState::Dead),
                    ..ParkedFilter::default()
                };
                self.answered("retrying", store.act(&dead, DeadAction::Retry).await);
                self.note_what_was_left_behind().await;
            }
            turns += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }

    /// All is well but for one thing at a time.
    async fn calm(&mut self) {
        // Those who died before are taken over, by a clock that may have been set back.
        tokio::time::sleep(LEASE * 2 + CLOCK_STEP_MAX).await;
        for bad in BadKey::ALL {
            for broker in &self.brokers {
                broker.set_bad_key(Some(("k0".into(), bad)));
            }
            let delay_max = self.plan.delay_beside(bad);
            let key = "k0".into();
            self.trace.see(&Seen::Poisoned { key, delay_max });
            self.business.write_calmly(Duration::from_secs(2)).await;
            tokio::time::sleep(delay_max + Duration::from_secs(1)).await;
            self.well_again().await;
        }
        if self.brokers.len() > 1 {
            self.brokers[0].set_away(true);
            let delay_max = self.plan.delay_max();
            self.trace.see(&Seen::Away {
                place: 0,
                delay_max,
            });
            self.business.write_calmly(Duration::from_secs(2)).await;
            tokio::time::sleep(delay_max + Duration::from_secs(1)).await;
            self.well_again().await;
        }
        while self.processes.len() < 2 {
            self.start();
        }
        // Until the newcomers have their share.
        tokio::time::sleep(LEASE * 2).await;
        self.processes.swap_remove(0).kill(&self.trace);
        self.trace.see(&Seen::LastDeath);
        self.business.write_calmly(Duration::from_secs(1)).await;
        if self.drained().await {
            self.trace.see(&Seen::TakenOver);
        }
    }

    async fn well_again(&self) {
        for broker in &self.brokers {
            broker.set_away(false);
            broker.set_bad_key(None);
        }
        self.trace.see(&Seen::Healed);
        if self.drained().await {
            self.trace.see(&Seen::Drained);
        }
    }

    /// Everybody ends, and the records are read.
    async fn close(&mut self) {
        let mut all: Vec<Process> = std::mem::take(&mut self.processes);
        all.iter_mut().for_each(Process::ask_to_stop);
        all.append(&mut self.stopping);
        for process in all {
            let name = process.name.clone();
            if process.ended(&self.trace).await.is_none() {
                self.trace.wrong(format!("I5: {name} does not stop"));
            }
        }
        let store = self.database.store();
        let mut parked = Vec::new();
        for state in [
            ParkedState::Parked,
            ParkedState::Dead,
            ParkedState::Skipped,
            ParkedState::Discarded,
            ParkedState::Delivered,
        ] {
            let filter = ParkedFilter {
                state: Some(state),
                ..ParkedFilter::default()
            };
            let of_state = store.parked(&filter, usize::MAX).await;
            let of_state = self.answered("listing", of_state).unwrap_or_default();
            let places = of_state.into_iter();
            parked.extend(places.map(|row| (place_of(&row.destination), row.event.id())));
        }
        let lines = store.hand_overs(100_000).await;
        let lines = self.answered("the audit", lines).unwrap_or_default();
        let count = |action: &str| lines.iter().filter(|line| line.action == action).count() as u64;
        self.trace.see(&Seen::Audit {
            take_overs: count("take-over"),
            fences: count("fence"),
            parked,
        });
        for (place, times) in self.database.reached() {
            self.trace.reach_times(place, times);
        }
    }
}
