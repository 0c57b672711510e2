//! A client of the tests' own, which shares nothing with the sinks. It signs nothing: the servers
//! of tests do not look at signatures.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Map, Value, json};

/// Bounds a hang, nothing more.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes each request on a connection of its own. Calls block.
#[derive(Debug, Clone, Copy)]
pub struct AwsClient {
    port: u16,
}

/// A message as a consumer receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its text.
    pub body: String,
    /// Its attributes, all of which are text.
    pub attributes: Vec<(String, String)>,
}

impl AwsClient {
    pub(in crate::servers) fn new(port: u16) -> Self {
        Self { port }
    }

    /// Asks SQS, and answers its answer or its refusal.
    ///
    /// # Errors
    ///
    /// The text of the refusal.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn ask(&self, action: &str, question: &Value) -> Result<Value, String> {
        self.ask_json("sqs", "AmazonSQS", action, question)
    }

    /// Asks Kinesis, and answers its answer or its refusal.
    ///
    /// # Errors
    ///
    /// The text of the refusal.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn ask_kinesis(&self, action: &str, question: &Value) -> Result<Value, String> {
        self.ask_json("kinesis", "Kinesis_20131202", action, question)
    }

    fn ask_json(
        &self,
        service: &str,
        target: &str,
        action: &str,
        question: &Value,
    ) -> Result<Value, String> {
        let head = format!(
            "POST / HTTP/1.1\r\nX-Amz-Target: {target}.{action}\r\n\
             Content-Type: application/x-amz-json-1.0\r\n"
        );
        let (status, text) = self.send(&head, service, &question.to_string());
        match status {
            200 if text.is_empty() => Ok(json!({})),
            200 => Ok(serde_json::from_str(&text).expect("JSON of the server")),
            _ => Err(text),
        }
    }

    /// Asks SNS, and answers the text of its answer.
    ///
    /// # Panics
    ///
    /// When the server refuses, or is gone.
    #[must_use]
    pub fn ask_sns(&self, parameters: &[(&str, &str)]) -> String {
        let head = "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n";
        let escaped = |text: &str| {
            let bytes = text.bytes().map(|byte| match byte {
                _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            });
            bytes.collect::<String>()
        };
        let pairs = parameters.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| format!("{name}={}", escaped(value)))
            .collect();
        let body = pairs.join("&") + "&Version=2010-03-31";
        let (status, text) = self.send(head, "sns", &body);
        assert_eq!(status, 200, "{parameters:?}: {text}");
        text
    }

    /// Makes a queue with these attributes, and answers its URL.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn create_queue(&self, name: &str, attributes: &[(&str, &str)]) -> String {
        let mut all: Map<String, Value> = attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        if name.ends_with(".fifo") {
            all.insert("FifoQueue".to_owned(), "true".into());
        }
        let question = json!({ "QueueName": name, "Attributes": all });
        let made = self.ask("CreateQueue", &question).expect("a queue");
        made["QueueUrl"].as_str().expect("its URL").to_owned()
    }

    /// Deletes a queue.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn delete_queue(&self, url: &str) {
        let deleted = self.ask("DeleteQueue", &json!({ "QueueUrl": url }));
        deleted.expect("delete a queue");
    }

    /// All attributes of a queue.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn attributes(&self, url: &str) -> Value {
        let question = json!({ "QueueUrl": url, "AttributeNames": ["All"] });
        let mut told = self
            .ask("GetQueueAttributes", &question)
            .expect("attributes");
        told["Attributes"].take()
    }

    /// Receives and deletes all that a queue has, in its order.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn drain(&self, url: &str) -> Vec<Message> {
        self.take(url).iter().map(Message::of).collect()
    }

    /// The same of a queue FIFO, in the order of sending. A server that was started again gives
    /// what was sent in one millisecond in any order, and numbers from 0 on.
    ///
    /// # Panics
    ///
    /// As [`Self::drain`].
    #[must_use]
    pub fn drain_as_sent(&self, url: &str) -> Vec<Message> {
        let mut all = self.take(url);
        all.sort_by_key(|message| {
            let number = |name| message["Attributes"][name].as_str()?.parse::<u128>().ok();
            let place = (number("SentTimestamp"), number("SequenceNumber"));
            assert!(place.0.is_some() && place.1.is_some(), "{message}");
            place
        });
        all.iter().map(Message::of).collect()
    }

    fn take(&self, url: &str) -> Vec<Value> {
        let question = json!({
            "QueueUrl": url,
            "MaxNumberOfMessages": 10,
            "AttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
            "VisibilityTimeout": 600,
        });
        let mut all = Vec::new();
        loop {
            let received = self.ask("ReceiveMessage", &question).expect("messages");
            let Some(messages) = received["Messages"].as_array().filter(|m| !m.is_empty()) else {
                return all;
            };
            let receipts = messages.iter().enumerate();
            let receipts: Vec<_> = receipts
                .map(|(at, message)| {
                    json!({ "Id": at.to_string(), "ReceiptHandle": message["ReceiptHandle"] })
                })
                .collect();
            let deleted = self.ask(
                "DeleteMessageBatch",
                &json!({ "QueueUrl": url, "Entries": receipts }),
            );
            deleted.expect("delete messages");
            all.extend_from_slice(messages);
        }
    }

    /// Asks a server of the kit's own for something that AWS does not tell.
    pub(in crate::servers) fn get(&self, path: &str) -> Value {
        let (status, text) = self.send(&format!("GET {path} HTTP/1.1\r\n"), "sqs", "");
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON of the server")
    }

    /// Asks S3 about a path, and answers status and body.
    pub(in crate::servers) fn ask_s3(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Vec<u8>) {
        self.exchange(&format!("{method} /{path} HTTP/1.1\r\n"), "s3", body)
    }

    fn send(&self, head: &str, service: &str, body: &str) -> (u16, String) {
        let (status, answer) = self.exchange(head, service, body);
        (
            status,
            String::from_utf8(answer).expect("an answer in UTF-8"),
        )
    }

    fn exchange(&self, head: &str, service: &str, body: &str) -> (u16, Vec<u8>) {
        // One of the servers reads from it which service and region are meant.
        let scope = format!("test/20260101/eu-central-1/{service}/aws4_request");
        let head = format!(
            "{head}Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, \
             Signature=0\r\n"
        );
        exchange(self.port, &head, body)
    }
}

/// The status and the body that a server answers to a request, whose head has no end.
pub(in crate::servers) fn exchange(port: u16, head: &str, body: &str) -> (u16, Vec<u8>) {
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect to the server");
    stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
    let request = format!(
        "{head}Host: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .expect("ask the server");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read the answer");
    let mut windows = answer.windows(4);
    let end = windows.position(|bytes| bytes == b"\r\n\r\n");
    let body = answer.split_off(end.expect("a whole answer") + 4);
    let head = String::from_utf8_lossy(&answer);
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    assert!(!head.to_ascii_lowercase().contains("chunked"), "{head}");
    (status.expect("a status"), body)
}

impl Message {
    /// The message of this JSON, as SQS has it.
    pub(in crate::servers) fn of(message: &Value) -> Self {
        let attributes = message["MessageAttributes"].as_object();
        let attributes = attributes.into_iter().flatten();
        Self {
            body: message["Body"].as_str().expect("a body").to_owned(),
            attributes: attributes
                .map(|(name, value)| {
                    assert_eq!(value["DataType"], "String");
                    let value = value["StringValue"].as_str().expect("a text");
                    (name.clone(), value.to_owned())
                })
                .collect(),
        }
    }
}
