//! Writing events inside the caller's own transaction.

use uuid::Uuid;

use crate::dialect::Dialect;
use crate::error::EmitError;
use crate::event::Event;
use crate::limits::Limits;
use crate::slot::lock_number;
use crate::statement::{Batch, Statement};
use crate::tx::Tx;

/// Parameters of one statement, in bytes. Below PostgreSQL's default `work_mem` of 4 MB, so that
/// the sort that keeps the order stays in memory, and small enough for client and server to hold
/// whole.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Events of one statement: small events cost the server more memory than their bytes.
const BATCH_EVENTS_MAX: usize = 10_000;

/// An event that was written. It is published once the transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emitted {
    /// The event's identity.
    pub id: Uuid,
}

/// Writes events inside the caller's own transaction: they are published if it commits, and never
/// existed if it, or the savepoint around the emit, rolls back.
///
/// It holds settings only; clone it freely.
///
/// # Order
///
/// Events of one key are first delivered in the order in which their transactions commit, provided
/// that each writer holds a lock on the key that excludes itself *before it emits*: it has updated
/// or locked the business row (`UPDATE`, `DELETE`, `FOR UPDATE`, `FOR NO KEY UPDATE`, an insert
/// under a unique key), or it uses [`Outbox::lock_key`]. Shared locks and locks taken after the
/// emit do not count. A transaction's own events always keep their order.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    limits: Limits,
    lock_key: bool,
}

impl Outbox {
    /// An outbox with the default limits, and without locks of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same outbox with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether each emit first takes a lock on the event's key, held until the transaction ends,
    /// for writers who have no row of their own to lock. Default no.
    ///
    /// [`Outbox::emit_all`] takes the locks of all its keys first, in one global order, so that two
    /// batches cannot deadlock; separate emits for several keys in one transaction can, like row
    /// locks taken in different orders.
    ///
    /// - PostgreSQL: `pg_advisory_xact_lock`. Each key occupies an entry of the server's lock table
    ///   (`max_locks_per_transaction`).
    /// - MySQL and MariaDB: the row of the key's slot in `posthaste_key_locks`, `FOR UPDATE`. Keys
    ///   of one slot, of which there are 16 384, wait for each other. The writer needs the rights
    ///   `SELECT` and `UPDATE` on that table, and must be in a transaction: in autocommit the lock
    ///   is gone before the event is written.
    /// - SQLite: this changes nothing, as there is one writer at a time.
    #[must_use]
    pub fn lock_key(mut self, lock_key: bool) -> Self {
        self.lock_key = lock_key;
        self
    }

    /// Writes one event.
    ///
    /// # Errors
    ///
    /// See [`EmitError`]. A limit is refused before anything is sent, so the transaction is intact.
    pub async fn emit<T: Tx + ?Sized>(
        &self,
        tx: &mut T,
        event: Event,
    ) -> Result<Emitted, EmitError> {
        let events = [event];
        self.check(&events)?;
        let locks = self.locks(&events);
        tx.append(Batch {
            events: &events,
            locks: &locks,
        })
        .await?;
        Ok(Emitted { id: events[0].id })
    }

    /// Writes events in the order of the slice, in as few statements as their size allows.
    ///
    /// # Errors
    ///
    /// See [`EmitError`]. The limits of all events are checked before the first is sent.
    pub async fn emit_all<T: Tx + ?Sized>(
        &self,
        tx: &mut T,
        events: &[Event],
    ) -> Result<Vec<Emitted>, EmitError> {
        self.check(events)?;
        // All locks with the first statement: taken batch by batch they would not be in order.
        let mut locks = self.locks(events);
        for events in batches(events) {
            tx.append(Batch {
                events,
                locks: &locks,
            })
            .await?;
            locks.clear();
        }
        Ok(events
            .iter()
            .map(|event| Emitted { id: event.id })
            .collect())
    }

    /// The SQL and the parameters that write these events, for a client that this crate has no
    /// adapter for; run it inside the business transaction. Cut long lists yourself: everything
    /// goes in one statement.
    ///
    /// # Errors
    ///
    /// [`EmitError::Limit`], also for more events than one statement can hold: in SQLite 2 520, in
    /// MySQL 5 041. [`EmitError::Configuration`] for MySQL with [`Outbox::lock_key`], whose lock is
    /// a statement of its own.
    pub fn statement<'a>(
        &self,
        dialect: Dialect,
        events: &'a [Event],
    ) -> Result<Statement<'a>, EmitError> {
        self.check(events)?;
        dialect.statement(events, &self.locks(events))
    }

    fn check(&self, events: &[Event]) -> Result<(), EmitError> {
        if self.limits.payload_bytes_max > Limits::PAYLOAD_BYTES_CEILING {
            return Err(EmitError::Configuration {
                problem: "the limit of the payload is above the table's ceiling of 67108864 bytes",
                source: None,
            });
        }
        events
            .iter()
            .try_for_each(|event| event.check_payload(self.limits.payload_bytes_max))
    }

    /// The locks to take, sorted and each once.
    fn locks(&self, events: &[Event]) -> Vec<i64> {
        if !self.lock_key {
            return Vec::new();
        }
        let mut locks: Vec<i64> = events
            .iter()
            .filter_map(Event::key)
            .map(lock_number)
            .collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }
}

/// Cuts the events into runs that stay within the bounds of a statement; an event that is larger
/// than that alone goes alone.
fn batches(events: &[Event]) -> impl Iterator<Item = &[Event]> {
    let mut rest = events;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut fitting = 0;
        for event in rest.iter().take(BATCH_EVENTS_MAX) {
            bytes += event.statement_bytes();
            if fitting > 0 && bytes > BATCH_BYTES_MAX {
                break;
            }
            fitting += 1;
        }
        let (now, later) = rest.split_at(fitting);
        rest = later;
        (!now.is_empty()).then_some(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_and_lose_nothing() {
        let sizes = [
            100,
            BATCH_BYTES_MAX,
            10,
            10,
            BATCH_BYTES_MAX / 2,
            BATCH_BYTES_MAX / 2,
            1,
        ];
        let events: Vec<Event> = sizes
            .iter()
            .map(|size| Event::builder("t").payload(vec![0; *size]).build().unwrap())
            .collect();
        let cut: Vec<usize> = batches(&events).map(<[Event]>::len).collect();
        assert_eq!(cut, [1, 1, 3, 2]);
        assert_eq!(batches(&events).flatten().count(), events.len());

        let small = vec![events[2].clone(); BATCH_EVENTS_MAX + 1];
        assert_eq!(
            batches(&small).map(<[Event]>::len).collect::<Vec<_>>(),
            [BATCH_EVENTS_MAX, 1]
        );
        assert_eq!(batches(&[]).count(), 0);
    }

    #[test]
    fn locks_are_sorted_and_taken_once() {
        let keys = ["b", "a", "b", "c"];
        let events: Vec<Event> = keys
            .iter()
            .map(|key| Event::builder("t").key(*key).build().unwrap())
            .collect();
        assert!(Outbox::new().locks(&events).is_empty());
        let locks = Outbox::new().lock_key(true).locks(&events);
        assert_eq!(locks.len(), 3);
        assert!(locks.is_sorted());
    }
}
