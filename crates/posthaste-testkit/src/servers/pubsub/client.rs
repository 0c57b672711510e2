//! A client of the tests' own, which shares nothing with the sink: JSON over HTTP, to another port
//! of the server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Bounds a hang, nothing more.
const LIMIT: Duration = Duration::from_secs(60);

/// A message as a consumer receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PubSubMessage {
    /// Its payload.
    pub data: Vec<u8>,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Its ordering key; empty: none.
    pub ordering_key: String,
}

impl PubSubMessage {
    pub(super) fn of(told: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let data = STANDARD.decode(text(&told["data"]));
        let attributes = told["attributes"].as_object().into_iter().flatten();
        Self {
            data: data.expect("bytes in base64"),
            attributes: attributes
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
            ordering_key: text(&told["ordering_key"]),
        }
    }
}

/// Asks the server, on a connection of its own, and answers its answer.
pub(super) fn ask(port: u16, question: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
    stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
    let body = body.to_string();
    // Of HTTP/1.0, so that the answer is in one piece and ends with the connection.
    let request = format!(
        "POST /{question} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .expect("ask the server");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("read the server's answer");
    let (head, text) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
    assert!(
        head.starts_with("HTTP/1.0 200"),
        "{question}: {head}\n{text}"
    );
    serde_json::from_str(text).expect("JSON of the server")
}
