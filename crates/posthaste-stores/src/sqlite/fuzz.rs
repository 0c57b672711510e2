//! Bytes from outside: the store's address, and rows that somebody else wrote.

use std::panic::AssertUnwindSafe;

use bolero::check;
use posthaste::{Dialect, Event, EventBuilder, Outbox, Param, Timestamp};
use posthaste_engine::{Field, OrderBy, StoredEvent};
use posthaste_testkit::fuzz::{iterations, percent_encoded, spelled, words};
use rusqlite::{Connection, params_from_iter, types::Value};

use super::{SqliteConfig, row};
use crate::headers;

const ADDRESS_WORDS: &str = "\
    sqlite:|//|/|?|&|=|%|%2|%20|%+1|%ff|:memory:|orders.db|busy_timeout=|5s|500ms|\
    99999999999999999999s|ü";

#[test]
fn fuzz_address() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(32)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(ADDRESS_WORDS));
            for address in [text.clone(), format!("sqlite:{text}")] {
                match SqliteConfig::parse(&address) {
                    Ok(config) => {
                        assert!(!config.path.as_os_str().is_empty());
                        assert!((1..=3_600_000).contains(&config.busy_timeout.as_millis()));
                    }
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
            let encoded = format!("sqlite:./{}", percent_encoded(&text));
            let config = SqliteConfig::parse(&encoded).unwrap();
            assert_eq!(config.path.to_str(), Some(&*format!("./{text}")));
        });
}

const JSON_WORDS: &str = "\
    [|]|,|\"|\"\"|null|\\\"|\\\\|\\/|\\n|\\u0041|\\u0000|\\ud83d|\\ude9a|\\uD83D\\uDE9A|\
    \\u+041|\\x41|'a'|a:1|1|true|{}|🚚|\u{85}|\u{feff}|/**/|\"name\",\"value\"|\"name\",null|\
    ,\"a\",\"b\"]";

/// Our reader takes what another one takes, and reads the same. It takes more, since SQLite does:
/// bare control characters, and halves of surrogate pairs.
#[test]
fn fuzz_header_json() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(32)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(JSON_WORDS));
            for json in [text.clone(), format!("[\"{text}\"]"), format!("[{text}]")] {
                let ours = headers::parse(&json);
                let theirs = serde_json::from_str::<Vec<Option<String>>>(&json).ok();
                match (&ours, &theirs) {
                    (_, Some(_)) => assert_eq!(ours, theirs, "{json:?}"),
                    (Some(texts), None) => {
                        let lenient = json.contains(|c: char| c < ' ') || json.contains("\\u");
                        assert!(lenient, "{json:?} is {texts:?}");
                    }
                    (None, None) => {}
                }
            }
        });
}

const ID: &str = "01900000-0000-7000-8000-000000000001";

fn outbox() -> Connection {
    let database = Connection::open_in_memory().unwrap();
    let sql = super::sql(super::InitOptions::default()).unwrap();
    database.execute_batch(&sql).unwrap();
    database
}

/// The one event of the outbox, which is taken out.
fn take(outbox: &Connection) -> Result<StoredEvent, String> {
    let mut page = outbox.prepare_cached(include_str!("sql/page.sql")).unwrap();
    let bounds = rusqlite::named_params! { ":after": 0, ":until": i64::MAX };
    let event = page
        .query_row(bounds, |row| {
            Ok(row::copy("fuzz", OrderBy::Key, row).map_err(|error| error.to_string()))
        })
        .unwrap();
    outbox.execute("delete from posthaste_outbox", []).unwrap();
    let event = event?;
    match event.fault() {
        Some(fault) => Err(fault.to_owned()),
        None => Ok(event),
    }
}

/// SQLite's functions, and so the table's checks, end at a NUL; such a row used to hold up the
/// outbox.
#[test]
fn the_end_of_a_c_string_in_an_id_or_in_headers_is_passed_over() {
    let outbox = outbox();
    let insert = format!(
        "insert into posthaste_outbox (id, topic, headers)
         values ('{ID}' || char(0), 't', '[\"a\",null]' || char(0) || 'x')"
    );
    outbox.execute(&insert, []).unwrap();
    let event = take(&outbox).unwrap();
    assert_eq!(event.id().to_string(), ID);
    assert_eq!(event.headers().collect::<Vec<_>>(), [("a", None)]);
}

/// Headers as SQLite itself reads them.
const THEIR_HEADERS: &str =
    "select value from posthaste_outbox, json_each(headers) order by json_each.id";

