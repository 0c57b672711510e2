//! The refusals and answers of the tables and functions themselves, for writers without the
//! library.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use crate::support::{Outboxes, SqliteFile};
use posthaste::schema::EVENT_COLUMNS;
use posthaste::{Timestamp, testing};
use sqlx::{AssertSqlSafe, Connection, Executor};

/// Column, expression that is refused, what the message names; in PostgreSQL's words.
const REFUSED: [(&str, &str, &str); 27] = [
    ("topic", "''", "topic_has_1_to_249_bytes"),
    ("topic", "repeat('x', 250)", "topic_has_1_to_249_bytes"),
    ("topic", "repeat('ü', 125)", "topic_has_1_to_249_bytes"),
    ("topic", "null", "null"),
    ("topic", "'.'", "topic_is_not_dots"),
    ("topic", "'..'", "topic_is_not_dots"),
    (
        "topic",
        "'a b'",
        "topic_without_whitespace_or_control_characters",
    ),
    (
        "topic",
        "'a' || chr(10)",
        "topic_without_whitespace_or_control_characters",
    ),
    (
        "topic",
        "'a' || chr(127)",
        "topic_without_whitespace_or_control_characters",
    ),
    (
        "topic",
        "'a' || chr(160)",
        "topic_without_whitespace_or_control_characters",
    ),
    (
        "topic",
        "'a' || chr(8197)",
        "topic_without_whitespace_or_control_characters",
    ),
    (
        "topic",
        "'a' || chr(12288)",
        "topic_without_whitespace_or_control_characters",
    ),
    ("key", "repeat('x', 1025)", "key_has_at_most_1024_bytes"),
    ("type", "repeat('x', 256)", "type_has_at_most_255_bytes"),
    (
        "content_type",
        "repeat('x', 256)",
        "content_type_has_at_most_255_bytes",
    ),
    (
        "correlation_id",
        "repeat('x', 256)",
        "correlation_id_has_at_most_255_bytes",
    ),
    (
        "causation_id",
        "repeat('x', 256)",
        "causation_id_has_at_most_255_bytes",
    ),
    (
        "tenant_id",
        "repeat('x', 256)",
        "tenant_id_has_at_most_255_bytes",
    ),
    (
        "traceparent",
        "repeat('x', 256)",
        "traceparent_has_at_most_255_bytes",
    ),
    (
        "tracestate",
        "repeat('x', 513)",
        "tracestate_has_at_most_512_bytes",
    ),
    (
        "payload",
        "convert_to(repeat('x', 67108865), 'UTF8')",
        "payload_has_at_most_64_mib",
    ),
    ("headers", "array['a']", "headers_are_pairs"),
    ("headers", "array[null, 'a']", "headers_are_pairs"),
    (
        "headers",
        "array[['a', 'b'], ['c', 'd']]",
        "headers_are_pairs",
    ),
    (
        "headers",
        "array['a', repeat('x', 65536)]",
        "headers_are_pairs",
    ),
    (
        "occurred_at",
        "'infinity'",
        "occurred_at_is_between_year_1_and_9999",
    ),
    (
        "occurred_at",
        "'0001-01-01 00:00:00+00 BC'",
        "occurred_at_is_between_year_1_and_9999",
    ),
];

const RESERVED: [(&str, &str); 3] = [
    ("destinations", "'{}'"),
    ("deliver_after", "now()"),
    ("expires_at", "now()"),
];

async fn refusal(connection: &mut sqlx::PgConnection, sql: &str) -> String {
    match sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await {
        Ok(_) => panic!("this should have been refused: {sql}"),
        Err(error) => error.to_string(),
    }
}

fn insert(table: &str, column: &str, value: &str) -> String {
    if column == "topic" {
        format!("insert into {table} (topic) values ({value})")
    } else {
        format!("insert into {table} (topic, {column}) values ('t', {value})")
    }
}

#[tokio::test]
async fn the_postgres_table_refuses_by_itself_and_says_why() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    for (column, value, said) in REFUSED {
        let message = refusal(&mut connection, &insert("posthaste.outbox", column, value)).await;
        assert!(message.contains(said), "{column} = {value}: {message}");
    }
    for (column, value) in RESERVED {
        let message = refusal(&mut connection, &insert("posthaste.outbox", column, value)).await;
        assert!(
            message.contains(&format!("{column}_not_honoured_yet")),
            "{message}"
        );
    }
    assert_eq!(outboxes.rows("select count(*) from posthaste.outbox"), "0");
}

