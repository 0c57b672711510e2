//! The refusals and answers of MySQL's table itself, for writers without the library, in sessions
//! of every kind.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use posthaste::schema::Placeholders;
use posthaste::{Dialect, Timestamp, slot, testing};
use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection};

use crate::support::MysqlOutboxes;

/// Column, expression that is refused, what the message names.
const REFUSED: [(&str, &str, &str); 43] = [
    ("topic", "_utf8mb4''", "topic_has_1_to_249_bytes"),
    ("topic", "repeat('x', 250)", "topic_has_1_to_249_bytes"),
    ("topic", "repeat('x', 999)", "topic_has_1_to_249_bytes"),
    ("topic", "repeat('ü', 125)", "topic_has_1_to_249_bytes"),
    ("topic", "null", "null"),
    ("topic", "'.'", "topic_is_not_dots"),
    ("topic", "'..'", "topic_is_not_dots"),
    ("topic", "'a b'", "topic_without_whitespace"),
    ("topic", "' a'", "topic_without_whitespace"),
    (
        "topic",
        "char(97, 0 using utf8mb4)",
        "topic_without_whitespace",
    ),
    (
        "topic",
        "char(97, 10 using utf8mb4)",
        "topic_without_whitespace",
    ),
    (
        "topic",
        "char(97, 127 using utf8mb4)",
        "topic_without_whitespace",
    ),
    (
        "topic",
        "char(97, 0xc2a0 using utf8mb4)",
        "topic_without_whitespace",
    ),
    (
        "topic",
        "char(97, 0xe28085 using utf8mb4)",
        "topic_without_whitespace",
    ),
    (
        "topic",
        "char(97, 0xe38080 using utf8mb4)",
        "topic_without_whitespace",
    ),
    ("key", "repeat('x', 1025)", "key_has_at_most_1024_bytes"),
    ("key", "repeat('ü', 513)", "key_has_at_most_1024_bytes"),
    ("key", "repeat('x', 9999)", "key_has_at_most_1024_bytes"),
    (
        "key",
        "char(97, 0 using utf8mb4)",
        "key_has_at_most_1024_bytes_without_nul",
    ),
    ("type", "repeat('x', 256)", "type_has_at_most_255_bytes"),
    (
        "type",
        "char(0 using utf8mb4)",
        "type_has_at_most_255_bytes_without_nul",
    ),
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
    ("headers", "'{\"a\": \"b\"}'", "headers_are_pairs"),
    ("headers", "'\"a\"'", "headers_are_pairs"),
    ("headers", "'[\"a\"]'", "headers_are_pairs"),
    (
        "headers",
        "'[null, \"a\"]'",
        "headers_are_text_or_null_with_names",
    ),
    (
        "headers",
        "'[\"a\", 1]'",
        "headers_are_text_or_null_with_names",
    ),
    (
        "headers",
        "'[\"a\", true]'",
        "headers_are_text_or_null_with_names",
    ),
    (
        "headers",
        "'[\"a\", [\"b\"]]'",
        "headers_are_text_or_null_with_names",
    ),
    (
        "headers",
        "'[\"a\", {\"b\": \"c\"}]'",
        "headers_are_text_or_null_with_names",
    ),
    (
        "headers",
        "json_array('a', char(0 using utf8mb4))",
        "headers_are_text_or_null_with_names",
    ),
    (
        "headers",
        "json_array('a', repeat('x', 1048576))",
        "headers_have_at_most_1_mib_of_json",
    ),
    (
        "id",
        "'01890a5d-ac96-774b-bcce-b302099a8057'",
        "id_has_16_bytes",
    ),
    ("id", "'x'", "id_has_16_bytes"),
    (
        "occurred_at",
        "cast('0000-00-00' as datetime)",
        "occurred_at_is_between_year_1_and_9999",
    ),
    ("destinations", "'[]'", "destinations_not_honoured_yet"),
    (
        "deliver_after",
        "utc_timestamp()",
        "deliver_after_not_honoured_yet",
    ),
    (
        "expires_at",
        "utc_timestamp()",
        "expires_at_not_honoured_yet",
    ),
];

const COUNT: &str = "select count(*) from posthaste_outbox";

