//! Reading requests again, as a consumer does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_testkit::{
    servers::http::WebhookRequest,
    sink_suite::{SuiteEvent, WireRecord},
};
use ring::hmac;
use serde_json::Value;

use super::place::SECRET;
use crate::lines;

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

/// An event's attributes by their names in CloudEvents, which are taken out, and its payload.
struct Parts {
    attributes: Vec<(String, String)>,
    content_type: Option<String>,
    payload: Option<Vec<u8>>,
}

impl Parts {
    fn of(request: WebhookRequest) -> Self {
        assert_eq!(request.method, "POST");
        verify(&request);
        let content_type = request.header("content-type").map(str::to_owned);
        let is_structured = "application/cloudevents+json; charset=utf-8";
        if content_type.as_deref() == Some(is_structured) {
            return Self::of_structured(&request.body);
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
        let mut parts = Self {
            attributes,
            content_type,
            payload: Some(request.body),
        };
        if parts.take("tombstone").is_some() {
            assert_eq!(parts.payload.take(), Some(Vec::new()));
        }
        parts
    }

    fn of_structured(body: &[u8]) -> Self {
        const DATA: &[u8] = br#","data":"#;
        // As it stands there: a parser makes something else of a number, or refuses it. It is the
        // last member.
        let at = body.windows(DATA.len()).position(|part| part == DATA);
        let (head, data) = match at {
            Some(at) => (
                [&body[..at], b"}"].concat(),
                Some(&body[at + DATA.len()..body.len() - 1]),
            ),
            None => (body.to_vec(), None),
        };
        let Value::Object(members) = serde_json::from_slice(&head).unwrap() else {
            panic!("no object");
        };
        let mut parts = Self {
            attributes: Vec::new(),
            content_type: None,
            payload: None,
        };
        for (name, value) in members {
            match (&*name, value) {
                ("data_base64", Value::String(text)) => {
                    parts.payload = Some(STANDARD.decode(text).unwrap());
                }
                ("datacontenttype", Value::String(text)) => parts.content_type = Some(text),
                ("tombstone", Value::Bool(true)) => {}
                (_, Value::String(text)) => parts.attributes.push((name, text)),
                (_, other) => panic!("{name} is {other}"),
            }
        }
        if let Some(data) = data {
            assert_eq!(parts.payload, None);
            parts.payload = Some(match is_json(parts.content_type.as_deref()) {
                true => data.to_vec(),
                false => serde_json::from_slice::<String>(data).unwrap().into(),
            });
        }
        parts
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self
            .attributes
            .iter()
            .position(|(found, _)| found == name)?;
        Some(self.attributes.remove(at).1)
    }

    fn headers(&mut self) -> Vec<(String, Option<String>)> {
        let headers = self.take("headers");
        headers.map_or_else(Vec::new, |text| serde_json::from_str(&text).unwrap())
    }

    fn of_cloud_events(&mut self) {
        if let Some(version) = self.take("specversion") {
            assert_eq!(version, "1.0");
            assert_eq!(self.take("source").as_deref(), Some("posthaste"));
        }
    }
}

fn is_json(content_type: Option<&str>) -> bool {
    content_type.is_none_or(|text| text.starts_with("application/json"))
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
    let mut parts = Parts::of(request);
    parts.of_cloud_events();
    let id = parts.take("id").unwrap();
    assert_eq!(message_id, id);
    let event = SuiteEvent {
        id: id.parse().unwrap(),
        topic: parts.take("topic").unwrap(),
        key: parts.take("partitionkey"),
        kind: parts.take("type").filter(|kind| kind != "posthaste.event"),
        content_type: parts.content_type.take(),
        headers: parts.headers(),
        payload: parts.payload.take(),
        occurred_at: lines::micros(&parts.take("time").unwrap()),
        correlation_id: parts.take("correlationid"),
        causation_id: parts.take("causationid"),
        tenant_id: parts.take("tenantid"),
        traceparent: parts.take("traceparent"),
        tracestate: parts.take("tracestate"),
    };
    assert!(
        parts.attributes.is_empty(),
        "unknown: {:?}",
        parts.attributes
    );
    event
}

/// The record of a request: its attributes are headers.
pub(super) fn record(request: WebhookRequest) -> WireRecord {
    let mut parts = Parts::of(request);
    parts.of_cloud_events();
    let own = parts.headers();
    let encoded = parts.take("partitionkeybase64");
    let key = parts.take("partitionkey").map(String::into_bytes);
    assert!(key.is_none() || encoded.is_none());
    let record = WireRecord {
        key: key.or(encoded.map(|text| STANDARD.decode(text).unwrap())),
        value: parts.payload.take(),
        headers: Vec::new(),
        timestamp: parts.take("time").map(|time| lines::micros(&time)),
        partition: None,
        wire_id: parts.take("id"),
    };
    parts.take("topic").unwrap();
    if let Some(kind) = parts.take("type").filter(|kind| kind != "posthaste.event") {
        parts.attributes.push(("type".to_owned(), kind));
    }
    let content_type = parts.content_type.take();
    parts
        .attributes
        .extend(content_type.map(|text| ("content-type".to_owned(), text)));
    let attributes = parts.attributes.into_iter();
    let attributes = attributes.map(|(name, value)| (name, Some(value)));
    WireRecord {
        headers: attributes.chain(own).collect(),
        ..record
    }
}
