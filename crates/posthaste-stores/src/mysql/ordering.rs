//! Keys of order in SQL.

use posthaste_engine::KEY_AND_TOPIC_TARGETS;

/// The key of order of a row `o`, at a destination that keeps the order of a key and a topic.
/// [`ORDER_KEY_SEPARATOR`](posthaste_engine::ORDER_KEY_SEPARATOR) stands between them.
pub(super) const TOPIC_AND_KEY: &str =
    "concat(cast(o.topic as binary), x'1f', cast(o.`key` as binary))";

/// A statement whose text has these filled in:
///
/// - `{by_topic:d}`: whether a destination `d` keeps the order of a key and a topic;
/// - `{order_key}`: the key of order of a row `o` at the destination `d`;
/// - `{is_key}`: whether the key of a copy `p` of the destination `d` is `:key`;
/// - `{plain_key}`: that key;
/// - `{separator}`: what stands in front of it in such a key of order.
pub(super) fn with_order(sql: &str) -> String {
    let mut sql = sql
        .replace(
            "{order_key}",
            &format!("if({{by_topic:d}}, {TOPIC_AND_KEY}, cast(o.`key` as binary))"),
        )
        .replace(
            "{is_key}",
            "p.`key` = if({by_topic:d}, concat(cast(p.topic as binary), {separator}, \
             cast(:key as binary)), cast(:key as binary))",
        )
        .replace(
            "{plain_key}",
            "if({by_topic:d}, substr(p.`key`, octet_length(p.topic) + 2), p.`key`)",
        );
    for alias in ["d", "n"] {
        let by_topic = format!("{alias}.address like '{KEY_AND_TOPIC_TARGETS}%'");
        sql = sql.replace(&format!("{{by_topic:{alias}}}"), &by_topic);
    }
    sql.replace("{separator}", "x'1f'")
}
