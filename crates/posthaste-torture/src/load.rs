//! Sixteen writers on two hundred keys, with everything that transactions do.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock},
    task::JoinSet,
};

use crate::database::{
    Database, Hold, KEYS, LOOSE, Plan, Savepoint, Step, Trouble, Writer, load_key,
};

const WRITERS: u64 = 16;
/// Few, so that their transactions meet.
const LOOSE_KEYS: u32 = 20;

/// A writer's conduct when its database fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTrouble {
    /// The database is sound: that is a failure of the test.
    Fail,
    /// It crashes on purpose: connect again.
    Reconnect,
}

/// Writers at work.
pub struct Load {
    shared: Arc<Shared>,
    writers: JoinSet<()>,
    /// Of their own: the test's threads stand still while a command runs, and a writer that stands
    /// still with SQLite's lock keeps the command waiting.
    runtime: Option<Runtime>,
}

impl Drop for Load {
    fn drop(&mut self) {
        // A runtime must not be waited for inside another one, where a lap that failed drops this.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Shared {
    database: Arc<dyn Database>,
    on_trouble: OnTrouble,
    longest_think: Duration,
    stop: AtomicBool,
    commits: AtomicU64,
    /// Held for reading by every transaction under way.
    gate: Arc<RwLock<()>>,
    /// Odd while the database is made to fail.
    failures: AtomicU64,
    experience: Mutex<Experience>,
}

/// How it was to write.
#[derive(Debug, Default, Clone)]
pub struct Experience {
    /// How long transactions took that did not mean to stay open, in no order.
    pub took: Vec<Duration>,
    /// Why transactions failed although the database was sound.
    pub troubles: Vec<String>,
}

/// The database is made to fail while this lives: whoever writes expects it.
pub struct Failing(Arc<Shared>);

impl Drop for Failing {
    fn drop(&mut self) {
        self.0.failures.fetch_add(1, Relaxed);
    }
}

impl Load {
    /// Sets writers to work that make the same transactions each time.
    ///
    /// # Panics
    ///
    /// As [`Self::seeded`].
    #[must_use]
    pub fn start(database: &Arc<dyn Database>, on_trouble: OnTrouble) -> Self {
        Self::seeded(database, on_trouble, 0)
    }

    /// Sets writers to work that make the transactions of this seed.
    ///
    /// # Panics
    ///
    /// When the system has no threads for them.
    #[must_use]
    pub fn seeded(database: &Arc<dyn Database>, on_trouble: OnTrouble, seed: u64) -> Self {
        Self::slower(database, on_trouble, seed, 1)
    }

    /// The same with pauses of writers that are so many times longer.
    ///
    /// # Panics
    ///
    /// As [`Self::seeded`].
    #[must_use]
    pub fn slower(
        database: &Arc<dyn Database>,
        on_trouble: OnTrouble,
        seed: u64,
        slowness: u32,
    ) -> Self {
        let shared = Arc::new(Shared {
            database: Arc::clone(database),
            on_trouble,
            longest_think: database.longest_think() * slowness,
            stop: AtomicBool::default(),
            commits: AtomicU64::default(),
            gate: Arc::default(),
            failures: AtomicU64::default(),
            experience: Mutex::default(),
        });
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("writers")
            .enable_all()
            .build()
            .expect("a runtime");
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let random = SmallRng::seed_from_u64(seed.wrapping_mul(WRITERS).wrapping_add(writer));
            writers.spawn_on(Arc::clone(&shared).work(random), runtime.handle());
        }
        Self {
            shared,
            writers,
            runtime: Some(runtime),
        }
    }

    /// Transactions that were answered as committed.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Relaxed)
    }

    /// No transaction is open, and none begins, while the answer lives.
    pub async fn pause(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.shared.gate).write_owned().await
    }

    /// From now on, and until the answer is dropped, the database fails.
    #[must_use]
    pub fn failing(&self) -> Failing {
        self.shared.failures.fetch_add(1, Relaxed);
        Failing(Arc::clone(&self.shared))
    }

    /// Ends the writers and answers how many transactions they committed.
    ///
    /// # Panics
    ///
    /// When one failed that must not.
    pub async fn stop(self) -> u64 {
        let shared = Arc::clone(&self.shared);
        self.end().await;
        shared.commits.load(Relaxed)
    }

    /// Ends the writers and answers how it was.
    ///
    /// # Panics
    ///
    /// As [`Self::stop`].
    pub async fn end(mut self) -> Experience {
        self.shared.stop.store(true, Relaxed);
        while let Some(ended) = self.writers.join_next().await {
            ended.expect("a writer");
        }
        self.shared.experience.lock().unwrap().clone()
    }
}

impl Shared {
    async fn work(self: Arc<Self>, mut random: SmallRng) {
        while !self.stop.load(Relaxed) {
            let before = self.failures.load(Relaxed);
            let Err(trouble) = self.session(&mut random).await else {
                return;
            };
            assert!(
                self.on_trouble == OnTrouble::Reconnect,
                "a writer failed: {trouble}"
            );
            // Connections from before a failure end by it, be it later.
            if before.is_multiple_of(2) && before == self.failures.load(Relaxed) {
                let mut experience = self.experience.lock().unwrap();
                experience.troubles.push(trouble.to_string());
            }
            // The server needs the processor more than we do while it recovers.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn session(&self, random: &mut SmallRng) -> Result<(), Trouble> {
        let mut writer = self.database.writer().await?;
        while !self.stop.load(Relaxed) {
            let open = Arc::clone(&self.gate).read_owned().await;
            self.transact(&mut *writer, random, open).await?;
            let think = self.longest_think.mul_f64(random.random_range(0.0..1.0));
            tokio::time::sleep(think).await;
        }
        Ok(())
    }

    async fn transact(
        &self,
        writer: &mut dyn Writer,
        random: &mut SmallRng,
        _open: OwnedRwLockReadGuard<()>,
    ) -> Result<(), Trouble> {
        let plan = random_plan(random, &*self.database);
        let began = Instant::now();
        let transacted = writer.transact(&plan).await;
        let took = began.elapsed();
        transacted.map_err(|trouble| format!("after {took:?}: {trouble:?}"))?;
        self.commits.fetch_add(u64::from(!plan.rolls_back), Relaxed);
        if matches!(plan.hold, Hold::No) {
            self.experience.lock().unwrap().took.push(took);
        }
        Ok(())
    }
}

/// One to three steps; 10 % roll back, a quarter of the steps have a savepoint, 3 % of the
/// transactions stay open for a while, a few of them for long. Every tenth locks nothing, where
/// others can go on beside it.
fn random_plan(random: &mut SmallRng, database: &dyn Database) -> Plan {
    let loose = database.writes_at_once() && random.random_bool(0.1);
    let mut steps: Vec<_> = (0..random.random_range(1..=3))
        .map(|_| {
            let savepoint = match random.random_range(0..8) {
                0 => Savepoint::Kept,
                1 => Savepoint::RolledBack,
                _ => Savepoint::None,
            };
            let key = if loose {
                format!("{LOOSE}{}", random.random_range(0..LOOSE_KEYS))
            } else {
                load_key(random.random_range(0..KEYS))
            };
            Step {
                savepoint,
                ..Step::new(key, random.random_range(1..=3))
            }
        })
        .collect();
    steps.sort_by(|a, b| a.key.cmp(&b.key));
    let longest_hold = database.longest_hold();
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
