//! SQLite: its migrations, and the statement that writes events.

#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite;

use std::borrow::Cow;

use crate::event::Event;
use crate::schema::Migration;
use crate::statement::{
    ADAPTER_ROWS_MAX, Batch, COLUMNS, Statement, chunks, json_array, row, values,
};

pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "outbox",
        min_relay: 1,
        sql: include_str!("../../migrations/sqlite/0001_outbox.sql"),
    },
    Migration {
        version: 2,
        name: "relay_state",
        min_relay: 2,
        sql: include_str!("../../migrations/sqlite/0002_relay_state.sql"),
    },
    Migration {
        version: 3,
        name: "members",
        min_relay: 3,
        sql: include_str!("../../migrations/sqlite/0003_members.sql"),
    },
    Migration {
        version: 4,
        name: "leases",
        min_relay: 4,
        sql: include_str!("../../migrations/sqlite/0004_leases.sql"),
    },
    Migration {
        version: 5,
        name: "cluster",
        min_relay: 4,
        sql: include_str!("../../migrations/sqlite/0005_cluster.sql"),
    },
    Migration {
        version: 6,
        name: "passed",
        min_relay: 4,
        sql: include_str!("../../migrations/sqlite/0006_passed.sql"),
    },
    Migration {
        version: 7,
        name: "places",
        min_relay: 4,
        sql: include_str!("../../migrations/sqlite/0007_places.sql"),
    },
    Migration {
        version: 8,
        name: "order_keys",
        min_relay: 8,
        sql: include_str!("../../migrations/sqlite/0008_order_keys.sql"),
    },
];

/// Rows of one statement in SQLite: its parameters are numbered up to 32 766.
pub(super) const ROWS_MAX: usize = 32_766 / COLUMNS;

impl<'a> Batch<'a> {
    /// The statements that write the batch to SQLite, to be run in this order. There is one writer
    /// at a time, so commit order is free and no lock is taken.
    pub fn sqlite(&self) -> impl Iterator<Item = Statement<'a>> + use<'a> {
        chunks(self.events, ADAPTER_ROWS_MAX).map(statement)
    }
}

pub(super) fn statement(events: &[Event]) -> Statement<'_> {
    let sql = values(
        "insert into posthaste_outbox (id, topic, key, type, content_type, payload, headers, \
         occurred_at, correlation_id, causation_id, tenant_id, traceparent, tracestate) values ",
        "(?,?,?,?,?,?,?,?,?,?,?,?,?)",
        events.len(),
    );
    let params = events
        .iter()
        .flat_map(|event| row(event, json_array))
        .collect();
    Statement {
        sql: Cow::Owned(sql),
        params,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_cut_into_powers_of_two() {
        let event = Event::builder("t").build().unwrap();
        let events = vec![event; 300];
        let rows: Vec<usize> = Batch {
            events: &events,
            locks: &[],
        }
        .sqlite()
        .map(|statement| statement.params().len() / COLUMNS)
        .collect();
        assert_eq!(rows, [128, 128, 32, 8, 4]);
    }
}
