//! Bytes from outside: words of endpoints and proxies, topics in paths, and events of any content
//! on their way into requests.

use bolero::check;
use jiff::Timestamp;
use posthaste_engine::{Field, Outcome};
use posthaste_testkit::fuzz::{iterations, spelled};
use serde_json::Value;

use super::{
    answer::excerpt,
    connection::tunnel_status,
    message::Message,
    path::{PathPattern, may_stand},
    retry_after,
    tests::target,
};
use crate::fuzz::AnyEvent;

const DATE_WORDS: &[&str] = &[
    "Sun",
    "Sunday",
    ",",
    " ",
    "06",
    "6",
    "-",
    "Nov",
    "1994",
    "94",
    "08:49:37",
    "24:60:61",
    "GMT",
    "0",
    "99999999999999999999",
    "+1",
    "ü",
];

/// A wait is at least a second and at the most a year, whatever an endpoint asks for.
#[test]
fn fuzz_retry_after() {
    let now = Timestamp::from_second(784_111_777).unwrap();
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(16)
        .for_each(|input: &[u8]| {
            for text in [
                spelled(input, DATE_WORDS),
                String::from_utf8_lossy(input).into_owned(),
            ] {
                if let Some(wait) = retry_after::wait(&text, now) {
                    assert!((1..=31_536_000).contains(&wait.as_secs()), "{text}");
                }
            }
        });
}

/// Words from outside are one line of bounded length, and a proxy's status is one of HTTP.
#[test]
fn fuzz_words_of_others() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(400)
        .for_each(|input: &[u8]| {
            let said = excerpt(input);
            assert!(said.chars().count() <= 201);
            assert!(!said.contains(|c: char| c.is_control()));
            assert!(!said.contains("  ") && said.trim() == said);
            let head = [b"HTTP/1.1 ", input].concat();
            for head in [input, &head] {
                if let Some(status) = tunnel_status(head) {
                    assert!(status <= 999);
                }
            }
        });
}

const PATH_WORDS: &[&str] = &[
    "{topic}", "{", "}", "/", "..", ".", "%2e", "%", "a", "?", "#", "ü", "\r\n", " ",
];

/// A topic adds no part to a path, and takes none away.
#[test]
fn fuzz_paths() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(24)
        .for_each(|input: &[u8]| {
            let (pattern, topic) = input.split_at(input.len() / 2);
            let [pattern, topic] = [pattern, topic].map(|half| spelled(half, PATH_WORDS));
            let Ok(known) = PathPattern::new(&pattern) else {
                return;
            };
            let Ok(path) = known.path(&topic) else {
                assert!(known.has_topic());
                return;
            };
            assert!(
                path.starts_with('/') && path.bytes().all(may_stand),
                "{path}"
            );
            assert_eq!(path.matches('/').count(), 1 + pattern.matches('/').count());
            assert!(!path.split('/').any(|part| part == ".."), "{path}");
        });
}

/// A request has the event whatever it holds: its headers stay headers, its JSON is JSON.
#[test]
fn fuzz_requests() {
    let binary = target("https://h/{topic}?max_header_bytes=1000000");
    let structured = target("https://h/x?format=structured");
    check!()
        .with_iterations(iterations(500))
        .with_type::<AnyEvent>()
        .for_each(|event| {
            let record = event.record();
            for target in [&binary, &structured] {
                let message = match Message::of(&record, target) {
                    Ok(message) => message,
                    Err(outcome) => {
                        assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
                        continue;
                    }
                };
                let request = message.request(target, 1).unwrap();
                for value in request.headers().values() {
                    assert!(
                        value
                            .as_bytes()
                            .iter()
                            .all(|byte| (b' '..=b'~').contains(byte))
                    );
                }
            }
            if let Ok(message) = Message::of(&record, &structured) {
                let body: Value = serde_json::from_slice(message.body()).unwrap();
                assert_eq!(body["topic"], record.topic());
                let headers = record.own_headers().count();
                let told = body["headers"].as_str().unwrap_or("[]");
                let told: Vec<(String, Option<String>)> = serde_json::from_str(told).unwrap();
                assert_eq!(told.len(), headers);
                let has_data = body.get("data").or(body.get("data_base64"));
                assert_eq!(has_data.is_some(), record.value().is_some());
                let content_type = record.attribute(Field::ContentType);
                assert_eq!(body["datacontenttype"].as_str(), content_type);
            }
        });
}
