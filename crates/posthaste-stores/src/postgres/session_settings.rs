//! The settings that our statements rely on.

/// The names and operators of our statements are PostgreSQL's own, whatever others have created. Of
/// `pg_temp` only relations and types are ever looked up; unless named last they would come first.
pub(super) const SEARCH_PATH: &str = "pg_catalog, pg_temp";

/// Everything that our statements rely on, whatever the server, the database or the role is set to.
/// `session_replication_role` is missing because only superusers may set it: a connection is
/// refused instead.
pub(super) const SETTINGS: [(&str, &str); 23] = [
    // Hidden rows would be taken for delivered: filtering becomes an error.
    ("row_security", "off"),
    // For single statements; transactions name theirs.
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    // How values and texts are turned into each other.
    ("client_encoding", "UTF8"),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),
    // A custom plan of a read costs more than the read: it plans 16 leaves anew.
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    // Without sequential scans, bitmaps and sorts no statistics can tempt the planner into reading
    // a whole leaf: it merges the leaves by their indexes, and stops at the limit.
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("enable_indexscan", "on"),
    ("enable_nestloop", "on"),
    ("enable_partition_pruning", "on"),
    ("max_parallel_workers_per_gather", "0"),
    ("synchronous_commit", "on"),
    // A lost client must not hold locks.
    ("idle_in_transaction_session_timeout", "30s"),
    // Our connections are idle between events.
    ("idle_session_timeout", "0"),
];

/// A setting that earlier versions do not know, and the version that brought it.
pub(super) const TRANSACTION_TIMEOUT: (&str, u32) = ("transaction_timeout = '0'", 17);

/// The purpose of a connection: it decides how long statements may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A poll that finds an hours-long transaction finished reads everything since, cold.
    Read,
    /// Short statements of one row or a few.
    Change,
    /// As long as it takes; another `init` may go first.
    Migrate,
}

impl Work {
    fn settings(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let (statement, lock) = match self {
            Self::Read => ("10min", "5s"),
            Self::Change => ("30s", "5s"),
            Self::Migrate => ("0", "1min"),
        };
        let time_outs = [("statement_timeout", statement), ("lock_timeout", lock)];
        time_outs.into_iter().chain(SETTINGS)
    }

    /// The options with which a session of our own starts.
    pub(super) fn options(self) -> String {
        let settings = self.settings().chain([("search_path", SEARCH_PATH)]);
        settings
            .map(|(name, value)| format!(" -c {name}={}", value.replace(' ', "\\ ")))
            .collect()
    }

    /// For one transaction.
    pub(super) fn local(self, server_version: u32) -> String {
        let set = |(name, value)| format!("set local {name} = '{value}';");
        let mut sql: String = self.settings().map(set).collect();
        // In quotes it would be one name.
        sql += &format!("set local search_path = {SEARCH_PATH};");
        let (setting, since) = TRANSACTION_TIMEOUT;
        if server_version >= since {
            sql += &format!("set local {setting};");
        }
        sql
    }
}
