//! Reading messages again, as a consumer does.

use posthaste_testkit::{servers::nats::NatsMessage, sink_suite::SuiteEvent};

/// The event of a message.
pub(super) fn event(message: NatsMessage) -> SuiteEvent {
    let mut headers = Headers(message.headers);
    let message_id = headers.ours("Nats-Msg-Id").unwrap();
    headers.ours("Nats-Expected-Stream").unwrap();
    let id = headers.ours("id").unwrap();
    assert_eq!(message_id, id);
    let occurred_at = headers.ours("occurred-at").unwrap();
    let tombstone = headers.ours("tombstone");
    assert!(tombstone.is_none() || message.payload.is_empty());
    SuiteEvent {
        id: id.parse().unwrap(),
        topic: message.subject,
        key: headers.ours("key"),
        kind: headers.ours("type"),
        content_type: headers.ours("content-type"),
        payload: tombstone.is_none().then_some(message.payload),
        occurred_at: occurred_at
            .parse::<jiff::Timestamp>()
            .unwrap()
            .as_microsecond(),
        correlation_id: headers.ours("correlation-id"),
        causation_id: headers.ours("causation-id"),
        tenant_id: headers.ours("tenant-id"),
        traceparent: headers.ours("traceparent"),
        tracestate: headers.ours("tracestate"),
        headers: headers
            .0
            .iter()
            .map(|(name, value)| (decoded(name).unwrap_or_default(), decoded(value)))
            .collect(),
    }
}

struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of a name is ours.
    fn ours(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        decoded(&self.0.remove(at).1)
    }
}

/// A text with percent escapes; a percent sign alone is none.
fn decoded(text: &str) -> Option<String> {
    if text == "%" {
        return None;
    }
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).unwrap());
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(String::from_utf8(bytes).unwrap())
}
