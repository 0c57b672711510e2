//! MySQL and MariaDB: their migrations, and the statements that write events.

#[cfg(feature = "mysql_async")]
mod mysql_async;
#[cfg(feature = "sqlx-mysql")]
mod sqlx_mysql;

use std::borrow::Cow;

#[cfg(any(feature = "sqlx-mysql", feature = "mysql_async"))]
use crate::error::EmitError;
use crate::event::Event;
use crate::schema::Migration;
use crate::slot::SLOTS;
use crate::statement::{
    ADAPTER_ROWS_MAX, Batch, COLUMNS, Param, Statement, chunks, json_array, row, values,
};

/// Runs in a session of its own kind: what the caller's has set would be in the table for good.
macro_rules! protected {
    ($file:literal) => {
        concat!(
            include_str!("../../migrations/mysql/session_own.sql"),
            include_str!(concat!("../../migrations/mysql/", $file)),
            include_str!("../../migrations/mysql/session_back.sql"),
        )
    };
}

pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "outbox",
        min_relay: 1,
        sql: protected!("0001_outbox.sql"),
    },
    Migration {
        version: 2,
        name: "relay_state",
        min_relay: 2,
        sql: protected!("0002_relay_state.sql"),
    },
    Migration {
        version: 3,
        name: "order_keys",
        min_relay: 3,
        sql: protected!("0003_order_keys.sql"),
    },
];

/// Rows of one statement: it counts its parameters in 16 bits.
pub(super) const ROWS_MAX: usize = 65_535 / COLUMNS;

/// Locks of one statement of our own adapters, which are cut like rows.
const ADAPTER_LOCKS_MAX: usize = 128;

/// The answer to [`Outbox::statement`](crate::Outbox::statement) where keys shall be locked.
pub(super) const LOCKS_APART: &str = "locks on keys are a statement of their own in MySQL: lock \
     the rows of the keys' slots in posthaste_key_locks first, and emit without `lock_key`";

impl<'a> Batch<'a> {
    /// The statements that write the batch to MySQL or MariaDB, to be run in this order: first
    /// those that take the locks, whose rows are of no interest.
    pub fn mysql(&self) -> impl Iterator<Item = Statement<'a>> + use<'a> {
        let slots = slots(self.locks);
        let locks: Vec<_> = chunks(&slots, ADAPTER_LOCKS_MAX).map(lock).collect();
        let rows = chunks(self.events, ADAPTER_ROWS_MAX).map(statement);
        locks.into_iter().chain(rows)
    }
}

/// The rows that stand for these locks, in their order: 64 bits of a key's hash, of which the slot
/// is the last 14 of the first 16. Keys of one slot wait for each other.
fn slots(locks: &[i64]) -> Vec<i64> {
    let mut slots: Vec<i64> = locks
        .iter()
        .map(|lock| (lock >> 48) & i64::from(SLOTS - 1))
        .collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

fn lock(slots: &[i64]) -> Statement<'static> {
    let placeholders = vec!["?"; slots.len()].join(",");
    let sql = format!(
        // Without the hint a server that takes the table for a small one reads it whole, and locks
        // every row.
        "select slot from posthaste_key_locks force index (primary) where slot in ({placeholders}) \
         order by slot for update"
    );
    Statement {
        sql: Cow::Owned(sql),
        params: slots.iter().copied().map(Param::BigInt).collect(),
    }
}

pub(super) fn statement(events: &[Event]) -> Statement<'_> {
    let sql = values(
        "insert into posthaste_outbox (id, topic, `key`, `type`, content_type, payload, headers, \
         occurred_at, correlation_id, causation_id, tenant_id, traceparent, tracestate) values ",
        "(?,?,?,?,?,?,?,timestampadd(microsecond,?,timestamp'1970-01-01 00:00:00'),?,?,?,?,?)",
        events.len(),
    );
    let params = events.iter().flat_map(|event| {
        let mut row = row(event, json_array);
        row[0] = Param::Bytes(Some(event.id.as_bytes()));
        row
    });
    Statement {
        sql: Cow::Owned(sql),
        params: params.collect(),
    }
}

/// Headers as they are stored.
#[cfg(all(
    feature = "testing",
    any(feature = "sqlx-mysql", feature = "mysql_async")
))]
fn headers(json: &str) -> Result<Vec<Option<String>>, serde_json::Error> {
    serde_json::from_str(json)
}