/// Settings of sessions that change what statements mean.
fn odd_sessions(version: Version) -> Vec<&'static str> {
    let mut sessions = vec![
        "set sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00'",
        "set sql_mode = '', time_zone = '-11:00'",
        "set sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH', \
         time_zone = '+13:00'",
        "set sql_mode = 'ALLOW_INVALID_DATES,NO_UNSIGNED_SUBTRACTION,NO_AUTO_VALUE_ON_ZERO'",
        "set collation_connection = utf16_bin",
    ];
    if version.is_mariadb() {
        sessions.push("set sql_mode = 'ORACLE,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT'");
    }
    sessions
}

async fn refusal(connection: &mut MySqlConnection, column: &str, value: &str) -> String {
    let sql = match column {
        "topic" => format!("insert into posthaste_outbox (topic) values ({value})"),
        _ => format!("insert into posthaste_outbox (topic, `{column}`) values ('t', {value})"),
    };
    match sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await {
        Ok(_) => panic!("this should have been refused: {column} = {value}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn the_table_refuses_by_itself_and_says_why_however_lenient_the_session() {
    for version in Version::ALL
        .into_iter()
        .filter(|version| version.has_checks())
    {
        let outboxes = MysqlOutboxes::new(version);
        for session in ["set sql_mode = ''", "set sql_mode = 'ALLOW_INVALID_DATES'"] {
            let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
            connection.execute(session).await.unwrap();
            for (column, value, said) in REFUSED {
                let message = refusal(&mut connection, column, value).await;
                assert!(message.contains(said), "{column} = {value}: {message}");
            }
            let message = refusal(&mut connection, "payload", "repeat('x', 67108865)").await;
            assert!(message.contains("payload_has_at_most_64_mib"), "{message}");
        }
        assert_eq!(outboxes.rows(COUNT), "0");
    }
}

/// MySQL before 8.0.16 reads the constraint CHECK and ignores it; types and NOT NULL hold there
/// too.
#[tokio::test]
async fn a_server_that_ignores_checks_refuses_by_its_types_where_it_is_strict() {
    let outboxes = MysqlOutboxes::new(Version::MySql8);
    let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
    for (column, value, said) in [
        ("topic", "null", "cannot be null"),
        ("topic", "repeat('x', 251)", "Data too long"),
        ("key", "repeat('x', 1026)", "Data too long"),
        ("id", "repeat('x', 37)", "Data too long"),
        ("headers", "'rubbish'", "Invalid JSON text"),
        ("occurred_at", "'rubbish'", "Incorrect datetime value"),
    ] {
        let message = refusal(&mut connection, column, value).await;
        assert!(message.contains(said), "{column} = {value}: {message}");
    }
    assert_eq!(outboxes.rows(COUNT), "0");
}

#[tokio::test]
async fn a_writer_can_neither_read_nor_change_nor_forge() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let mut connection = outboxes.sqlx(&outboxes.writer_url()).await;
        for sql in [
            "select * from posthaste_outbox",
            "update posthaste_outbox set topic = 'x'",
            "delete from posthaste_outbox",
            "truncate posthaste_outbox",
            "insert into posthaste_outbox (topic, seq) values ('t', 3)",
            "insert into posthaste_outbox (topic, inserted_at) values ('t', utc_timestamp())",
            "insert into posthaste_outbox (topic) values ('t') on duplicate key update topic = 'x'",
            "replace into posthaste_outbox (topic) values ('t')",
            "delete from posthaste_key_locks",
            "select * from posthaste_settings",
            "alter table posthaste_outbox auto_increment = 3",
        ] {
            match sqlx::raw_sql(sql).execute(&mut connection).await {
                Ok(_) => panic!("this should have been refused: {sql}"),
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.contains("denied"), "{sql}: {message}");
                }
            }
        }
        assert_eq!(outboxes.rows(COUNT), "0");
    }
}

