//! The types that `posthaste.emit` takes without a cast, and which function PostgreSQL chooses for
//! a call of which it does not know all types.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use crate::support::Outboxes;
use tokio_postgres::types::Type;

const VERSIONS: [u16; 3] = [14, 15, 18];

/// How a payload is written, its content type and its bytes.
const PAYLOADS: [(&str, &str, &str); 9] = [
    (r#"'{"a": 1}'"#, "-", r#"{"a": 1}"#),
    (r#"'{"a": 1}'::text"#, "-", r#"{"a": 1}"#),
    (r#"'{"a": 1}'::varchar"#, "-", r#"{"a": 1}"#),
    (r#"'[1,2]'::json"#, "application/json", "[1,2]"),
    (r#"'[1,2]'::jsonb"#, "application/json", "[1, 2]"),
    (r#"'\x6869'::bytea"#, "-", "hi"),
    (r#"'\x6869'"#, "-", r#"\x6869"#),
    ("null", "-", "-"),
    ("null::jsonb", "application/json", "-"),
];

/// How a key is written, and the stored one.
const KEYS: [(&str, &str); 12] = [
    ("'order-1'", "order-1"),
    ("'42'", "42"),
    // A literal is text, whatever it looks like: it is stored as it was written.
    (
        "'01890A5D-AC96-774B-BCCE-B302099A8057'",
        "01890A5D-AC96-774B-BCCE-B302099A8057",
    ),
    ("'order-1'::text", "order-1"),
    ("'order-1'::varchar(20)", "order-1"),
    ("'order-1'::name", "order-1"),
    (
        "'01890A5D-AC96-774B-BCCE-B302099A8057'::uuid",
        "01890a5d-ac96-774b-bcce-b302099a8057",
    ),
    ("42", "42"),
    ("-7::smallint", "-7"),
    ("9223372036854775807", "9223372036854775807"),
    ("null", "-"),
    ("null::uuid", "-"),
];

#[test]
fn every_payload_goes_with_every_key() {
    for version in VERSIONS {
        let outboxes = Outboxes::of_version(version);
        let (mut sql, mut expected) = (String::new(), Vec::new());
        for (payload, content_type, bytes) in PAYLOADS {
            for (key, stored) in KEYS {
                for call in [
                    format!("emit('t', {payload}, {key})"),
                    format!("emit('t', {payload}, key => {key})"),
                    format!("emit(key => {key}, topic => 't', payload => {payload})"),
                    format!(
                        "emit('t', {payload}, {key}, 'e', '{{a,b}}', lock_key => true, id => \
                         posthaste.uuid_v7())"
                    ),
                ] {
                    sql.push_str(&format!("select posthaste.{call};\n"));
                    expected.push(format!("{stored}|{content_type}|{bytes}"));
                }
            }
        }
        outboxes.rows(&sql);
        assert_eq!(outboxes.rows(STORED), expected.join("\n"), "{version}");
    }
}

const STORED: &str = "\
select coalesce(key, '-'), coalesce(content_type, '-'), coalesce(convert_from(payload, 'UTF8'), '-')
from posthaste.outbox order by seq";

#[test]
fn calls_without_a_key_and_bytes_by_name() {
    let outboxes = Outboxes::new();
    outboxes.rows(
        r"select posthaste.emit('t');
          select posthaste.emit('t', 'text');
          select posthaste.emit('t', '[1]'::jsonb, type => 'e');
          select posthaste.emit('t', '\x6869'::bytea);
          select posthaste.emit('t', key => 'k');
          select posthaste.emit('t', null, key => 7);
          select posthaste.emit_bytes('t', '\x6869', key => 'k');
          select posthaste.emit_bytes('t', '\x6869', key => 7);
          select posthaste.emit_bytes('t', key => 'k')",
    );
    let expected = "-|-|-
-|-|text
-|application/json|[1]
-|-|hi
k|-|-
7|-|-
k|-|hi
7|-|hi
k|-|-";
    assert_eq!(outboxes.rows(STORED), expected);
}

/// Drivers send parameters with a type of their own, or let the server choose: then it is text, as
/// it always was.
#[tokio::test]
async fn parameters_without_a_type_are_text_beside_any_other() {
    const CALLS: [&str; 4] = [
        "emit($1, $2, $3)",
        "emit($1, $2, key => $3)",
        "emit(key => $3, payload => $2, topic => $1)",
        "emit($1, $2, $3, type => $4, headers => $5, tenant_id => $6)",
    ];
    let payloads = [
        Type::UNKNOWN,
        Type::TEXT,
        Type::VARCHAR,
        Type::JSON,
        Type::JSONB,
        Type::BYTEA,
    ];
    let keys = [
        Type::UNKNOWN,
        Type::TEXT,
        Type::VARCHAR,
        Type::BPCHAR,
        Type::UUID,
        Type::INT2,
        Type::INT4,
        Type::INT8,
    ];
    for version in VERSIONS {
        let outboxes = Outboxes::of_version(version);
        let client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
        for (payload, key) in payloads
            .iter()
            .flat_map(|payload| keys.iter().map(move |key| (payload, key)))
        {
            for topic in [Type::UNKNOWN, Type::VARCHAR] {
                let sent = [topic, payload.clone(), key.clone()];
                for call in CALLS {
                    let sql = format!("select posthaste.{call}");
                    let prepared = client.prepare_typed(&sql, &sent).await;
                    let prepared =
                        prepared.unwrap_or_else(|e| panic!("{version}, {call}, {sent:?}: {e}"));
                    let chosen = sent.iter().map(|sent| match *sent {
                        Type::UNKNOWN => Type::TEXT,
                        ref known => known.clone(),
                    });
                    let rest = [Type::TEXT, Type::TEXT_ARRAY, Type::TEXT];
                    let chosen: Vec<_> = chosen.chain(rest).collect();
                    let parameters = prepared.params();
                    assert_eq!(parameters, &chosen[..parameters.len()], "{version}, {call}");
                }
            }
        }
    }
}

/// A number in place of the payload, or a key whose text depends on settings, is a mistake that
/// PostgreSQL names.
#[tokio::test]
async fn other_types_are_refused_with_the_call_in_the_message() {
    let outboxes = Outboxes::new();
    let client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
    for call in [
        "emit('t', 42)",
        "emit('t', gen_random_uuid())",
        "emit('t', key => 42)",
        "emit('t', 'x', key => 4.2)",
        "emit('t', 'x', key => now())",
        "emit('t', 'x', key => true)",
        "emit('t', array['a'], key => 'k')",
    ] {
        let statement = format!("select posthaste.{call}");
        let refused = client.batch_execute(&statement).await.expect_err(call);
        let told = refused.as_db_error().unwrap();
        assert_eq!(told.code().code(), "42883", "{call}: {told}");
        assert!(told.hint().unwrap().contains("type casts"), "{call}");
    }
}

#[tokio::test]
async fn nested_headers_are_named() {
    let outboxes = Outboxes::new();
    let client = outboxes.tokio_postgres(&outboxes.writer_url()).await;
    for function in ["emit", "emit_bytes"] {
        let call = format!(
            "select posthaste.{function}('t', 'x', headers => array[['a', '1'], ['b', '2']])"
        );
        let refused = client.batch_execute(&call).await.expect_err(&call);
        let told = refused.as_db_error().unwrap();
        assert!(
            told.message()
                .contains("headers is a nested array (2 dimensions)")
                && told.hint().unwrap().contains("array['a', '1', 'b', '2']"),
            "{told:?}"
        );
    }
}

/// The lock of a number or a UUID is that of its text.
#[tokio::test]
async fn the_lock_of_a_key_does_not_depend_on_its_type() {
    let outboxes = Outboxes::new();
    let held = "select count(*), count(distinct objid) from pg_locks where locktype = 'advisory' \
                and pid = pg_backend_pid()";
    let locks = |text: &str, typed: &str| {
        outboxes.rows(&format!(
            "begin; select posthaste.lock_key({text}); select posthaste.lock_key({typed}); {held}"
        ))
    };
    assert!(locks("'42'", "42").ends_with("1|1"));
    let uuid = "01890a5d-ac96-774b-bcce-b302099a8057";
    assert!(locks(&format!("'{uuid}'"), &format!("'{uuid}'::uuid")).ends_with("1|1"));
    assert!(locks("'42'", "43").ends_with("2|2"));
}
