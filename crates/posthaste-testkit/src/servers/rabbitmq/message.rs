//! A message as its queue held it.

use amqprs::{BasicProperties, Deliver, FieldTable, FieldValue};
use std::collections::BTreeMap;

/// A message taken from a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct RabbitMqMessage {
    /// The exchange it was published to; empty for the default one.
    pub exchange: String,
    /// The routing key it was published with.
    pub routing_key: String,
    /// Property `message-id`.
    pub message_id: Option<String>,
    /// Property `type`.
    pub kind: Option<String>,
    /// Property `correlation-id`.
    pub correlation_id: Option<String>,
    /// Property `content-type`.
    pub content_type: Option<String>,
    /// Property `app-id`.
    pub app_id: Option<String>,
    /// Property `timestamp`: seconds since 1970.
    pub timestamp: Option<u64>,
    /// Property `delivery-mode`: 2 is persistent.
    pub delivery_mode: Option<u8>,
    /// The headers by name: the protocol's table has neither order nor repeated names.
    pub headers: BTreeMap<String, HeaderValue>,
    /// The body.
    pub body: Vec<u8>,
}

/// A header's value.
#[derive(Debug, Clone, PartialEq)]
pub enum HeaderValue {
    /// A header without value.
    Void,
    /// A truth value.
    Bool(bool),
    /// A whole number of any width.
    Integer(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<HeaderValue>),
    /// Anything else, as the client library shows it.
    Other(String),
}

impl RabbitMqMessage {
    pub(super) fn new(deliver: &Deliver, properties: &BasicProperties, body: Vec<u8>) -> Self {
        Self {
            exchange: deliver.exchange().clone(),
            routing_key: deliver.routing_key().clone(),
            message_id: properties.message_id().cloned(),
            kind: properties.message_type().cloned(),
            correlation_id: properties.correlation_id().cloned(),
            content_type: properties.content_type().cloned(),
            app_id: properties.app_id().cloned(),
            timestamp: properties.timestamp(),
            delivery_mode: properties.delivery_mode(),
            headers: properties.headers().map(values).unwrap_or_default(),
            body,
        }
    }
}

fn values(table: &FieldTable) -> BTreeMap<String, HeaderValue> {
    let table = table.as_ref().iter();
    table
        .map(|(name, field)| (name.as_ref().clone(), value(field)))
        .collect()
}

fn value(field: &FieldValue) -> HeaderValue {
    match field {
        FieldValue::V => HeaderValue::Void,
        FieldValue::t(value) => HeaderValue::Bool(*value),
        FieldValue::b(value) => HeaderValue::Integer(i64::from(*value)),
        FieldValue::B(value) => HeaderValue::Integer(i64::from(*value)),
        FieldValue::s(value) => HeaderValue::Integer(i64::from(*value)),
        FieldValue::u(value) => HeaderValue::Integer(i64::from(*value)),
        FieldValue::I(value) => HeaderValue::Integer(i64::from(*value)),
        FieldValue::i(value) => HeaderValue::Integer(i64::from(*value)),
        FieldValue::l(value) => HeaderValue::Integer(*value),
        FieldValue::S(value) => HeaderValue::Text(value.as_ref().clone()),
        FieldValue::x(value) => HeaderValue::Bytes(value.clone().into()),
        FieldValue::A(list) => {
            let list: Vec<FieldValue> = list.clone().into();
            HeaderValue::List(list.iter().map(value).collect())
        }
        other => HeaderValue::Other(other.to_string()),
    }
}