#[tokio::test]
async fn a_writer_can_neither_read_nor_change_nor_forge() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    for sql in [
        "select * from posthaste.outbox",
        "update posthaste.outbox set topic = 'x'",
        "delete from posthaste.outbox",
        "truncate posthaste.outbox",
        "insert into posthaste.outbox (topic) values ('t') returning id",
        "insert into posthaste.outbox (topic, xid) values ('t', '3')",
        "insert into posthaste.outbox (topic, seq) overriding system value values ('t', 3)",
        "insert into posthaste.outbox (topic, inserted_at) values ('t', now())",
        "insert into posthaste.outbox_00 (topic) values ('t')",
        "select nextval('posthaste.outbox_seq_seq')",
        "select * from posthaste.settings",
    ] {
        let message = refusal(&mut connection, sql).await;
        assert!(message.contains("permission denied"), "{sql}: {message}");
    }
    let columns = "select string_agg(column_name, ' ' order by column_name) from \
                   information_schema.column_privileges where table_schema = 'posthaste' and \
                   table_name = 'outbox' and privilege_type = 'INSERT' and grantee = ";
    let mut granted = EVENT_COLUMNS.to_vec();
    granted.sort_unstable();
    assert_eq!(
        outboxes.rows(&format!("{columns}'{}'", outboxes.writer)),
        granted.join(" ")
    );
}

#[tokio::test]
async fn the_ring_has_the_shape_that_readers_rely_on() {
    let outboxes = Outboxes::new();
    let first = "select attname from pg_attribute where attrelid = 'posthaste.outbox'::regclass \
                 and attnum = 1";
    assert_eq!(outboxes.rows(first), "xid");
    let cache = "select seqcache, seqincrement, seqcycle from pg_sequence \
                 where seqrelid = pg_get_serial_sequence('posthaste.outbox', 'seq')::regclass";
    assert_eq!(outboxes.rows(cache), "1|1|f");
    let leaves = "select count(*), min(relname), max(relname), min(relreplident), \
                  max(relreplident) from pg_inherits join pg_class on pg_class.oid = inhrelid \
                  where inhparent = 'posthaste.outbox'::regclass";
    assert_eq!(outboxes.rows(leaves), "16|outbox_00|outbox_15|f|f");
    // Every leaf is reached, and the sixteenth is followed by the first.
    outboxes.rows(
        "insert into posthaste.outbox (seq, topic) overriding system value \
         select n * 524288, 't' from generate_series(0, 16) as n",
    );
    let rows =
        "select tableoid::regclass, count(*) from posthaste.outbox group by 1 order by 1 limit 2";
    assert_eq!(
        outboxes.rows(rows),
        "posthaste.outbox_00|2\nposthaste.outbox_01|1"
    );
    assert_eq!(
        outboxes.rows("select value from posthaste.settings where name = 'leaf_bits'"),
        "19"
    );
}

#[tokio::test]
async fn defaults_are_of_the_row_and_not_of_the_statement() {
    let outboxes = Outboxes::new();
    outboxes.rows("insert into posthaste.outbox (topic) select 't' from generate_series(1, 1000)");
    let distinct = "select count(distinct id), count(distinct seq), count(distinct xid), \
                    bool_and(substr(id::text, 15, 1) = '7' and substr(id::text, 20, 1) in ('8', \
                    '9', 'a', 'b')), bool_and(abs(extract(epoch from clock_timestamp()) * 1000 \
                        - ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint) < 60000) \
                    from posthaste.outbox";
    assert_eq!(outboxes.rows(distinct), "1000|1000|1|t|t");
}

