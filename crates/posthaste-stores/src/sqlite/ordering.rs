//! Keys of order in SQL.

use posthaste_engine::KEY_AND_TOPIC_TARGETS;

/// A statement whose text has these filled in:
///
/// - `{by_topic:d}`: whether a destination `d` keeps the order of a key and a topic;
/// - `{order_key}`: the key of order of a row `o` at the destination `d`;
/// - `{is_key}`: whether the key of a copy `p` of the destination `d` is `:key`;
/// - `{plain_key}`: that key. Texts may hold a NUL, where functions of texts end;
/// - `{before_key:n}`: what stands before it in the key of order at the destination `n`;
/// - `{separator}`: [`posthaste_engine::ORDER_KEY_SEPARATOR`].
pub(super) fn with_order(sql: &str) -> String {
    let mut sql = sql
        .replace("{is_key}", "p.key = {before_key:d} || :key")
        .replace(
            "{plain_key}",
            "iif({by_topic:d}, cast(substr(cast(p.key as blob), \
             length(cast(posthaste_text(p.topic) as blob)) + 2) as text), p.key)",
        )
        .replace(
            "{order_key}",
            "iif({by_topic:d}, posthaste_text(o.topic) || {separator}, '') \
             || posthaste_text(o.key)",
        );
    for alias in ["d", "n"] {
        let before_key =
            format!("iif({{by_topic:{alias}}}, posthaste_text(p.topic) || {{separator}}, '')");
        sql = sql.replace(&format!("{{before_key:{alias}}}"), &before_key);
        let by_topic = format!("{alias}.url glob '{KEY_AND_TOPIC_TARGETS}*'");
        sql = sql.replace(&format!("{{by_topic:{alias}}}"), &by_topic);
    }
    sql.replace("{separator}", "char(31)")
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::with_order;
    use crate::sqlite::{InitOptions, holds_key::with_holds_key, live::with_live, sql, text};

    #[test]
    fn each_statement_with_such_a_part_prepares() {
        let database = Connection::open_in_memory().unwrap();
        let schema = sql(InitOptions::default()).unwrap();
        database.execute_batch(&schema).unwrap();
        text::add_function(&database).unwrap();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/sql");
        let mut prepared = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let statement = std::fs::read_to_string(&path).unwrap();
            let whole = with_order(&statement);
            if whole != statement {
                let whole = with_live(&with_holds_key(&whole));
                let result = database.prepare(&whole);
                result.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                prepared += 1;
            }
        }
        assert_eq!(prepared, 6);
    }
}
