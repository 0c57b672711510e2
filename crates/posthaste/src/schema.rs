//! The database schema as numbered migrations, for whoever applies them: `posthaste init`, or a
//! team's own migration tool.
//!
//! A migration for PostgreSQL sets the search path for itself and puts the caller's back at its
//! end.
//!
//! Applying them needs no more than running [`Migration::render`]'s text in one transaction and
//! adding its line to the table of migrations (`posthaste.migrations`, in SQLite
//! `posthaste_migrations`). A released migration never changes; the next one has the next number.

/// One step of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its number; migrations are applied in this order, without gaps, starting with 1.
    pub version: u32,
    /// Its name, for people.
    pub name: &'static str,
    /// The lowest level of a relay (the newest migration it was built with) that may run on a
    /// schema that has this migration. A relay below it must refuse to start.
    pub min_relay: u32,
    /// The SQL, with placeholders; [`Migration::render`] fills them in.
    pub sql: &'static str,
}

/// The values of a migration's placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placeholders {
    /// PostgreSQL: a leaf of the ring holds 2 to the power of this many rows. Fixed for the life of
    /// the table, since it decides which leaf a row belongs to. SQLite has no leaves.
    pub leaf_bits: u8,
}

impl Default for Placeholders {
    /// 2^19 rows a leaf: 16 leaves hold eight million events before the ring closes.
    fn default() -> Self {
        Self { leaf_bits: 19 }
    }
}

impl Migration {
    /// The SQL to run, several statements in one text, with the placeholders filled in.
    #[must_use]
    pub fn render(&self, placeholders: Placeholders) -> String {
        self.sql
            .replace("{leaf_bits}", &placeholders.leaf_bits.to_string())
    }
}

/// The columns that a writer sets: PostgreSQL's grant is `INSERT` on exactly these, because a
/// forged `xid` or `seq` would break what readers rely on.
pub const EVENT_COLUMNS: [&str; 16] = [
    "id",
    "topic",
    "key",
    "type",
    "content_type",
    "payload",
    "headers",
    "occurred_at",
    "correlation_id",
    "causation_id",
    "tenant_id",
    "traceparent",
    "tracestate",
    "destinations",
    "deliver_after",
    "expires_at",
];

/// Runs under a search path of its own: a role that may create functions and operators must not get
/// them called by whoever applies the migration.
macro_rules! protected {
    ($file:literal) => {
        concat!(
            include_str!("../migrations/postgres/search_path_own.sql"),
            include_str!(concat!("../migrations/postgres/", $file)),
            include_str!("../migrations/postgres/search_path_back.sql"),
        )
    };
}

/// The migrations of PostgreSQL, in order.
#[must_use]
pub fn postgres() -> &'static [Migration] {
    &[
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
    ]
}

/// The migrations of SQLite, in order.
#[must_use]
pub fn sqlite() -> &'static [Migration] {
    &[
        Migration {
            version: 1,
            name: "outbox",
            min_relay: 1,
            sql: include_str!("../migrations/sqlite/0001_outbox.sql"),
        },
        Migration {
            version: 2,
            name: "relay_state",
            min_relay: 2,
            sql: include_str!("../migrations/sqlite/0002_relay_state.sql"),
        },
        Migration {
            version: 3,
            name: "members",
            min_relay: 3,
            sql: include_str!("../migrations/sqlite/0003_members.sql"),
        },
        Migration {
            version: 4,
            name: "leases",
            min_relay: 4,
            sql: include_str!("../migrations/sqlite/0004_leases.sql"),
        },
        Migration {
            version: 5,
            name: "cluster",
            min_relay: 4,
            sql: include_str!("../migrations/sqlite/0005_cluster.sql"),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writers wait behind whoever waits for a lock on the outbox.
    #[test]
    fn migrations_beside_writers_wait_fifty_milliseconds_for_a_lock() {
        for migration in &postgres()[4..] {
            let own = include_str!("../migrations/postgres/search_path_own.sql");
            let mut lines = migration.sql.strip_prefix(own).unwrap().lines();
            let first = lines.find(|line| !line.starts_with("--") && !line.is_empty());
            assert_eq!(first, Some("set local lock_timeout = '50ms';"));
        }
    }

    #[test]
    fn versions_count_up_from_one_and_no_placeholder_is_left() {
        for migrations in [postgres(), sqlite()] {
            for (number, migration) in (1..).zip(migrations) {
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
