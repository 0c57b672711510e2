//! The databases that events are written to, one file each.

mod mysql;
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
    /// MySQL 8.0, MariaDB 10.6 and later ones of both; parameters are `?`, in order.
    Mysql,
}

impl Dialect {
    /// The migrations of its schema, in order.
    #[must_use]
    pub fn migrations(self) -> &'static [Migration] {
        match self {
            Self::Postgres => postgres::MIGRATIONS,
            Self::Sqlite => sqlite::MIGRATIONS,
            Self::Mysql => mysql::MIGRATIONS,
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
        let most = match self {
            Self::Postgres => return Ok(postgres::statement(events, locks)),
            Self::Sqlite => sqlite::ROWS_MAX,
            Self::Mysql if !locks.is_empty() => {
                return Err(EmitError::Configuration {
                    problem: mysql::LOCKS_APART,
                    source: None,
                });
            }
            Self::Mysql => mysql::ROWS_MAX,
        };
        if events.is_empty() || events.len() > most {
            return Err(EmitError::Limit {
                field: "events",
                size: events.len(),
                limit: most,
                unit: "events",
            });
        }
        Ok(match self {
            Self::Mysql => mysql::statement(events),
            _ => sqlite::statement(events),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Placeholders;

    #[test]
    fn versions_count_up_from_one_and_no_placeholder_is_left() {
        for dialect in [Dialect::Postgres, Dialect::Sqlite, Dialect::Mysql] {
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