/// The relay reads all headers that the table takes, as text of any bytes, and as SQLite does: a
/// row that it could not read would hold up the whole outbox.
#[test]
fn fuzz_headers_in_the_table() {
    let outbox = AssertUnwindSafe(outbox());
    check!()
        .with_iterations(iterations(200))
        .with_max_len(24)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(JSON_WORDS));
            for json in [
                format!("[{text}]").into_bytes(),
                [b"[\"a\",\"", input, b"\"]"].concat(),
                [b"[\"a\",\"b\"]", input].concat(),
            ] {
                let insert = "insert into posthaste_outbox (id, topic, headers)
                    values ('01900000-0000-7000-8000-000000000001', 't', cast(?1 as text))";
                if outbox.execute(insert, [&json]).is_err() {
                    continue;
                }
                let mut query = outbox.prepare_cached(THEIR_HEADERS).unwrap();
                let theirs = query.query_map([], |row| {
                    let value = row.get_ref(0)?.as_str_or_null();
                    Ok(value.map(|text| text.map(str::to_owned)))
                });
                let theirs: Vec<_> = theirs.unwrap().map(Result::unwrap).collect();
                let shown = String::from_utf8_lossy(&json);
                let event = take(&outbox).unwrap_or_else(|error| panic!("{shown:?}: {error}"));
                let ours = event
                    .headers()
                    .flat_map(|(name, value)| [Some(name), value]);
                let ours: Vec<_> = ours.collect();
                assert_eq!(ours.len(), theirs.len(), "{shown:?}");
                for (ours, theirs) in ours.into_iter().zip(theirs) {
                    // Not UTF-8: half a surrogate pair, or such bytes. Ours has U+FFFD there.
                    if let Ok(theirs) = theirs {
                        assert_eq!(ours, theirs.as_deref(), "{shown:?}");
                    }
                }
            }
        });
}

/// The relay reads every value of any type that the table takes in any column.
#[test]
fn fuzz_columns_of_the_table() {
    const COLUMNS: [&str; 13] = [
        "id",
        "topic",
        "key",
        "type",
        "content_type",
        "payload",
        "headers",
        "occurred_at",
        "correlation_id",
        "causation_id",
        "tenant_id",
        "traceparent",
        "tracestate",
    ];
    let outbox = AssertUnwindSafe(outbox());
    check!()
        .with_iterations(iterations(200))
        .with_max_len(48)
        .for_each(|input: &[u8]| {
            let Some((&column, bytes)) = input.split_first() else {
                return;
            };
            let column = COLUMNS[usize::from(column) % COLUMNS.len()];
            let number = bytes
                .iter()
                .fold(0_i64, |n, &byte| n << 8 | i64::from(byte));
            let texts = [bytes, &[ID.as_bytes(), bytes].concat()].map(<[u8]>::to_vec);
            let values = texts.into_iter().flat_map(|bytes| {
                [
                    (Value::Blob(bytes.clone()), "text"),
                    (Value::Blob(bytes), "blob"),
                ]
            });
            let numbers = [
                (Value::Integer(number), "integer"),
                (Value::Real(1e300), "real"),
            ];
            for (value, kind) in values.chain(numbers) {
                let all: Vec<_> = ["id", "topic"]
                    .into_iter()
                    .filter(|own| *own != column)
                    .collect();
                let own = all.iter().map(|own| match *own {
                    "id" => format!(",'{ID}'"),
                    _ => ",'t'".to_owned(),
                });
                let insert = format!(
                    "insert into posthaste_outbox ({column},{}) values (cast(?1 as {kind}){})",
                    all.join(","),
                    own.collect::<String>()
                );
                if outbox.execute(&insert, [&value]).is_err() {
                    continue;
                }
                let event =
                    take(&outbox).unwrap_or_else(|error| panic!("{column}, {value:?}: {error}"));
                assert_eq!(event.id().to_string(), ID);
                let Value::Blob(bytes) = value else { continue };
                match column {
                    "payload" => assert_eq!(event.payload(), Some(&*bytes)),
                    "key" => assert_eq!(event.key(), Some(&*String::from_utf8_lossy(&bytes))),
                    "tracestate" => assert_eq!(
                        event.text(Field::Tracestate),
                        Some(&*String::from_utf8_lossy(&bytes))
                    ),
                    _ => {}
                }
            }
        });
}

type AnyEvent = (
    String,
    [Option<String>; 7],
    Option<Vec<u8>>,
    Vec<(String, Option<String>)>,
    i64,
    bool,
    (u8, u16),
);

