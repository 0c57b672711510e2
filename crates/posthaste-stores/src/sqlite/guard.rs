//! Every statement under a claim first tests that the claim is the newest, and that the file still
//! has the history that this relay has seen.
//!
//! SQLite has no counters that come again after a crash, so an incarnation ends in one way only:
//! somebody puts another file, or an older state of it, in its place.
//!
//! - Another file under the path (replaced, deleted and made anew): its device and inode differ
//!   (tested before each call), and so does its store id (tested in the statement's snapshot).
//! - An older state restored *into* the file (SQLite's backup, `.restore`): it lacks changes that
//!   were made under this claim, so that `version` has gone back, or it lacks events that were read
//!   and are not behind the stored cursor, so that the row of the furthest one is gone or is
//!   another event. Only a state that has both is accepted, and it has everything that matters.
//!
//! A counter that was set back in the same file is told by the event that the cursor has passed:
//! another event stands under its number. A new claim would not help, since it would begin behind
//! events that no relay has read.
//!
//! A copy of the file that somebody relays elsewhere cannot be noticed.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use posthaste_engine::{Claim, OrderBy, StoreError};
use rusqlite::{OptionalExtension, Transaction, named_params};
use uuid::Uuid;

use super::{
    connection::{Worker, at_most_one, one},
    destination::refuse_drawn_again,
    error::{classify, unexpected},
    row,
};

/// The rights that a claim gives, in the database's terms.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) destination_id: i64,
    pub(super) registration: Uuid,
    pub(super) order_by: OrderBy,
    pub(super) store_id: String,
    /// [`posthaste_ownership.version`] as this claim left it.
    pub(super) version: i64,
}

/// The right to change things under one claim. Clones share what they have seen.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    destination_id: i64,
    registration: Uuid,
    order_by: OrderBy,
    epoch: i64,
    store_id: String,
    seen: Arc<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The last `version` that was known to be committed.
    version: AtomicI64,
    /// The furthest event that was read: its number and its id.
    furthest: Mutex<Option<(i64, Uuid)>>,
}

/// Values that the guard read on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) cursor_id: i64,
    /// The stored cursor.
    pub(super) seq: i64,
}

struct GuardRow {
    store_id: String,
    epoch: Option<i64>,
    registration: Option<String>,
    version: i64,
    cursor_id: Option<i64>,
    seq: i64,
    valid: bool,
    /// A number that the cursor has passed and that another event has now.
    drawn_again: Option<i64>,
}

impl Guard {
    pub(super) fn new(operation: &'static str, claim: &Claim) -> Result<Self, StoreError> {
        let inner: &Grant = claim
            .inner
            .downcast_ref()
            .ok_or_else(|| unexpected(operation, "a claim of another store"))?;
        Ok(Self {
            destination_id: inner.destination_id,
            registration: inner.registration,
            order_by: inner.order_by,
            epoch: i64::try_from(claim.epoch)
                .map_err(|_| unexpected(operation, "an epoch beyond 2^63"))?,
            store_id: inner.store_id.clone(),
            seen: Arc::new(Seen {
                version: AtomicI64::new(inner.version),
                furthest: Mutex::new(None),
            }),
        })
    }

    pub(super) fn destination_id(&self) -> i64 {
        self.destination_id
    }

    /// The order that the destination keeps.
    pub(super) fn order_by(&self) -> OrderBy {
        self.order_by
    }

    /// The destination, and the order that it keeps.
    pub(super) fn ordered(&self) -> (i64, OrderBy) {
        (self.destination_id, self.order_by)
    }

    /// The destination, and the relay that holds it.
    pub(super) fn of(&self) -> (i64, Uuid) {
        (self.destination_id, self.registration)
    }

    pub(super) fn registration(&self) -> Uuid {
        self.registration
    }

