//! Reading CloudEvents again, as a consumer does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_testkit::sink_suite::{SuiteEvent, WireRecord};
use serde_json::Value;

use crate::lines;

/// An event's attributes by their names in CloudEvents, which are taken out, and its payload.
pub(crate) struct Parts {
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) content_type: Option<String>,
    pub(crate) payload: Option<Vec<u8>>,
}

impl Parts {
    /// Of an event that is one JSON object.
    pub(crate) fn of_structured(body: &[u8]) -> Self {
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

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
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

    /// The event. Anything unexpected in it fails.
    pub(crate) fn into_event(mut self) -> SuiteEvent {
        self.of_cloud_events();
        let event = SuiteEvent {
            id: self.take("id").unwrap().parse().unwrap(),
            topic: self.take("topic").unwrap(),
            key: self.take("partitionkey"),
            kind: self.take("type").filter(|kind| kind != "posthaste.event"),
            content_type: self.content_type.take(),
            headers: self.headers(),
            payload: self.payload.take(),
            occurred_at: lines::micros(&self.take("time").unwrap()),
            correlation_id: self.take("correlationid"),
            causation_id: self.take("causationid"),
            tenant_id: self.take("tenantid"),
            traceparent: self.take("traceparent"),
            tracestate: self.take("tracestate"),
        };
        assert!(self.attributes.is_empty(), "unknown: {:?}", self.attributes);
        event
    }

    /// The record: its attributes are headers.
    pub(crate) fn into_record(mut self) -> WireRecord {
        self.of_cloud_events();
        let own = self.headers();
        let encoded = self.take("partitionkeybase64");
        let key = self.take("partitionkey").map(String::into_bytes);
        assert!(key.is_none() || encoded.is_none());
        let record = WireRecord {
            key: key.or(encoded.map(|text| STANDARD.decode(text).unwrap())),
            value: self.payload.take(),
            headers: Vec::new(),
            timestamp: self.take("time").map(|time| lines::micros(&time)),
            partition: None,
            wire_id: self.take("id"),
        };
        self.take("topic").unwrap();
        if let Some(kind) = self.take("type").filter(|kind| kind != "posthaste.event") {
            self.attributes.push(("type".to_owned(), kind));
        }
        let content_type = self.content_type.take();
        self.attributes
            .extend(content_type.map(|text| ("content-type".to_owned(), text)));
        let attributes = self.attributes.into_iter();
        let attributes = attributes.map(|(name, value)| (name, Some(value)));
        WireRecord {
            headers: attributes.chain(own).collect(),
            ..record
        }
    }
}

fn is_json(content_type: Option<&str>) -> bool {
    content_type.is_none_or(|text| text.starts_with("application/json"))
}