#[tokio::test]
async fn slots_ids_and_times_are_the_same_in_sessions_of_every_kind() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let mut connection = outboxes.sqlx(&outboxes.admin_url()).await;
        for session in odd_sessions(version) {
            let mut writer = outboxes.sqlx(&outboxes.admin_url()).await;
            writer.execute(session).await.unwrap();
            let sql = "insert into posthaste_outbox (topic, `key`) values ('t', null), \
                       ('t', _utf8mb4 x''), ('t', _utf8mb4 x'6f726465722d31'), \
                       ('t', _utf8mb4 x'615c62'), ('t', _utf8mb4 x'4772c3b6c39f65'), \
                       ('t', _utf8mb4 x'f09f9a9a')";
            writer.execute(sql).await.unwrap();
            let now = Timestamp::now().as_micros();

            let events = testing::emitted(&mut connection).await.unwrap();
            let keys: Vec<_> = events.iter().map(|event| event.key()).collect();
            let expected = [
                None,
                Some(""),
                Some("order-1"),
                Some(r"a\b"),
                Some("Größe"),
                Some("🚚"),
            ];
            assert_eq!(keys, expected, "{session}");
            let slots: Vec<u16> =
                sqlx::query_scalar("select slot from posthaste_outbox order by seq")
                    .fetch_all(&mut connection)
                    .await
                    .unwrap();
            let times = "select timestampdiff(microsecond, '1970-01-01', inserted_at) from \
                         posthaste_outbox order by seq";
            let times: Vec<i64> = sqlx::query_scalar(times)
                .fetch_all(&mut connection)
                .await
                .unwrap();
            for ((event, found), inserted_at) in events.iter().zip(slots).zip(times) {
                let id = event.id();
                assert_eq!(
                    found,
                    slot(event.key().unwrap_or(&id.to_string())),
                    "{session}"
                );
                assert_eq!(id.get_version_num(), 7, "{session}");
                assert_eq!(id.get_variant().to_string(), "RFC4122", "{session}");
                let (seconds, _) = id.get_timestamp().unwrap().to_unix();
                let minute = 60_000_000;
                assert!(now.abs_diff(i64::try_from(seconds).unwrap() * 1_000_000) < minute);
                assert!(
                    now.abs_diff(event.occurred_at().as_micros()) < minute,
                    "{session}"
                );
                assert!(now.abs_diff(inserted_at) < minute, "{session}");
            }
            connection
                .execute("delete from posthaste_outbox")
                .await
                .unwrap();
        }
    }
}

/// A schema made in any session is the same one, and the session is as it was.
#[tokio::test]
async fn the_schema_can_be_made_in_sessions_of_every_kind_and_again() {
    let table = "show create table posthaste_outbox";
    let settings = "select concat(@@sql_mode, @@collation_connection, @@time_zone)";
    for version in Version::ALL {
        let server = MysqlServer::shared(version);
        let usual = MysqlOutboxes::new(version).rows(table);
        for session in odd_sessions(version) {
            let database = server.create_database();
            let mut connection = <MySqlConnection as sqlx::Connection>::connect(&database.url())
                .await
                .unwrap();
            connection.execute(session).await.unwrap();
            let before: String = sqlx::query_scalar(settings)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            for migration in [Dialect::Mysql.migrations(), Dialect::Mysql.migrations()].concat() {
                let sql = AssertSqlSafe(migration.render(Placeholders::default()));
                connection.execute(sqlx::raw_sql(sql)).await.unwrap();
            }
            let after: String = sqlx::query_scalar(settings)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(after, before);
            assert_eq!(database.sql(table), usual, "{session}");
            let locks = "select count(*), min(slot), max(slot) from posthaste_key_locks";
            assert_eq!(database.sql(locks), "16384\t0\t16383");
        }
    }
}

/// A dump keeps every expression: no character of them is lost on the way.
#[tokio::test]
async fn the_table_made_from_its_own_description_is_the_same() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        let described = outboxes.rows("show create table posthaste_outbox");
        let (_, create) = described.split_once('\t').unwrap();
        let again = outboxes.server.create_database();
        again.sql(&create.replace("\\n", "\n"));
        // MySQL names the character set of a column or leaves it to the table's.
        let shown = |table: &str| table.replace(" CHARACTER SET utf8mb4", "");
        let description = again.sql("show create table posthaste_outbox");
        assert_eq!(shown(&description), shown(&described));
    }
}

#[tokio::test]
async fn headers_of_the_largest_allowed_size_pass_the_checks() {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        for headers in [
            "json_array('', repeat('x', 65536))",
            "json_array('', repeat(char(1 using utf8mb4), 65536))",
            "json_array('', repeat(char(1 using utf8mb4), 10900))",
            "json_array('', repeat(char(34 using utf8mb4), 32700))",
            "json_array('', repeat(char(92 using utf8mb4), 32700))",
            // Just within what is looked at, as MariaDB and as MySQL write it.
            "concat('[', repeat('\"\",\"\",', 10920), '\"\",\"\"]')",
            "concat('[', repeat('\"\",\"\",', 8190), '\"\",\"\"]')",
            "concat('[', repeat('\"\",null,', 16000), '\"\",\"\"]')",
        ] {
            outboxes.rows(&format!(
                "insert into posthaste_outbox (topic, headers) values ('t', {headers})"
            ));
        }
    }
}