    /// Reads under this claim, in one snapshot.
    pub(super) async fn read<T, F>(
        &self,
        worker: &Worker,
        operation: &'static str,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>, Standing) -> Result<T, StoreError> + Send + 'static,
    {
        let guard = self.clone();
        // Taken before the snapshot: all that was committed by now must be in it.
        let expected = self.expected();
        worker
            .read(operation, move |tx| {
                let standing = guard.test(tx, operation, expected)?;
                work(tx, standing)
            })
            .await
    }

    /// Changes something under this claim, in one transaction. `work` answers whether it changed
    /// anything.
    pub(super) async fn write<T, F>(
        &self,
        worker: &Worker,
        operation: &'static str,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>, Standing) -> Result<(T, Changed), StoreError> + Send + 'static,
    {
        let guard = self.clone();
        let expected = self.expected();
        let (answer, version) = worker
            .write(operation, move |tx| {
                let standing = guard.test(tx, operation, expected)?;
                let (answer, changed) = work(tx, standing)?;
                let version = match changed {
                    Changed::Something => Some(guard.version_up(tx, operation)?),
                    Changed::Nothing => None,
                };
                Ok((answer, version))
            })
            .await?;
        if let Some(version) = version {
            self.seen.version.fetch_max(version, Ordering::AcqRel);
        }
        Ok(answer)
    }

    /// Notes how far reading has come.
    pub(super) fn has_read(&self, seq: i64, id: Uuid) {
        let mut furthest = self
            .seen
            .furthest
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if furthest.is_none_or(|(former, _)| former < seq) {
            *furthest = Some((seq, id));
        }
    }

    fn expected(&self) -> Expected {
        Expected {
            version: self.seen.version.load(Ordering::Acquire),
            furthest: *self
                .seen
                .furthest
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn test(
        &self,
        tx: &Transaction<'_>,
        operation: &'static str,
        expected: Expected,
    ) -> Result<Standing, StoreError> {
        let row = self.row(tx, operation)?;
        if row.store_id != self.store_id {
            return Err(StoreError::IncarnationChanged { operation });
        }
        let ours = row.epoch == Some(self.epoch)
            && row.registration.as_deref() == Some(self.registration.to_string().as_str())
            && row.valid;
        let (true, Some(cursor_id)) = (ours, row.cursor_id) else {
            return Err(StoreError::Fenced { operation });
        };
        if row.version < expected.version {
            return Err(StoreError::IncarnationChanged { operation });
        }
        refuse_drawn_again(operation, row.drawn_again)?;
        // Behind the stored cursor retention may have removed the row.
        if let Some((seq, id)) = expected.furthest.filter(|&(seq, _)| seq > row.seq)
            && event_id(tx, operation, seq)? != Some(id)
        {
            return Err(StoreError::IncarnationChanged { operation });
        }
        Ok(Standing {
            cursor_id,
            seq: row.seq,
        })
    }

    fn row(&self, tx: &Transaction<'_>, operation: &'static str) -> Result<GuardRow, StoreError> {
        tx.prepare_cached(include_str!("sql/guard.sql"))
            .and_then(|mut statement| {
                statement
                    .query_row(
                        named_params! { ":destination_id": self.destination_id },
                        |row| {
                            Ok(GuardRow {
                                store_id: row.get(0)?,
                                epoch: row.get(1)?,
                                registration: row.get(2)?,
                                version: row.get::<_, Option<i64>>(3)?.unwrap_or(0),
                                cursor_id: row.get(4)?,
                                seq: row.get::<_, Option<i64>>(5)?.unwrap_or(0),
                                valid: row.get(6)?,
                                drawn_again: row.get(7)?,
                            })
                        },
                    )
                    .optional()
            })
            .map_err(|error| classify(operation, error))?
            .ok_or(StoreError::IncarnationChanged { operation })
    }

    fn version_up(&self, tx: &Transaction<'_>, operation: &'static str) -> Result<i64, StoreError> {
        let sql = include_str!("sql/version_up.sql");
        let of = named_params! { ":destination_id": self.destination_id };
        one(tx, operation, sql, of, |row| row.get(0))
    }
}

/// Whether a transaction changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    Something,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    version: i64,
    furthest: Option<(i64, Uuid)>,
}

fn event_id(
    tx: &Transaction<'_>,
    operation: &'static str,
    seq: i64,
) -> Result<Option<Uuid>, StoreError> {
    let (sql, of) = (
        include_str!("sql/event_id.sql"),
        named_params! { ":seq": seq },
    );
    let id = at_most_one(tx, operation, sql, of, |row| row::event_id(row, 0))?;
    Ok(id.map(Option::unwrap_or_default))
}
