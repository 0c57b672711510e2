//! The right to write to a topic, on a secure broker: three requests of Kafka's protocol, because
//! the client library has none for rights and a Java tool takes a second for each.

use super::KafkaServer;
use super::waiting::until;

/// Version 1 of each, the last without the compact encodings.
const VERSION: i16 = 1;
const DESCRIBE_ACLS: i16 = 29;
const CREATE_ACLS: i16 = 30;
const DELETE_ACLS: i16 = 31;

// Codes of the protocol.
const ANY: i8 = 1;
const TOPIC: i8 = 2;
const TRANSACTIONAL_ID: i8 = 5;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const READ: i8 = 3;
const WRITE: i8 = 4;
const DESCRIBE_CONFIGS: i8 = 10;
const DENY: i8 = 2;
const ALLOW: i8 = 3;

/// Its kind, how it is named, and the name.
type Resource<'a> = (i8, i8, &'a str);

impl KafkaServer {
    /// Lets a user of [`SASL_USERS`](super::SASL_USERS) write to (and describe) a topic, which need
    /// not exist; returns when the broker goes by it.
    ///
    /// # Panics
    ///
    /// When the broker refuses: it is not a secure one.
    pub fn allow_write(&self, user: &str, topic: &str) {
        self.set(user, (TOPIC, LITERAL, topic), WRITE, ALLOW);
    }

    /// Lets a user read a topic and its settings.
    ///
    /// # Panics
    ///
    /// As [`Self::allow_write`].
    pub fn allow_read(&self, user: &str, topic: &str) {
        self.set(user, (TOPIC, LITERAL, topic), READ, ALLOW);
        self.set(user, (TOPIC, LITERAL, topic), DESCRIBE_CONFIGS, ALLOW);
    }

    /// Lets a user have transactional ids that begin so.
    ///
    /// # Panics
    ///
    /// As [`Self::allow_write`].
    pub fn allow_transactions(&self, user: &str, prefix: &str) {
        self.set(user, (TRANSACTIONAL_ID, PREFIXED, prefix), WRITE, ALLOW);
    }

    /// Forbids a user to write to a topic, whatever allows it.
    ///
    /// # Panics
    ///
    /// As [`Self::allow_write`].
    pub fn deny_write(&self, user: &str, topic: &str) {
        self.set(user, (TOPIC, LITERAL, topic), WRITE, DENY);
    }

    /// Takes back all that was allowed and denied to a user on a topic.
    ///
    /// # Panics
    ///
    /// As [`Self::allow_write`].
    pub fn forget_rights(&self, user: &str, topic: &str) {
        let mut body = Body::default();
        body.number(1_i32.to_be_bytes());
        let topic = (TOPIC, LITERAL, topic);
        filter(&mut body, user, topic, ANY, ANY);
        let mut answer = self.ask(DELETE_ACLS, &body);
        answer.skip_throttle_and_count();
        answer.expect_success();
        until("the broker has forgotten the rights", || {
            !self.is_known(user, topic, ANY, ANY)
        });
    }

    fn set(&self, user: &str, of: Resource<'_>, operation: i8, permission: i8) {
        let mut body = Body::default();
        body.number(1_i32.to_be_bytes());
        let (kind, pattern, name) = of;
        body.code(kind);
        body.text(name);
        body.code(pattern);
        body.text(&format!("User:{user}"));
        body.text("*");
        body.code(operation);
        body.code(permission);
        let mut answer = self.ask(CREATE_ACLS, &body);
        answer.skip_throttle_and_count();
        answer.expect_success();
        // The controller has it; the broker learns of it a moment later.
        until("the broker knows the right", || {
            self.is_known(user, of, operation, permission)
        });
    }

    fn is_known(&self, user: &str, of: Resource<'_>, operation: i8, permission: i8) -> bool {
        let mut body = Body::default();
        filter(&mut body, user, of, operation, permission);
        let mut answer = self.ask(DESCRIBE_ACLS, &body);
        answer.skip(4);
        answer.expect_success();
        i32::from_be_bytes(answer.take()) > 0
    }

    fn ask(&self, request: i16, body: &Body) -> Answer {
        let bytes = self.exchange(request, VERSION, &body.0);
        let mut answer = Answer { bytes, read: 0 };
        answer.skip(4); // Correlation.
        answer
    }
}

/// The filter of a describing and of a deleting request.
fn filter(body: &mut Body, user: &str, of: Resource<'_>, operation: i8, permission: i8) {
    let (kind, pattern, name) = of;
    body.code(kind);
    body.text(name);
    body.code(pattern);
    body.text(&format!("User:{user}"));
    body.text("*");
    body.code(operation);
    body.code(permission);
}

#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn code(&mut self, code: i8) {
        self.0.extend_from_slice(&code.to_be_bytes());
    }

    fn number<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend_from_slice(&bytes);
    }

    fn text(&mut self, text: &str) {
        let length = i16::try_from(text.len()).expect("a short text");
        self.number(length.to_be_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }
}

struct Answer {
    bytes: Vec<u8>,
    read: usize,
}

impl Answer {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let end = self.read + N;
        let part = self.bytes.get(self.read..end);
        self.read = end;
        part.and_then(|part| part.try_into().ok())
            .expect("an answer as long as the protocol says")
    }

    fn skip(&mut self, bytes: usize) {
        self.read += bytes;
    }

    fn skip_throttle_and_count(&mut self) {
        self.skip(8);
    }

    /// Reads an error's code and text.
    fn expect_success(&mut self) {
        let code = i16::from_be_bytes(self.take());
        let length = i16::from_be_bytes(self.take());
        // A negative length stands for "no text".
        let length = usize::try_from(length).unwrap_or_default();
        let text = self.bytes.get(self.read..self.read + length);
        let text = String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
        assert!(code == 0, "Kafka refused, error {code}: {text}");
        self.skip(length);
    }
}
