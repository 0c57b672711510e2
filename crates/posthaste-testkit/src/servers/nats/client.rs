//! A client of the tests' own: it makes streams, reads them, and answers as another client would.
//! It shares nothing with the sink.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Bounds a hang, nothing more.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection. Calls block.
#[derive(Debug)]
pub struct NatsClient {
    stream: BufReader<TcpStream>,
    inbox: String,
}

/// A message as a consumer reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsMessage {
    /// Its subject.
    pub subject: String,
    /// The subject of an answer.
    pub reply: Option<String>,
    /// Its headers in their order, as they stand in the message.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl NatsClient {
    /// Connects to a port of 127.0.0.1. The login counts where the server asks for one.
    pub(super) fn connect(port: u16, login: (&str, &str)) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect to NATS");
        stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
        let mut client = Self {
            stream: BufReader::new(stream),
            inbox: format!("_INBOX.{}", crate::unique_name("testkit")),
        };
        let greeting = client.line();
        assert!(greeting.starts_with("INFO "), "{greeting}");
        let options = json!({
            "verbose": false,
            "headers": true,
            "no_responders": true,
            "user": login.0,
            "pass": login.1,
        });
        client.say(&format!("CONNECT {options}\r\nSUB {} 1\r\n", client.inbox));
        client.wait_until_heard();
        client
    }

    /// Makes a stream of these subjects, with further settings such as `{"max_msgs": 5}`.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn create_stream(&mut self, name: &str, subjects: &[&str], settings: &Value) {
        let mut config = json!({
            "name": name,
            "subjects": subjects,
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "num_replicas": 1,
            // The suite's events are years old, and count by the server's clock.
            "max_age": 0,
        });
        for (name, value) in settings.as_object().expect("settings are an object") {
            config[name] = value.clone();
        }
        self.api(&format!("STREAM.CREATE.{name}"), &config);
    }

    /// Removes a stream with its messages.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn delete_stream(&mut self, name: &str) {
        self.api(&format!("STREAM.DELETE.{name}"), &json!({}));
    }

    /// How many messages a stream holds, and the number of the last.
    ///
    /// # Panics
    ///
    /// When there is no such stream.
    pub fn stream_state(&mut self, name: &str) -> (u64, u64) {
        let info = self.api(&format!("STREAM.INFO.{name}"), &json!({}));
        let number = |of: &str| info["state"][of].as_u64().expect("a number");
        (number("messages"), number("last_seq"))
    }

    /// All messages of a stream, in its order.
    ///
    /// # Panics
    ///
    /// When there is no such stream.
    pub fn messages(&mut self, name: &str) -> Vec<NatsMessage> {
        let (count, _) = self.stream_state(name);
        if count == 0 {
            return Vec::new();
        }
        let place = format!("_INBOX.{}", crate::unique_name("read"));
        self.say(&format!("SUB {place} 2\r\n"));
        let config = json!({
            "stream_name": name,
            "config": {
                "deliver_subject": place,
                "deliver_policy": "all",
                "ack_policy": "none",
                "replay_policy": "instant",
            },
        });
        let request = format!("$JS.API.CONSUMER.CREATE.{name}");
        let (answer, mut messages) = self.request(&request, config.to_string().as_bytes());
        let answer: Value = serde_json::from_slice(&answer.payload).expect("an answer in JSON");
        assert!(answer["error"].is_null(), "{answer}");
        while (messages.len() as u64) < count {
            messages.push(self.next_message());
        }
        self.say("UNSUB 2\r\n");
        self.wait_until_heard();
        messages
    }

    /// Listens to a subject as another client than a stream would.
    pub fn listen(&mut self, subject: &str) {
        self.say(&format!("SUB {subject} 3\r\n"));
        self.wait_until_heard();
    }

    /// Publishes a message without headers.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) {
        self.say(&format!("PUB {subject} {}\r\n", payload.len()));
        self.write(payload);
        self.say("\r\n");
        self.wait_until_heard();
    }

    /// The next message of those that this connection listens for.
    ///
    /// # Panics
    ///
    /// When none comes, or the server refuses something.
    pub fn next_message(&mut self) -> NatsMessage {
        loop {
            if let Some(message) = self.next() {
                return message;
            }
        }
    }

    fn api(&mut self, request: &str, content: &Value) -> Value {
        let subject = format!("$JS.API.{request}");
        let (answer, others) = self.request(&subject, content.to_string().as_bytes());
        assert!(others.is_empty(), "{others:?}");
        let answer: Value = serde_json::from_slice(&answer.payload).expect("an answer in JSON");
        assert!(answer["error"].is_null(), "{request}: {answer}");
        answer
    }

    /// Asks, and answers the answer with the messages that came before it.
    fn request(&mut self, subject: &str, payload: &[u8]) -> (NatsMessage, Vec<NatsMessage>) {
        self.say(&format!(
            "PUB {subject} {} {}\r\n",
            self.inbox,
            payload.len()
        ));
        self.write(payload);
        self.say("\r\n");
        let mut others = Vec::new();
        loop {
            let message = self.next_message();
            if message.subject == self.inbox {
                return (message, others);
            }
            others.push(message);
        }
    }

    /// Returns when the server has taken in all that was said.
    fn wait_until_heard(&mut self) {
        self.say("PING\r\n");
        loop {
            let line = self.line();
            match line.as_str() {
                "PONG" => return,
                "PING" => self.say("PONG\r\n"),
                line => assert!(
                    line.starts_with("INFO ") || line == "+OK",
                    "NATS said: {line}"
                ),
            }
        }
    }

    /// Reads the next thing that the server says; none: it is no message.
    fn next(&mut self) -> Option<NatsMessage> {
        let line = self.line();
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse::<usize>().expect("a length");
        let (has_headers, rest) = match &words[..] {
            ["MSG", rest @ ..] => (false, rest),
            ["HMSG", rest @ ..] => (true, rest),
            ["PING"] => {
                self.say("PONG\r\n");
                return None;
            }
            ["PONG" | "+OK"] | ["INFO", ..] => return None,
            _ => panic!("NATS said: {line}"),
        };
        let (total, rest) = rest.split_last().expect("a length");
        let (header, rest) = match has_headers {
            true => rest
                .split_last()
                .map(|(header, rest)| (number(header), rest)),
            false => Some((0, rest)),
        }
        .expect("a length");
        let mut bytes = vec![0; number(total) + 2];
        self.stream.read_exact(&mut bytes).expect("read a message");
        bytes.truncate(number(total));
        let payload = bytes.split_off(header);
        let headers = String::from_utf8(bytes).expect("headers are UTF-8");
        let headers = headers.split("\r\n").skip(1);
        let headers = headers.filter_map(|line| line.split_once(": "));
        Some(NatsMessage {
            subject: rest[0].to_owned(),
            reply: rest.get(2).map(|&reply| reply.to_owned()),
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            payload,
        })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("read from NATS");
        assert!(line.ends_with('\n'), "NATS closed the connection: {line}");
        line.trim_end().to_owned()
    }

    fn say(&mut self, text: &str) {
        self.write(text.as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream
            .get_mut()
            .write_all(bytes)
            .expect("write to NATS");
    }
}