/// The library takes an event if and only if the table takes its row, and what is emitted is read
/// as it was given.
#[test]
fn fuzz_emitted_events() {
    const SET: [fn(EventBuilder, String) -> EventBuilder; 7] = [
        |builder, text| builder.key(text),
        |builder, text| builder.event_type(text),
        |builder, text| builder.content_type(text),
        |builder, text| builder.correlation_id(text),
        |builder, text| builder.causation_id(text),
        |builder, text| builder.tenant_id(text),
        |builder, text| builder.tracestate(text),
    ];
    const INSERT: &str =
        "insert into posthaste_outbox (id, topic, key, type, content_type, correlation_id,
        causation_id, tenant_id, tracestate, payload, headers, occurred_at)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let outbox = AssertUnwindSafe(outbox());
    check!()
        .with_iterations(iterations(200))
        .with_type::<AnyEvent>()
        .for_each(|(topic, texts, payload, headers, time, any_time, long)| {
            // One of the texts is long, often near its limit.
            let long = |at: usize, text: &str| match usize::from(long.0 % 24) == at {
                true => text.repeat((usize::from(long.1) % 1_100).div_ceil(text.len().max(1))),
                false => text.to_owned(),
            };
            let topic: String = match any_time {
                // Hardly any text at random is a topic.
                false => topic
                    .chars()
                    .filter(|c| !c.is_whitespace() && !c.is_control())
                    .collect(),
                true => topic.clone(),
            };
            let topic = long(8, &topic);
            let time = if *any_time { *time } else { *time / 100 };
            let mut builder = Event::builder(&*topic).occurred_at(Timestamp::from_micros(time));
            let mut values: Vec<Value> = vec![ID.to_owned().into(), topic.clone().into()];
            for (at, (text, set)) in texts.iter().zip(SET).enumerate() {
                let text = text.as_ref().map(|text| long(at, text));
                values.push(text.clone().into());
                builder = text.into_iter().fold(builder, set);
            }
            let headers: Vec<_> = (9..)
                .zip(headers)
                .map(|(at, (name, value))| (long(at, name), value.clone()))
                .collect();
            for (name, value) in &headers {
                builder = match value {
                    Some(value) => builder.header(name, value),
                    None => builder.header_without_value(name),
                };
            }
            if let Some(payload) = payload {
                builder = builder.payload(payload.clone());
            }
            let flat = headers
                .iter()
                .flat_map(|(name, value)| [Some(name), value.as_ref()]);
            let json = serde_json::to_string(&flat.collect::<Vec<_>>()).unwrap();
            values.extend([payload.clone().into(), json.into(), time.into()]);

            let built = builder.id(ID.parse().unwrap()).build();
            let taken = outbox.execute(INSERT, params_from_iter(&values));
            match (built, taken) {
                (Ok(event), Ok(_)) => {
                    let by_hand = take(&outbox).unwrap();
                    compare(&by_hand, &event);
                    emit(&outbox, &event);
                    compare(&take(&outbox).unwrap(), &event);
                }
                (Err(_), Err(_)) => {}
                (Ok(_), Err(error)) => panic!("the table refuses: {error}"),
                (Err(error), Ok(_)) => panic!("the library refuses: {error}"),
            }
        });
}

fn emit(outbox: &Connection, event: &Event) {
    let posthaste = Outbox::new();
    let statement = posthaste
        .statement(Dialect::Sqlite, std::slice::from_ref(event))
        .unwrap();
    let values = statement.params().iter().map(|param| match param {
        Param::Text(text) => Value::from(text.as_ref().map(ToString::to_string)),
        Param::Bytes(bytes) => bytes.map(<[u8]>::to_vec).into(),
        Param::BigInt(number) => (*number).into(),
        _ => panic!("SQLite has no arrays"),
    });
    outbox
        .execute(statement.sql(), params_from_iter(values))
        .unwrap();
}

fn compare(read: &StoredEvent, event: &Event) {
    assert_eq!((read.id(), read.topic()), (event.id(), event.topic()));
    assert_eq!(
        (read.key(), read.payload()),
        (event.key(), event.payload().map(|bytes| &**bytes))
    );
    for (field, text) in [
        (Field::Type, event.event_type()),
        (Field::ContentType, event.content_type()),
        (Field::CorrelationId, event.correlation_id()),
        (Field::CausationId, event.causation_id()),
        (Field::TenantId, event.tenant_id()),
        (Field::Tracestate, event.tracestate()),
    ] {
        assert_eq!(read.text(field), text);
    }
    let headers = event
        .headers()
        .iter()
        .map(|(name, value)| (&**name, value.as_deref()));
    assert!(read.headers().eq(headers));
    assert_eq!(read.occurred_at(), event.occurred_at().as_micros());
    assert_eq!(read.slot(), posthaste::slot(event.key().unwrap_or(ID)));
}
