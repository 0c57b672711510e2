//! The databases that events are written to, one file each.

mod postgres;
mod sqlite;

use crate::error::EmitError;
use crate::event::Event;
use crate::schema::Migration;
use crate::statement::Statement;

/// Whose SQL a statement is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL 14 and later; parameters are `$1`, `$2`, ….
    Postgres,
    /// SQLite; parameters are `?`, in order.
    Sqlite,
}

impl Dialect {
    /// The migrations of its schema, in order.
    #[must_use]
    pub fn migrations(self) -> &'static [Migration] {
        match self {
            Self::Postgres => postgres::MIGRATIONS,
            Self::Sqlite => sqlite::MIGRATIONS,
        }
    }

    /// The version of the schema that they end at.
    #[must_use]
    pub fn schema_version(self) -> u32 {
        self.migrations().last().map_or(0, |newest| newest.version)
    }

    /// The statement that writes these events, behind these locks.
    pub(crate) fn statement<'a>(
        self,
        events: &'a [Event],
        locks: &[i64],
    ) -> Result<Statement<'a>, EmitError> {
        match self {
            Self::Postgres => Ok(postgres::statement(events, locks)),
            Self::Sqlite if events.is_empty() || events.len() > sqlite::ROWS_MAX => {
                Err(EmitError::Limit {
                    field: "events",
                    size: events.len(),
                    limit: sqlite::ROWS_MAX,
                    unit: "events",
                })
            }
            Self::Sqlite => Ok(sqlite::statement(events)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Placeholders;

    #[test]
    fn versions_count_up_from_one_and_no_placeholder_is_left() {
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            for (number, migration) in (1..).zip(dialect.migrations()) {
                assert_eq!(migration.version, number);
                assert!(migration.min_relay <= migration.version);
                assert!(
                    !migration
                        .render(Placeholders::default())
                        .contains("{leaf_bits}")
                );
            }
        }
    }
}
