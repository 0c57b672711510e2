//! The simulated PostgreSQL: the store's own rules over versions of rows, snapshots and a sequence.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use posthaste_engine::Store;
use posthaste_relay::memory::NewEvent;
use posthaste_stores::postgres::simulated::{Commit, Settings, SimulatedPostgres, Transaction};
use uuid::Uuid;

use super::{Database, Writing};
use crate::{
    faults::Reached,
    seed::{Emphasis, Seed},
    trace::Trace,
};

/// The simulated PostgreSQL.
pub(crate) struct Postgres {
    server: SimulatedPostgres,
}

/// Rows of a leaf, as a power of two: so few that the ring goes round while a run lasts, or just so
/// many that a leaf is worth a lock and goes as a whole.
const LEAF_BITS: [u8; 2] = [6, 10];
/// So few that differences are cut.
const PAGE_EVENTS: usize = 16;

impl Postgres {
    pub(crate) fn new(seed: Seed, trace: &Trace) -> Self {
        let (dice, other) = (trace.clone(), trace.clone());
        let emphasis = seed.emphasis;
        let settings = Settings {
            seed: seed.number,
            leaf_bits: match emphasis {
                Emphasis::Retention => LEAF_BITS[0],
                _ => LEAF_BITS[usize::from(!seed.number.is_multiple_of(2))],
            },
            page_events: PAGE_EVENTS,
            pooled: emphasis == Emphasis::Pooler,
            retention: Duration::from_secs(match emphasis {
                Emphasis::Retention => 1,
                _ => 10,
            }),
            step: Arc::new(move || match emphasis {
                Emphasis::Retention if !dice.is_quiet() && dice.one_in(4) => dice.millis(1, 25),
                _ if dice.one_in(40) => dice.millis(1, 25),
                _ => Duration::ZERO,
            }),
            under_way: Arc::new(move || match emphasis {
                Emphasis::Zombies if !other.is_quiet() && other.one_in(30) => {
                    other.millis(300, 4_000)
                }
                _ => Duration::ZERO,
            }),
            ..Settings::default()
        };
        Self {
            server: SimulatedPostgres::new(settings),
        }
    }

    /// Lets `die` happen; answers the committed events that are gone with it.
    fn lost(&self, die: impl FnOnce(&SimulatedPostgres)) -> Vec<Uuid> {
        let before = self.server.committed();
        die(&self.server);
        let after: BTreeSet<Uuid> = events(&self.server.committed()).collect();
        events(&before).filter(|id| !after.contains(id)).collect()
    }
}

fn events(commits: &[Commit]) -> impl Iterator<Item = Uuid> {
    commits
        .iter()
        .flat_map(|commit| commit.events.iter().copied())
}

impl Database for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.server.clone())
    }

    fn begin(&self) -> Box<dyn Writing> {
        Box::new(self.server.begin())
    }

    fn crash(&self) -> Vec<Uuid> {
        self.lost(SimulatedPostgres::crash)
    }

    fn fail_over(&self, synchronous: bool) -> Option<Vec<Uuid>> {
        if synchronous {
            self.server.replicate_flushed();
        }
        Some(self.lost(SimulatedPostgres::fail_over))
    }

    fn cut_connections(&self) -> bool {
        self.server.cut_connections();
        true
    }

    fn replicate(&self) {
        self.server.replicate();
    }

    fn set_up(&self, up: bool) {
        match up {
            true => self.server.start(),
            false => self.server.stop(),
        }
    }

    fn step_clock(&self, seconds: i64) -> bool {
        self.server.step_clock(seconds * 1_000_000);
        true
    }

    fn repartition(&self, partitions: u16) -> bool {
        let server = self.server.clone();
        // An operator who finds the database away gives up.
        tokio::spawn(async move { server.set_partitions(partitions).await });
        true
    }

    fn created(&self) -> Vec<Arc<(String, Vec<Uuid>)>> {
        self.server.created()
    }

    fn reached(&self) -> Vec<(Reached, u64)> {
        let counted = self.server.counters();
        vec![
            (Reached::StragglerInXip, counted.stragglers),
            (Reached::CutDifference, counted.cut_differences),
            (
                Reached::TakeOverWhileParked,
                counted.take_overs_while_parked,
            ),
            (
                Reached::TruncationBesideBlockedKey,
                counted.truncations_beside_a_blocked_key,
            ),
            (Reached::NumbersAgain, counted.numbers_again),
            (Reached::ValuesAgain, counted.values_again),
            (Reached::UnheardStatement, counted.unheard),
        ]
    }
}

impl Writing for Transaction {
    fn emit(&mut self, event: NewEvent) -> Option<Uuid> {
        Self::emit(self, &event).ok()
    }

    fn savepoint(&mut self) -> usize {
        Self::savepoint(self)
    }

    fn rollback_to(&mut self, savepoint: usize) {
        // Where the connection broke nothing will be committed either.
        let _ = Self::rollback_to(self, savepoint);
    }

    fn may_stay_unflushed(&self) -> bool {
        true
    }

    fn commit(self: Box<Self>, flushed: bool) -> bool {
        match flushed {
            true => Self::commit(*self).is_ok(),
            false => self.commit_unflushed().is_ok(),
        }
    }
}
