//! The databases that a run can have: what writers and crashes do to them. Relays see the
//! [`Store`].

mod postgres;

use std::{sync::Arc, time::Duration};

use posthaste_engine::Store;
use posthaste_relay::memory::{MemoryMode, MemoryStore, MemoryTransaction, NewEvent};
use uuid::Uuid;

use crate::faults::Reached;
pub(crate) use postgres::Postgres;

/// A simulated database.
pub trait Database: Send + Sync {
    /// The store that relays are given.
    fn store(&self) -> Arc<dyn Store>;

    /// Begins a writer's transaction.
    fn begin(&self) -> Box<dyn Writing>;

    /// Crashes and starts again. Answers the committed events that are gone with it.
    fn crash(&self) -> Vec<Uuid>;

    /// Fails over to a standby. Answers the committed events that are gone with it; none: there is
    /// no standby. `synchronous`: the standby has all that a commit has waited for; else it may
    /// lag.
    fn fail_over(&self, synchronous: bool) -> Option<Vec<Uuid>>;

    /// Ends all connections, which new ones replace at once. False: there are none.
    fn cut_connections(&self) -> bool {
        false
    }

    /// The standby catches up.
    fn replicate(&self) {}

    /// Stops the server, which breaks all connections, or starts it again.
    fn set_up(&self, up: bool) {
        let _ = up;
    }

    /// Sets its clock by so many seconds. False: it has none of its own.
    fn step_clock(&self, seconds: i64) -> bool;

    /// Changes the number of partitions that destinations are to have. False: it cannot.
    fn repartition(&self, partitions: u16) -> bool;

    /// Every destination that was created, with the events that were gone by then.
    fn created(&self) -> Vec<Arc<(String, Vec<Uuid>)>> {
        Vec::new()
    }

    /// Where its own counters say that it came to.
    fn reached(&self) -> Vec<(Reached, u64)> {
        Vec::new()
    }
}

/// An open transaction of a writer. Dropped, it is rolled back.
pub trait Writing: Send {
    /// Writes an event. None: the connection broke.
    fn emit(&mut self, event: NewEvent) -> Option<Uuid>;

    /// A place that [`rollback_to`](Self::rollback_to) takes.
    fn savepoint(&mut self) -> usize;

    /// Takes back what was written behind it.
    fn rollback_to(&mut self, savepoint: usize);

    /// Whether [`commit`](Self::commit) knows a commit that is not flushed.
    fn may_stay_unflushed(&self) -> bool {
        false
    }

    /// Commits. False: nothing of it is there. `flushed`: no crash takes it back.
    fn commit(self: Box<Self>, flushed: bool) -> bool;
}

/// For so long the answer to a read is under way, and other calls are made and answered.
const ANSWER_TIME: Duration = Duration::from_millis(5);

/// The memory store, in one of its modes.
pub struct Memory(MemoryStore);

impl Memory {
    /// An empty one.
    #[must_use]
    pub fn new(mode: MemoryMode) -> Self {
        let store = MemoryStore::new(mode).with_counted_ids();
        let store = store.with_answer_time(ANSWER_TIME);
        store.set_retention(Duration::from_secs(20));
        Self(store)
    }
}

impl Database for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn begin(&self) -> Box<dyn Writing> {
        Box::new(self.0.begin())
    }

    fn crash(&self) -> Vec<Uuid> {
        self.0.crash();
        Vec::new()
    }

    fn fail_over(&self, _: bool) -> Option<Vec<Uuid>> {
        None
    }

    fn step_clock(&self, _: i64) -> bool {
        false
    }

    fn repartition(&self, partitions: u16) -> bool {
        self.0.clone().with_partitions(partitions).is_ok()
    }
}

impl Writing for MemoryTransaction {
    fn emit(&mut self, event: NewEvent) -> Option<Uuid> {
        Some(Self::emit(self, event))
    }

    fn savepoint(&mut self) -> usize {
        Self::savepoint(self)
    }

    fn rollback_to(&mut self, savepoint: usize) {
        Self::rollback_to(self, savepoint);
    }

    fn commit(self: Box<Self>, _: bool) -> bool {
        Self::commit(*self).is_ok()
    }
}
