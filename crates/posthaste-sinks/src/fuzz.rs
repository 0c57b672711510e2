//! Bytes from outside: addresses, and events of any content on their way into lines.

use bolero::{TypeGenerator, check};
use jiff::civil::DateTime;
use posthaste_engine::{AddressForm, Field, OptionSpec, PageBuilder, Record, StoredFields};
use posthaste_testkit::fuzz::{iterations, percent_encoded, spelled};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{SINKS, address::Address, jsonl, open};

const SECRET: &str = "GEHEIM";

const WORDS: &[&str] = &[
    SECRET,
    "@",
    ":",
    "/",
    "//",
    "?",
    "&",
    "=",
    "%",
    "%4",
    "%40",
    "%+1",
    "%ff",
    "[",
    "]",
    "[::1]",
    "[fe80::1%25eth0]",
    ",",
    "#",
    "ü",
    ":9092",
    ":0",
    ":65536",
    "host",
    "file:",
    "amqp:",
    "amqps:",
    "kafka:",
    "stdout:",
    "null:",
    "?exchange=",
    "&exchange=",
    "&max_event_bytes=",
    "99999999999999999999",
    "&ca_file=",
    "&cert_file=",
    "&sasl=plain",
    "&tls=true",
    "&tls=false",
    "&linger=",
    "5ms",
    "&delivery=transactional",
    "&progress_topic=",
    "&progress_topc=",
];

fn refusal(url: &str) -> Option<String> {
    open(url).err().map(|error| error.to_string())
}

/// Every error says something and repeats no password: here all that was written is one.
#[test]
fn fuzz_addresses() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(40)
        .for_each(|input: &[u8]| {
            let text = spelled(input, WORDS);
            assert_ne!(refusal(&text).as_deref(), Some(""));
            let brokers = SINKS.iter().map(|sink| &sink.plug_in).filter(|plug_in| {
                use AddressForm::{Servers, ServersOrToken};
                matches!(plug_in.address, Servers | ServersOrToken)
            });
            for scheme in brokers.flat_map(|plug_in| plug_in.schemes) {
                let options = "exchange=x&sasl=plain&tls=false";
                for url in [
                    format!("{scheme}://me:{text}@host/?{options}"),
                    format!("{scheme}://me:{SECRET}{}", text.replace(SECRET, "")),
                ] {
                    let said = refusal(&url).unwrap_or_default();
                    assert!(!said.contains(SECRET), "{url}: {said}");
                }
            }
        });
}

/// A percent-encoded text comes out as it was, wherever it stands.
#[test]
fn fuzz_encoded_parts() {
    check!()
        .with_iterations(iterations(1_000))
        .with_max_len(24)
        .for_each(|input: &[u8]| {
            let text = spelled(input, WORDS);
            let part = percent_encoded(&text);
            let url = format!("x:{part}?option={part}");
            let Ok(address) = Address::parse(&url) else {
                panic!("{url} was refused");
            };
            assert!(address.path().is_ok_and(|path| path == text.as_bytes()));
            let option = OptionSpec {
                name: "option",
                ..crate::descriptors::file::MODE
            };
            assert_eq!(address.given(&option), Some(&*text));
            #[cfg(feature = "_servers")]
            {
                let url = format!("x://u{part}:{part}@host:1,[::1]/{part}");
                let address = Address::parse(&url);
                let authority = address.and_then(|address| address.authority());
                let Ok(authority) = authority else {
                    panic!("{url} was refused");
                };
                let user = authority.user.unwrap();
                assert_eq!(user.name, format!("u{text}"));
                assert_eq!(user.password.as_deref(), Some(&*text));
                assert_eq!(authority.path.as_deref(), Some(text.as_bytes()));
                let hosts = authority.hosts.iter().map(|host| host.with_default_port(2));
                assert_eq!(hosts.collect::<Vec<_>>(), ["host:1", "[::1]:2"]);
            }
        });
}

/// Names that headers bear: some are ours too, two mean something to RabbitMQ.
const NAMES: [&str; 16] = [
    "a",
    "b",
    "A",
    "",
    "id",
    "type",
    "content-type",
    "occurred-at",
    "correlation-id",
    "causation-id",
    "tenant-id",
    "traceparent",
    "tracestate",
    "key",
    "tombstone",
    "ü\n\"",
];

/// An event of any content.
#[derive(Debug, Clone, TypeGenerator)]
pub(crate) struct AnyEvent {
    id: u128,
    seq: i64,
    occurred_at: i64,
    /// Rather than one of the years 1 to 9999.
    any_time: bool,
    topic: String,
    texts: [Option<String>; 8],
    headers: Vec<(u8, Option<String>)>,
    payload: Option<Vec<u8>>,
    /// Which text or header is made long, and how long.
    long: (u8, u16),
}

