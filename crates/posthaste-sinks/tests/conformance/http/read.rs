//! Reading requests again, as a consumer does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_testkit::{
    servers::http::WebhookRequest,
    sink_suite::{SuiteEvent, WireRecord},
};
use ring::hmac;

use super::place::SECRET;
use crate::cloud_event::Parts;

/// Names in requests of the format `raw`, and in CloudEvents.
const RAW: [(&str, &str); 12] = [
    ("id", "id"),
    ("type", "type"),
    ("occurred-at", "time"),
    ("topic", "topic"),
    ("key", "partitionkey"),
    ("key-base64", "partitionkeybase64"),
    ("correlation-id", "correlationid"),
    ("causation-id", "causationid"),
    ("tenant-id", "tenantid"),
    ("traceparent", "traceparent"),
    ("tracestate", "tracestate"),
    ("tombstone", "tombstone"),
];

/// The headers that every request has.
const OF_REQUESTS: [&str; 7] = [
    "host",
    "user-agent",
    "content-type",
    "content-length",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

fn parts(request: WebhookRequest) -> Parts {
    assert_eq!(request.method, "POST");
    verify(&request);
    let content_type = request.header("content-type").map(str::to_owned);
    let is_structured = "application/cloudevents+json; charset=utf-8";
    if content_type.as_deref() == Some(is_structured) {
        return Parts::of_structured(&request.body);
    }
    let mut attributes = Vec::new();
    for (name, value) in &request.headers {
        let name = name.to_ascii_lowercase();
        let raw = RAW.iter().chain(&[("headers", "headers")]);
        let raw = raw
            .clone()
            .find(|(raw, _)| *raw == name)
            .map(|(_, name)| *name);
        match name.strip_prefix("ce-").or(raw) {
            Some(attribute) => attributes.push((attribute.to_owned(), decoded(value))),
            None => assert!(OF_REQUESTS.contains(&&*name), "unknown: {name}"),
        }
    }
    let mut parts = Parts {
        attributes,
        content_type,
        payload: Some(request.body),
    };
    if parts.take("tombstone").is_some() {
        assert_eq!(parts.payload.take(), Some(Vec::new()));
    }
    parts
}

/// The holder of the secret has signed this id, this time and this body.
fn verify(request: &WebhookRequest) {
    let [id, timestamp] =
        ["webhook-id", "webhook-timestamp"].map(|name| request.header(name).unwrap());
    let now = jiff::Timestamp::now().as_second();
    assert!((now - timestamp.parse::<i64>().unwrap()).abs() < 300);
    let Some(signature) = request.header("webhook-signature") else {
        return;
    };
    let secret = STANDARD
        .decode(SECRET.strip_prefix("whsec_").unwrap())
        .unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let signed = [format!("{id}.{timestamp}.").as_bytes(), &request.body].concat();
    let tag = STANDARD
        .decode(signature.strip_prefix("v1,").unwrap())
        .unwrap();
    hmac::verify(&key, &signed, &tag).unwrap();
}

fn decoded(value: &str) -> String {
    let mut out = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(&rest[..2]).unwrap();
        out.push(u8::from_str_radix(digits, 16).unwrap());
        rest = &rest[2..];
    }
    String::from_utf8(out).unwrap()
}

/// The event of a request. Anything unexpected in it fails.
pub(super) fn event(request: WebhookRequest) -> SuiteEvent {
    let message_id = request.header("webhook-id").unwrap().to_owned();
    let event = parts(request).into_event();
    assert_eq!(message_id, event.id.to_string());
    event
}

/// The record of a request: its attributes are headers.
pub(super) fn record(request: WebhookRequest) -> WireRecord {
    parts(request).into_record()
}
