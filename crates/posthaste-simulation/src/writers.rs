//! Writers: transactions that overlap, roll back, stay open for long; most hold a lock on their
//! keys, some do not.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_relay::memory::NewEvent;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use uuid::Uuid;

use crate::{
    database::{Database, Writing},
    faults::Injection,
    payload,
    seen::Seen,
    trace::Trace,
};

pub(crate) const KEYS: u64 = 12;
const FREE_KEYS: u64 = 3;
/// The topic whose queue is full now and then.
pub(crate) const FULL: &str = "full";

const OTHERS: &str = "t";

fn topic_of(key: Option<&str>) -> &'static str {
    match key {
        Some(key) if key.ends_with(['1', '3', '7']) => FULL,
        _ => OTHERS,
    }
}

/// The business rows: the last number of each key, under its lock.
#[derive(Clone)]
pub(crate) struct BusinessTable {
    rows: Arc<Mutex<BTreeMap<u64, Arc<AsyncMutex<u64>>>>>,
    transactions: Arc<AtomicU64>,
    free: Arc<AtomicU64>,
    pub(crate) closed: Arc<AtomicBool>,
    trace: Trace,
    database: Arc<dyn Database>,
}

struct Written {
    id: Uuid,
    topic: &'static str,
    key: Option<Arc<str>>,
    n: u64,
    serialised: bool,
}

/// An open transaction and what it holds.
struct Work {
    open: Box<dyn Writing>,
    written: Vec<Written>,
    /// The locked rows, with the numbers that they will have.
    rows: Vec<(u64, OwnedMutexGuard<u64>, u64)>,
}

impl BusinessTable {
    pub(crate) fn new(trace: Trace, database: Arc<dyn Database>) -> Self {
        Self {
            rows: Arc::default(),
            transactions: Arc::default(),
            free: Arc::default(),
            closed: Arc::default(),
            trace,
            database,
        }
    }

    fn row(&self, key: u64) -> Arc<AsyncMutex<u64>> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(rows.entry(key).or_default())
    }

    /// Writes until the table is closed.
    pub(crate) async fn write(self) {
        while !self.closed.load(Relaxed) {
            self.transaction().await;
            tokio::time::sleep(self.trace.millis(1, 160)).await;
        }
    }

    async fn transaction(&self) {
        let trace = &self.trace;
        let mut keys: Vec<u64> = (0..=trace.roll(3)).map(|_| trace.roll(KEYS)).collect();
        keys.sort_unstable();
        keys.dedup();
        // Locked in order, so that writers do not wait for each other in a circle.
        let mut rows = Vec::new();
        for key in keys {
            let guard = self.row(key).lock_owned().await;
            let n = *guard;
            rows.push((key, guard, n));
        }
        let mut work = Work {
            open: self.database.begin(),
            written: Vec::new(),
            rows,
        };
        let count = if trace.one_in(50) {
            trace.inject(Injection::Burst);
            60 + trace.roll(120)
        } else {
            1 + trace.roll(4)
        };
        for _ in 0..count {
            if !self.emit(&mut work) {
                return;
            }
            if count < 10 && trace.one_in(4) {
                tokio::time::sleep(trace.millis(1, 60)).await;
            }
        }
        if trace.one_in(15) {
            self.take_back(&mut work);
        }
        if trace.one_in(25) {
            trace.inject(Injection::LongTransaction);
            tokio::time::sleep(trace.millis(1_000, 9_000)).await;
        }
        if trace.one_in(12) {
            trace.inject(Injection::Rollback);
            return;
        }
        self.commit(work);
    }

    /// Writes something behind a savepoint and takes it back.
    fn take_back(&self, work: &mut Work) {
        let before: Vec<u64> = work.rows.iter().map(|(_, _, n)| *n).collect();
        let (savepoint, written) = (work.open.savepoint(), work.written.len());
        if !self.emit(work) {
            return;
        }
        self.trace.inject(Injection::SavepointRollback);
        work.open.rollback_to(savepoint);
        work.written.truncate(written);
        for ((_, _, n), before) in work.rows.iter_mut().zip(before) {
            *n = before;
        }
    }

    /// Writes one event. False: the connection broke.
    fn emit(&self, work: &mut Work) -> bool {
        let trace = &self.trace;
        let (key, n, serialised) = match trace.roll(10) {
            0 => (None, 0, false),
            1 => {
                let key = format!("free{}", trace.roll(FREE_KEYS));
                (Some(key), self.free.fetch_add(1, Relaxed), false)
            }
            _ => {
                let at = usize::try_from(trace.roll(work.rows.len() as u64)).unwrap_or_default();
                let (key, _, n) = &mut work.rows[at];
                *n += 1;
                (Some(format!("k{key}")), *n, true)
            }
        };
        let poison = match trace.roll(240) {
            0 => 1_000,
            1..=3 => 1 + trace.roll(3),
            _ => 0,
        };
        // Some keys go to both topics.
        let topic = match topic_of(key.as_deref()) {
            FULL if n.is_multiple_of(3) => OTHERS,
            topic => topic,
        };
        let event = NewEvent {
            topic: topic.into(),
            key: key.clone(),
            payload: Some(payload::of(n, poison)),
            ..NewEvent::default()
        };
        let Some(id) = work.open.emit(event) else {
            return false;
        };
        let key = key.map(Into::into);
        work.written.push(Written {
            id,
            topic,
            key,
            n,
            serialised,
        });
        true
    }

    fn commit(&self, work: Work) {
        let transaction = self.transactions.fetch_add(1, Relaxed);
        let Work {
            open,
            written,
            mut rows,
        } = work;
        let flushed =
            !(open.may_stay_unflushed() && !self.trace.is_quiet() && self.trace.one_in(6));
        if !flushed {
            self.trace.inject(Injection::UnflushedCommit);
        }
        if !open.commit(flushed) {
            return;
        }
        for Written {
            id,
            topic,
            key,
            n,
            serialised,
        } in written
        {
            self.trace.see(&Seen::Committed {
                id,
                topic,
                key,
                n,
                transaction,
                serialised,
            });
        }
        for (_, row, n) in &mut rows {
            **row = *n;
        }
    }

    /// Writes an event of each key four times a second: what goes one at a time keeps up with that.
    pub(crate) async fn write_calmly(&self, time: Duration) {
        const PAUSE: Duration = Duration::from_millis(250);
        let mut left = time.as_millis() / PAUSE.as_millis();
        while left > 0 {
            left -= 1;
            for key in 0..KEYS {
                let guard = self.row(key).lock_owned().await;
                let n = *guard + 1;
                let mut open = self.database.begin();
                let key: Arc<str> = format!("k{key}").into();
                let topic = topic_of(Some(&*key));
                let event = NewEvent {
                    topic: topic.into(),
                    key: Some(key.to_string()),
                    payload: Some(payload::of(n, 0)),
                    ..NewEvent::default()
                };
                let written = open.emit(event).map(|id| Written {
                    id,
                    topic,
                    key: Some(key),
                    n,
                    serialised: true,
                });
                self.commit(Work {
                    open,
                    written: written.into_iter().collect(),
                    rows: vec![(0, guard, n)],
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
