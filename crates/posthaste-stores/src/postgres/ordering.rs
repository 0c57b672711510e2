//! Keys of order in SQL.

use posthaste_engine::KEY_AND_TOPIC_TARGETS;

/// A statement whose text has these filled in:
///
/// - `{by_topic:d}`: whether a destination `d` keeps the order of a key and a topic;
/// - `{order_key}`: the key of order of a row `o` at such a destination;
/// - `{plain_key}`: the key of a copy `p` of the destination `d`;
/// - `{separator}`: [`posthaste_engine::ORDER_KEY_SEPARATOR`].
pub(super) fn with_order(sql: &str) -> String {
    let mut sql = sql.replace(
        "{plain_key}",
        "case when {by_topic:d} then pg_catalog.substr(p.key, pg_catalog.char_length(p.topic) + 2) \
         else p.key end",
    );
    for alias in ["d", "n"] {
        let by_topic =
            format!("pg_catalog.starts_with({alias}.address, '{KEY_AND_TOPIC_TARGETS}')");
        sql = sql.replace(&format!("{{by_topic:{alias}}}"), &by_topic);
    }
    sql.replace("{order_key}", "(o.topic || {separator} || o.key)")
        .replace("{separator}", "pg_catalog.chr(31)")
}