/// A server's answer, by its number and SQLSTATE.
#[cfg(any(feature = "sqlx-mysql", feature = "mysql_async"))]
fn answered(
    number: u16,
    sqlstate: &str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> EmitError {
    let problem = match number {
        // No database chosen, unknown database, column, table.
        1046 | 1049 | 1054 | 1146 => {
            "the outbox is missing or too old in this database: run `posthaste init`"
        }
        // No right on the database, the table, the column.
        1044 | 1142 | 1143 => {
            "this user may not insert into the outbox: grant INSERT on the event's columns, and \
             with `lock_key` SELECT and UPDATE on posthaste_key_locks"
        }
        1153 => TOO_LARGE,
        _ => {
            return EmitError::Database {
                source: source.into(),
                retryable: is_retryable(number, sqlstate),
            };
        }
    };
    EmitError::Configuration {
        problem,
        source: Some(source.into()),
    }
}

#[cfg(any(feature = "sqlx-mysql", feature = "mysql_async"))]
const TOO_LARGE: &str = "the events are larger than a packet of this server may be: raise its \
     max_allowed_packet, or emit fewer at once";

/// Connection exceptions and rolled-back transactions by their class; by number, what has no class
/// of its own.
#[cfg(any(feature = "sqlx-mysql", feature = "mysql_async"))]
fn is_retryable(number: u16, sqlstate: &str) -> bool {
    matches!(sqlstate.get(..2), Some("08" | "40"))
        || matches!(
            number,
            // A record changed since the snapshot (MariaDB); too many connections, of all or of
            // this user; out of resources; the server stops.
            1020 | 1040 | 1203 | 1041 | 1053
            // A lock: time is over, too many, a deadlock.
            | 1205 | 1206 | 1213
            // A deadlock at the lock for AUTO_INCREMENT (MariaDB), which has no number of its own.
            | 1467
            // The connection was killed, or was idle for too long.
            | 1927 | 4031
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(events: usize, locks: &[i64]) -> Vec<(String, usize)> {
        let events = vec![Event::builder("t").build().unwrap(); events];
        Batch {
            events: &events,
            locks,
        }
        .mysql()
        .map(|it| {
            (
                it.sql().split(' ').next().unwrap().to_owned(),
                it.params().len(),
            )
        })
        .collect()
    }

    #[test]
    fn locks_come_first_and_all_is_cut_into_powers_of_two() {
        let rows = |rows| ("insert".to_owned(), rows * COLUMNS);
        let locks = |locks| ("select".to_owned(), locks);
        assert_eq!(batch(300, &[]), [128, 128, 32, 8, 4].map(rows));
        let numbers: Vec<i64> = (0..131).map(|slot| slot << 48).collect();
        assert_eq!(
            batch(1, &numbers),
            [locks(128), locks(2), locks(1), rows(1)]
        );
    }

    #[test]
    fn a_lock_is_the_row_of_the_keys_slot() {
        let keys = ["", "order-1", r"a\b", "Größe", "🚚"];
        let locks: Vec<i64> = keys
            .iter()
            .map(|key| crate::slot::lock_number(key))
            .collect();
        let mut expected: Vec<i64> = keys.iter().map(|key| crate::slot(key).into()).collect();
        expected.sort_unstable();
        assert_eq!(slots(&[locks.clone(), locks].concat()), expected);
    }

    #[test]
    #[cfg(any(feature = "sqlx-mysql", feature = "mysql_async"))]
    fn answers_are_told_apart() {
        let kind = |number, sqlstate| answered(number, sqlstate, std::fmt::Error);
        for (number, sqlstate) in [(1213, "40001"), (1205, "HY000"), (1053, "08S01")] {
            assert!(kind(number, sqlstate).is_retryable(), "{number}");
        }
        for (number, sqlstate) in [(1048, "23000"), (3819, "HY000"), (4025, "23000")] {
            assert!(!kind(number, sqlstate).is_retryable(), "{number}");
        }
        for (number, sqlstate) in [(1146, "42S02"), (1142, "42000"), (1153, "08S01")] {
            let kind = kind(number, sqlstate);
            assert!(matches!(kind, EmitError::Configuration { .. }), "{number}");
        }
    }
}