#[tokio::test]
async fn the_functions_name_limit_and_size() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    for (call, said) in [
        (
            "'t', repeat('x', 1048577)",
            "payload has 1048577 bytes, the limit is 1048576",
        ),
        ("repeat('x', 250)", "topic has 250 bytes, the limit is 249"),
        (
            "'t', key => repeat('ü', 513)",
            "key has 1026 bytes, the limit is 1024",
        ),
        (
            "'t', type => repeat('x', 256)",
            "type has 256 bytes, the limit is 255",
        ),
        (
            "'t', content_type => repeat('x', 256)",
            "content_type has 256 bytes, the limit is 255",
        ),
        (
            "'t', correlation_id => repeat('x', 256)",
            "correlation_id has 256 bytes",
        ),
        (
            "'t', causation_id => repeat('x', 256)",
            "causation_id has 256 bytes",
        ),
        (
            "'t', tenant_id => repeat('x', 256)",
            "tenant_id has 256 bytes",
        ),
        (
            "'t', traceparent => repeat('x', 256)",
            "traceparent has 256 bytes",
        ),
        (
            "'t', tracestate => repeat('x', 513)",
            "tracestate has 513 bytes, the limit is 512",
        ),
        (
            "'t', headers => array['n', repeat('x', 65536)]",
            "headers has 65537 bytes, the limit is 65536",
        ),
        ("'t', headers => array['n']", "name, value, name, value"),
        (
            "'t', headers => array[null, 'v']",
            "headers_are_pairs_with_names",
        ),
        ("'a b'", "topic is invalid"),
        ("''", "topic is invalid"),
        ("null", "topic is invalid"),
        ("'t' || chr(8197)", "topic is invalid"),
    ] {
        for function in ["emit", "emit_bytes"] {
            // repeat() answers text, which is not bytes.
            let call = match function {
                "emit_bytes" => call.replace(
                    "'t', repeat('x', 1048577)",
                    "'t', convert_to(repeat('x', 1048577), 'UTF8')",
                ),
                _ => call.to_owned(),
            };
            let message = refusal(
                &mut connection,
                &format!("select posthaste.{function}({call})"),
            )
            .await;
            assert!(message.contains(said), "{function}({call}): {message}");
        }
    }
    assert_eq!(outboxes.rows("select count(*) from posthaste.outbox"), "0");
}

#[tokio::test]
async fn the_functions_payload_limit_follows_the_setting_up_to_the_ceiling() {
    let outboxes = Outboxes::new();
    let (writer, database) = (&outboxes.writer, outboxes.database.name());
    outboxes.rows(&format!(
        "alter role {writer} in database {database} set posthaste.max_payload_bytes = 10485760"
    ));
    let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
    connection
        .execute("select posthaste.emit('t', repeat('x', 10485760))")
        .await
        .unwrap();
    let message = refusal(
        &mut connection,
        "select posthaste.emit('t', repeat('x', 10485761))",
    )
    .await;
    assert!(
        message.contains("payload has 10485761 bytes, the limit is 10485760"),
        "{message}"
    );
    // A local setting reads as an empty text once its transaction has ended.
    let mut plain = outboxes.sqlx(&outboxes.admin_url()).await;
    plain
        .execute("begin; set local posthaste.max_payload_bytes = 1; rollback")
        .await
        .unwrap();
    plain
        .execute("select posthaste.emit('t', 'more than one byte')")
        .await
        .unwrap();
    plain
        .execute("set posthaste.max_payload_bytes = 1000000000")
        .await
        .unwrap();
    let message = refusal(
        &mut plain,
        "select posthaste.emit('t', repeat('x', 67108865))",
    )
    .await;
    assert!(message.contains("the limit is 67108864"), "{message}");
}

#[tokio::test]
async fn the_functions_store_every_field() {
    let outboxes = Outboxes::new();
    let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
    let mut tx = connection.begin().await.unwrap();
    // Not even a hostile search path changes what is called.
    let call = "set local search_path = pg_temp; \
                select posthaste.emit_bytes('t', '\\x00ff', 'k', 'type', array['a', null, 'a', \
                'b'], 'ct', 'cor', 'cau', 'ten', 'tp', 'ts', '2024-02-29 12:00:00.123456+02', \
                '01890a5d-ac96-774b-bcce-b302099a8057', true)";
    sqlx::raw_sql(call).execute(&mut *tx).await.unwrap();
    let events = testing::emitted(&mut *tx).await.unwrap();
    let [event] = &events[..] else {
        panic!("one event")
    };
    assert_eq!(
        event.id().to_string(),
        "01890a5d-ac96-774b-bcce-b302099a8057"
    );
    assert_eq!(
        (event.topic(), event.key(), event.event_type()),
        ("t", Some("k"), Some("type"))
    );
    assert_eq!(event.payload().unwrap().as_ref(), [0, 255]);
    let headers = [
        ("a".to_owned(), None),
        ("a".to_owned(), Some("b".to_owned())),
    ];
    assert_eq!(event.headers(), headers);
    assert_eq!(event.content_type(), Some("ct"));
    assert_eq!(
        (event.correlation_id(), event.causation_id()),
        (Some("cor"), Some("cau"))
    );
    assert_eq!(
        (event.tenant_id(), event.traceparent()),
        (Some("ten"), Some("tp"))
    );
    assert_eq!(event.tracestate(), Some("ts"));
    assert_eq!(
        event.occurred_at(),
        Timestamp::from_micros(1_709_200_800_123_456)
    );
}

