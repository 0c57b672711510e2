//! Whether a parked copy holds its key.

const HOLDS_KEY: &str = include_str!("sql/holds_key.sql");

/// A statement whose text has its `{holds_key}` filled in: whether a copy `p` holds its key.
pub(super) fn with_holds_key(sql: &str) -> String {
    sql.replace("{holds_key}", HOLDS_KEY)
}
