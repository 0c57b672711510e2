//! Settings that a DBA may have made.

/// None of them is as our statements need it.
const ODD: [(&str, &str); 28] = [
    ("search_path", "public"),
    ("row_security", "on"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_deferrable", "on"),
    ("client_encoding", "LATIN1"),
    ("standard_conforming_strings", "off"),
    ("TimeZone", "Asia/Kathmandu"),
    ("DateStyle", "SQL, DMY"),
    ("IntervalStyle", "sql_standard"),
    ("bytea_output", "escape"),
    ("extra_float_digits", "-15"),
    ("plan_cache_mode", "force_custom_plan"),
    ("jit", "on"),
    ("jit_above_cost", "0"),
    ("enable_seqscan", "on"),
    ("enable_bitmapscan", "on"),
    ("enable_sort", "on"),
    ("enable_indexscan", "off"),
    ("enable_nestloop", "off"),
    ("enable_partition_pruning", "off"),
    ("max_parallel_workers_per_gather", "4"),
    ("synchronous_commit", "off"),
    ("idle_in_transaction_session_timeout", "2s"),
    ("idle_session_timeout", "1min"),
    ("statement_timeout", "100ms"),
    ("lock_timeout", "1ms"),
    ("transaction_timeout", "3s"),
];

/// The statements that give a role odd settings. The thing that is altered: a role, or a role in a
/// database.
#[must_use]
pub fn odd_settings(altered: &str, version: u16) -> String {
    let known = ODD
        .iter()
        .filter(|(name, _)| version >= 17 || *name != "transaction_timeout");
    known
        .map(|(name, value)| format!("alter {altered} set {name} = '{value}';"))
        .collect()
}
