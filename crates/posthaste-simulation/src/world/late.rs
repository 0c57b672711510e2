//! Destinations that come late, beside a retention that is asked for just then.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::{Plan, World};
use crate::{observed::place_of, seed::Emphasis, seen::Seen};

/// How often operators ask for retention when a destination comes.
const PURGES: usize = 60;

pub(super) struct Late {
    /// The destinations that new relays know of; the others come later.
    pub(super) known: usize,
    next_at: Instant,
    every: Duration,
    /// Creations that were noted.
    noted: AtomicUsize,
}

impl Late {
    pub(super) fn new(plan: &Plan) -> Self {
        let late = plan.emphasis == Emphasis::Retention;
        let every = plan.lasts / 6;
        Self {
            known: if late { 1 } else { plan.kinds.len() },
            next_at: Instant::now() + every,
            every,
            noted: AtomicUsize::new(0),
        }
    }
}

impl Late {
    /// Events that were left behind may be owed again when a database dies; these are not.
    pub(super) fn note_again(&self) {
        self.noted.store(0, Relaxed);
    }
}

impl World {
    /// A relay that knows one destination more is started when it is time.
    pub(super) fn late_destinations(&mut self) {
        self.note_what_was_gone();
        let is_time = Instant::now() >= self.late.next_at;
        if is_time && self.late.known < self.brokers.len() {
            self.late.known += 1;
            self.late.next_at += self.late.every;
            self.purge();
            self.start();
        }
    }

    /// Events that retention had removed before a destination was created are not owed there.
    pub(super) fn note_what_was_gone(&self) {
        let created = self.database.created();
        for creation in &created[self.late.noted.swap(created.len(), Relaxed)..] {
            let (name, gone) = &**creation;
            let place = place_of(name);
            for id in gone {
                self.trace.see(&Seen::LeftBehind { place, id: *id });
            }
        }
    }

    /// A fail-over left another history behind: what was gone for its destinations is told once
    /// more.
    pub(super) fn note_again_what_was_gone(&self) {
        self.late.noted.store(0, Relaxed);
        self.note_what_was_gone();
    }

    /// Operators ask for retention, again and again for a while.
    fn purge(&self) {
        let (store, trace) = (self.database.store(), self.trace.clone());
        tokio::spawn(async move {
            for _ in 0..PURGES {
                // Where the database is away nothing is removed.
                drop(store.housekeep(None).await);
                tokio::time::sleep(trace.millis(1, 20)).await;
            }
        });
    }
}
