//! PostgreSQL: its migrations, and the statement that writes events.

#[cfg(feature = "sqlx-postgres")]
mod sqlx_postgres;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::borrow::Cow;

use crate::event::Event;
use crate::schema::Migration;
use crate::statement::{Batch, Headers, Param, Statement, elements, row, text};

/// Runs under a search path of its own: a role that may create functions and operators must not get
/// them called by whoever applies the migration.
macro_rules! protected {
    ($file:literal) => {
        concat!(
            include_str!("../../migrations/postgres/search_path_own.sql"),
            include_str!(concat!("../../migrations/postgres/", $file)),
            include_str!("../../migrations/postgres/search_path_back.sql"),
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
        name: "shared_partitions",
        min_relay: 3,
        sql: protected!("0003_shared_partitions.sql"),
    },
    Migration {
        version: 4,
        name: "evacuation",
        min_relay: 4,
        sql: protected!("0004_evacuation.sql"),
    },
    Migration {
        version: 5,
        name: "hardening",
        min_relay: 5,
        sql: protected!("0005_hardening.sql"),
    },
    Migration {
        version: 6,
        name: "cluster",
        min_relay: 5,
        sql: protected!("0006_cluster.sql"),
    },
    Migration {
        version: 7,
        name: "emit_types",
        min_relay: 5,
        sql: protected!("0007_emit_types.sql"),
    },
    Migration {
        version: 8,
        name: "places",
        min_relay: 5,
        sql: protected!("0008_places.sql"),
    },
    Migration {
        version: 9,
        name: "order_keys",
        min_relay: 9,
        sql: protected!("0009_order_keys.sql"),
    },
];

impl<'a> Batch<'a> {
    /// The statement that writes the batch to PostgreSQL.
    #[must_use]
    pub fn postgres(&self) -> Statement<'a> {
        statement(self.events, self.locks)
    }
}

pub(super) fn statement<'a>(events: &'a [Event], locks: &[i64]) -> Statement<'a> {
    if let ([event], []) = (events, locks) {
        return Statement {
            sql: Cow::Borrowed(include_str!("../sql/emit_one.sql")),
            params: row(event, array).into(),
        };
    }
    let mut params = columns(events);
    params.push(Param::BigIntArray(locks.to_vec()));
    Statement {
        sql: Cow::Borrowed(include_str!("../sql/emit_many.sql")),
        params,
    }
}

fn columns(events: &[Event]) -> Vec<Param<'_>> {
    fn texts<'a>(
        events: &'a [Event],
        field: impl Fn(&'a Event) -> Option<&'a String>,
    ) -> Param<'a> {
        Param::TextArray(events.iter().map(|event| text(field(event))).collect())
    }
    vec![
        Param::TextArray(
            events
                .iter()
                .map(|e| Some(e.id.to_string().into()))
                .collect(),
        ),
        texts(events, |e| Some(&e.topic)),
        texts(events, |e| e.key.as_ref()),
        texts(events, |e| e.event_type.as_ref()),
        texts(events, |e| e.content_type.as_ref()),
        Param::BytesArray(events.iter().map(|e| e.payload.as_deref()).collect()),
        Param::TextArray(events.iter().map(|e| Some(array(&e.headers))).collect()),
        Param::BigIntArray(events.iter().map(|e| e.occurred_at.as_micros()).collect()),
        texts(events, |e| e.correlation_id.as_ref()),
        texts(events, |e| e.causation_id.as_ref()),
        texts(events, |e| e.tenant_id.as_ref()),
        texts(events, |e| e.traceparent.as_ref()),
        texts(events, |e| e.tracestate.as_ref()),
    ]
}

/// Headers as the text of an array, cast in the statement: the rows of a batch have different
/// numbers of headers, and PostgreSQL has no ragged arrays.
fn array(headers: &Headers) -> Cow<'static, str> {
    if headers.is_empty() {
        return Cow::Borrowed("{}");
    }
    let mut array = String::from("{");
    for element in elements(headers) {
        array.push_str(if array.len() > 1 { "," } else { "" });
        match element {
            None => array.push_str("NULL"),
            Some(text) => {
                array.push('"');
                for character in text.chars() {
                    if matches!(character, '"' | '\\') {
                        array.push('\\');
                    }
                    array.push(character);
                }
                array.push('"');
            }
        }
    }
    array.push('}');
    Cow::Owned(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writers wait behind whoever waits for a lock on the outbox.
    #[test]
    fn migrations_beside_writers_wait_fifty_milliseconds_for_a_lock() {
        for migration in &MIGRATIONS[4..] {
            let own = include_str!("../../migrations/postgres/search_path_own.sql");
            let mut lines = migration.sql.strip_prefix(own).unwrap().lines();
            let first = lines.find(|line| !line.starts_with("--") && !line.is_empty());
            assert_eq!(first, Some("set local lock_timeout = '50ms';"));
        }
    }

    #[test]
    fn headers_are_quoted() {
        let headers = [
            ("a\"\\,{}".to_owned(), None),
            ("NULL".to_owned(), Some("\n".to_owned())),
        ];
        assert_eq!(array(&headers), "{\"a\\\"\\\\,{}\",NULL,\"NULL\",\"\n\"}");
    }
}
