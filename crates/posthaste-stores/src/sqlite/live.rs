//! Whether a relay is live, for operators' calls, which answer at once.
//!
//! A relay that wants to take over waits for a lease that lies too far ahead ([`super::watch`]).

const LIVE: &str = include_str!("sql/live.sql");

/// A statement whose text has its `{live}` filled in: the relay `r` is live.
pub(super) fn with_live(sql: &str) -> String {
    sql.replace("{live}", LIVE)
}
