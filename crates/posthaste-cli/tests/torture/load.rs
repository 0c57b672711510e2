//! Sixteen writers on two hundred keys, with everything that transactions do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{sync::RwLock, task::JoinSet};

use crate::database::{Database, Hold, KEYS, Plan, Savepoint, Step, Trouble, load_key};

const WRITERS: u64 = 16;

/// What a writer does when its database fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTrouble {
    /// The database is sound: that is a failure of the test.
    Fail,
    /// It crashes on purpose: connect again.
    Reconnect,
}

/// Writers at work.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    /// Held for reading by every transaction under way.
    gate: Arc<RwLock<()>>,
    writers: JoinSet<()>,
}

impl Load {
    pub(crate) fn start(database: &Arc<dyn Database>, on_trouble: OnTrouble) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            commits: Arc::default(),
            gate: Arc::default(),
            writers: JoinSet::new(),
        };
        for seed in 0..WRITERS {
            let writer = Worker {
                database: Arc::clone(database),
                stop: Arc::clone(&load.stop),
                commits: Arc::clone(&load.commits),
                gate: Arc::clone(&load.gate),
                on_trouble,
            };
            load.writers
                .spawn(writer.work(SmallRng::seed_from_u64(seed)));
        }
        load
    }

    /// Transactions that were answered as committed.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    /// No transaction is open, and none begins, while the answer lives.
    pub(crate) async fn pause(&self) -> impl Drop {
        Arc::clone(&self.gate).write_owned().await
    }

    /// Ends the writers and answers how many transactions they committed.
    pub(crate) async fn stop(mut self) -> u64 {
        self.stop.store(true, Relaxed);
        while let Some(ended) = self.writers.join_next().await {
            ended.expect("a writer");
        }
        self.commits()
    }
}

struct Worker {
    database: Arc<dyn Database>,
    stop: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    gate: Arc<RwLock<()>>,
    on_trouble: OnTrouble,
}

impl Worker {
    async fn work(self, mut random: SmallRng) {
        while !self.stop.load(Relaxed) {
            let Err(trouble) = self.session(&mut random).await else {
                return;
            };
            assert!(
                self.on_trouble == OnTrouble::Reconnect,
                "a writer failed: {trouble:?}"
            );
            // The server needs the processor more than we do while it recovers.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn session(&self, random: &mut SmallRng) -> Result<(), Trouble> {
        let mut writer = self.database.writer().await?;
        while !self.stop.load(Relaxed) {
            let plan = random_plan(random, self.database.longest_hold());
            let open = self.gate.read().await;
            writer.transact(&plan).await?;
            self.commits.fetch_add(u64::from(!plan.rolls_back), Relaxed);
            drop(open);
            let think = self.database.longest_think();
            tokio::time::sleep(think.mul_f64(random.random_range(0.0..1.0))).await;
        }
        Ok(())
    }
}

/// One to three steps; 10 % roll back, a quarter of the steps have a savepoint, 3 % of the
/// transactions stay open for a while, a few of them for long.
fn random_plan(random: &mut SmallRng, longest_hold: Duration) -> Plan {
    let mut steps: Vec<_> = (0..random.random_range(1..=3))
        .map(|_| {
            let savepoint = match random.random_range(0..8) {
                0 => Savepoint::Kept,
                1 => Savepoint::RolledBack,
                _ => Savepoint::None,
            };
            let key = load_key(random.random_range(0..KEYS));
            Step {
                savepoint,
                ..Step::new(key, random.random_range(1..=3))
            }
        })
        .collect();
    steps.sort_by(|a, b| a.key.cmp(&b.key));
    let hold = match random.random_range(0..1000) {
        0..3 => Hold::For(longest_hold),
        3..30 => Hold::For(longest_hold.mul_f64(random.random_range(0.0..0.1))),
        _ => Hold::No,
    };
    Plan {
        steps,
        hold,
        rolls_back: random.random_bool(0.1),
    }
}
