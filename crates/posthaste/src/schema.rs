//! The database schema as numbered migrations, for whoever applies them: `posthaste init`, or a
//! team's own migration tool.
//!
//! A migration for PostgreSQL sets the search path for itself and puts the caller's back at its
//! end; one for MySQL does so with `sql_mode` and `collation_connection`.
//!
//! Applying them needs no more than running [`Migration::render`]'s text in one transaction and
//! adding its line to the table of migrations (`posthaste.migrations`, elsewhere
//! `posthaste_migrations`). MySQL has no transactions for such statements: each can be run again,
//! so a migration that broke off is run once more. A released migration never changes; the next one
//! has the next number.

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
    /// the table, since it decides which leaf a row belongs to. Others have no leaves.
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