#[tokio::test]
async fn the_sqlite_table_refuses_by_itself_and_says_why() {
    let file = SqliteFile::new().await;
    let mut connection = file.connect().await;
    let x = |count: u32| format!("replace(hex(zeroblob({count})), '00', 'x')");
    let mut refused = vec![
        ("topic", "''".to_owned(), "topic_has_1_to_249_bytes"),
        ("topic", x(250), "topic_has_1_to_249_bytes"),
        ("topic", "null".to_owned(), "NOT NULL"),
    ];
    for topic in ["'.'", "'..'"] {
        refused.push(("topic", topic.to_owned(), "topic_is_not_dots"));
    }
    for topic in [
        "'a b'",
        "char(97, 10)",
        "char(97, 127)",
        "char(97, 160)",
        "char(97, 8197)",
        "char(97, 0)",
    ] {
        refused.push((
            "topic",
            topic.to_owned(),
            "topic_without_whitespace_or_control_characters",
        ));
    }
    for column in [
        "type",
        "content_type",
        "correlation_id",
        "causation_id",
        "tenant_id",
        "traceparent",
    ] {
        refused.push((column, x(256), "_is_text_of_at_most_255_bytes_without_nul"));
        refused.push((
            column,
            "char(97, 0, 97)".to_owned(),
            "_is_text_of_at_most_255_bytes_without_nul",
        ));
        refused.push((
            column,
            "x'61'".to_owned(),
            "_is_text_of_at_most_255_bytes_without_nul",
        ));
    }
    for (column, value, said) in [
        (
            "key",
            x(1025),
            "key_is_text_of_at_most_1024_bytes_without_nul",
        ),
        (
            "key",
            "char(0)".to_owned(),
            "key_is_text_of_at_most_1024_bytes_without_nul",
        ),
        (
            "tracestate",
            x(513),
            "tracestate_is_text_of_at_most_512_bytes_without_nul",
        ),
        (
            "payload",
            "zeroblob(67108865)".to_owned(),
            "payload_is_blob_or_text_of_at_most_64_mib",
        ),
        (
            "payload",
            "1".to_owned(),
            "payload_is_blob_or_text_of_at_most_64_mib",
        ),
        ("headers", "'{}'".to_owned(), "headers_are_a_json_array"),
        ("headers", "'x'".to_owned(), "headers_are_a_json_array"),
        (
            "headers",
            r#"'["a"]'"#.to_owned(),
            "headers must be name, value",
        ),
        (
            "headers",
            r#"'[null, "a"]'"#.to_owned(),
            "header names must be text",
        ),
        (
            "headers",
            r#"'["a", 1]'"#.to_owned(),
            "header names must be text",
        ),
        (
            "headers",
            r#"'["a", "\u0000"]'"#.to_owned(),
            "header names must be text",
        ),
        (
            "headers",
            format!("json_array('a', {})", x(65_536)),
            "headers have more than 65536 bytes",
        ),
        (
            "id",
            "'01890A5D-AC96-774B-BCCE-B302099A8057'".to_owned(),
            "id_is_a_lower_case_uuid",
        ),
        (
            "id",
            "'01890a5dac96774bbcceb302099a8057'".to_owned(),
            "id_is_a_lower_case_uuid",
        ),
        (
            "occurred_at",
            "'2024-01-01'".to_owned(),
            "occurred_at_is_microseconds_between_year_1_and_9999",
        ),
        (
            "occurred_at",
            "253402300800000000".to_owned(),
            "occurred_at_is_microseconds_between_year_1_and_9999",
        ),
        (
            "destinations",
            "'[]'".to_owned(),
            "destinations_not_honoured_yet",
        ),
        (
            "deliver_after",
            "1".to_owned(),
            "deliver_after_not_honoured_yet",
        ),
        ("expires_at", "1".to_owned(), "expires_at_not_honoured_yet"),
    ] {
        refused.push((column, value, said));
    }
    for (column, value, said) in refused {
        let sql = insert("posthaste_outbox", column, &value);
        let message = match sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
        {
            Ok(_) => panic!("this should have been refused: {column} = {value}"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains(said), "{column} = {value}: {message}");
    }
    assert!(testing::emitted(&mut connection).await.unwrap().is_empty());
}