impl AnyEvent {
    pub(crate) fn record(&self) -> Record {
        let long = |at: usize, text: &str| match usize::from(self.long.0) == at {
            true => text.repeat(usize::from(self.long.1) / text.len().max(1)),
            false => text.to_owned(),
        };
        let topic = [Some(&self.topic)].into_iter();
        let texts = topic.chain(self.texts.iter().map(Option::as_ref));
        let texts: Vec<_> = (0..)
            .zip(texts)
            .map(|(at, text)| text.map(|text| long(at, text)))
            .collect();
        let headers: Vec<_> = (texts.len()..)
            .zip(&self.headers)
            .map(|(at, (name, value))| {
                let name = match name {
                    254 => "CC",
                    255 => "BCC",
                    name => NAMES[usize::from(*name) % NAMES.len()],
                };
                match at % 2 == 0 {
                    true => (long(at, name), value.clone()),
                    false => (
                        name.to_owned(),
                        value.as_deref().map(|value| long(at, value)),
                    ),
                }
            })
            .collect();
        const YEAR_1_TO_9999: i64 = 315_537_897_600_000_000;
        let occurred_at = match self.any_time {
            true => self.occurred_at,
            false => self.occurred_at.rem_euclid(YEAR_1_TO_9999) - 62_135_596_800_000_000,
        };
        let fields = StoredFields {
            seq: self.seq,
            id: Uuid::from_u128(self.id),
            occurred_at,
            inserted_at: 0,
            slot: 0,
            texts: std::array::from_fn(|at| texts[at].as_deref()),
            payload: self.payload.as_deref(),
        };
        let mut page = PageBuilder::default();
        let headers = headers
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()));
        page.push(&fields, headers).unwrap();
        Record::new(0, page.finish().remove(0))
    }
}

/// A line is one JSON object with all that the event has, and another program reads it so.
#[test]
fn fuzz_lines() {
    check!()
        .with_iterations(iterations(300))
        .with_type::<AnyEvent>()
        .for_each(|event| {
            let record = event.record();
            let event = record.event();
            let mut out = b"before".to_vec();
            let Err(error) = jsonl::write_line(&mut out, &record) else {
                let line = out.strip_prefix(b"before").unwrap();
                assert!(line.starts_with(jsonl::LINE_START));
                let end = line.iter().position(|&byte| byte == b'\n');
                assert_eq!(end, Some(line.len() - 1));
                assert_eq!(
                    serde_json::from_slice::<Value>(line).unwrap(),
                    as_json(&record, line)
                );
                return;
            };
            assert_eq!(out, b"before");
            let years_0_to_9999 = -62_167_219_200_000_000..=253_402_300_799_999_999_i64;
            assert!(!years_0_to_9999.contains(&event.occurred_at()), "{error}");
        });
}

fn as_json(record: &Record, line: &[u8]) -> Value {
    let event = record.event();
    let headers: Vec<Value> = event.headers().map(|pair| json!(pair)).collect();
    let written: Value = serde_json::from_slice(line).unwrap();
    let mut expected = json!({
        "seq": event.seq(),
        "id": event.id(),
        "topic": event.topic(),
        "key": event.key(),
        "type": event.text(Field::Type),
        "content_type": event.text(Field::ContentType),
        "headers": headers,
        // Judged by the time itself, below.
        "occurred_at": written["occurred_at"],
        "correlation_id": event.text(Field::CorrelationId),
        "causation_id": event.text(Field::CausationId),
        "tenant_id": event.text(Field::TenantId),
    });
    let time = written["occurred_at"].as_str().unwrap();
    let time: DateTime = time.strip_suffix('Z').unwrap().parse().unwrap();
    let since_1970 = time.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    assert_eq!(since_1970.as_micros(), event.occurred_at().into());
    match event
        .payload()
        .map(|bytes| (bytes, std::str::from_utf8(bytes)))
    {
        None => expected["payload"] = Value::Null,
        Some((_, Ok(text))) => expected["payload"] = json!(text),
        Some((bytes, Err(_))) => {
            use base64::{Engine, engine::general_purpose::STANDARD};
            expected["payload_base64"] = json!(STANDARD.encode(bytes));
        }
    }
    for (name, field) in [
        ("traceparent", Field::Traceparent),
        ("tracestate", Field::Tracestate),
    ] {
        if let Some(text) = event.text(field) {
            expected[name] = json!(text);
        }
    }
    expected
}
