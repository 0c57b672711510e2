//! The request of a record: a CloudEvent in one of its two modes, or headers with the names of our
//! other sinks.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    http,
};
use posthaste_engine::{Field, Outcome, Record, RejectionKind, wire_id_room};

use super::target::{Format, Target};
use crate::cloud_event::{
    attributes::{SPEC_VERSION, TYPE, attributes},
    structured,
};

/// A request that was not sent yet. It is signed when it is.
#[derive(Debug)]
pub(super) struct Message {
    /// Its path and query, or its URI where a proxy forwards it.
    uri: String,
    /// All but those of the signature.
    headers: HeaderMap,
    body: Bytes,
    /// `webhook-id`.
    id: String,
}

impl Message {
    /// The request of a record.
    ///
    /// # Errors
    /// The outcome of a record that has none.
    pub(super) fn of(record: &Record, target: &Target) -> Result<Self, Outcome> {
        let path = target
            .path
            .path(record.topic())
            .map_err(|fault| invalid(format!("its topic makes no path of an endpoint: {fault}")))?;
        let attributes = attributes(record)?;
        let mut headers = target.headers.clone();
        let payload = record.value().unwrap_or_default();
        let body = match target.format {
            Format::Structured => {
                headers.insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static(structured::CONTENT_TYPE),
                );
                structured::write(record, &attributes, &target.source).into()
            }
            Format::Binary => {
                insert(&mut headers, "ce-specversion", SPEC_VERSION)?;
                insert(&mut headers, "ce-source", &encoded(&target.source))?;
                for (name, value) in &attributes {
                    let name = format!("ce-{}", name.cloud_event);
                    insert(&mut headers, &name, &encoded(value))?;
                }
                insert_content_type(&mut headers, record)?;
                Bytes::copy_from_slice(payload)
            }
            Format::Raw => {
                let has_type = record.attribute(Field::Type).is_some();
                for (name, value) in &attributes {
                    // The other types are of CloudEvents alone.
                    if has_type || name.raw != TYPE.raw {
                        insert(&mut headers, name.raw, &encoded(value))?;
                    }
                }
                insert_content_type(&mut headers, record)?;
                Bytes::copy_from_slice(payload)
            }
        };
        // The id is signed with a dot behind it.
        let id = encoded(record.dedup_id(&mut wire_id_room())).replace('.', "%2E");
        insert(&mut headers, "webhook-id", &id)?;
        let message = Self {
            uri: target.uri(&path),
            headers,
            body,
            id,
        };
        message.check_size(target)?;
        Ok(message)
    }

    #[cfg(test)]
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    fn check_size(&self, target: &Target) -> Result<(), Outcome> {
        // `POST ` and ` HTTP/1.1`; `: ` and the line's end of each header.
        let line = self.uri.len() + 16;
        let lines = self.headers.iter();
        let lines = lines.map(|(name, value)| name.as_str().len() + value.len() + 4);
        let own = "content-length: \r\nwebhook-timestamp: \r\nwebhook-signature: \r\n".len() + 40;
        let size = line + lines.sum::<usize>() + own + target.signer.header_bytes();
        if size <= target.header_bytes_max {
            return Ok(());
        }
        Err(Outcome::rejected(
            RejectionKind::TooLarge,
            format!(
                "{size} bytes of headers, over max_header_bytes={} of this destination; with \
                 `format=structured` an event's headers stand in the body",
                target.header_bytes_max
            ),
        ))
    }

    /// The request of an attempt at this time, in seconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// When it has something that no request may have.
    pub(super) fn request(&self, target: &Target, now: u64) -> http::Result<Request<Full<Bytes>>> {
        let mut request = Request::post(&self.uri)
            .header("webhook-timestamp", now)
            // Of an empty body, too: some servers ask for it.
            .header(CONTENT_LENGTH, self.body.len());
        if let Some(signature) = target.signer.sign(&self.id, now, &self.body) {
            request = request.header("webhook-signature", signature);
        }
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        request.body(Full::new(self.body.clone()))
    }
}

fn insert_content_type(headers: &mut HeaderMap, record: &Record) -> Result<(), Outcome> {
    let Some(value) = record.attribute(Field::ContentType) else {
        return Ok(());
    };
    let is_text = |byte| matches!(byte, b' '..=b'~');
    match HeaderValue::from_str(value) {
        Ok(header) if value.bytes().all(is_text) => headers.insert(CONTENT_TYPE, header),
        _ => {
            return Err(invalid(
                "its content type has characters that no header of HTTP may have".to_owned(),
            ));
        }
    };
    Ok(())
}

/// Inserts a header of ours, whose value is encoded.
fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Outcome> {
    let pair = HeaderName::try_from(name)
        .ok()
        .zip(HeaderValue::try_from(value).ok());
    let (name, value) = pair.ok_or_else(|| invalid(format!("`{name}` makes no header")))?;
    headers.insert(name, value);
    Ok(())
}

fn invalid(reason: String) -> Outcome {
    Outcome::rejected(RejectionKind::Invalid, reason)
}

/// A value as the HTTP binding of CloudEvents writes it: percent escapes for all but visible ASCII
/// without `"` and `%`.
pub(super) fn encoded(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' | b'%' => out += &format!("%{byte:02X}"),
            b'!'..=b'~' => out.push(byte.into()),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, records};

    use super::*;
    use crate::{cloud_event::attributes::NO_TYPE, http::tests::target};

    fn written(event: SuiteEvent, options: &str) -> Result<(Vec<String>, Vec<u8>), Outcome> {
        let target = target(&format!("https://h/in?{options}"));
        let message = Message::of(&records(&[event], 0)[0], &target)?;
        let request = message.request(&target, 7).unwrap();
        let lines = request.headers().iter();
        let lines = lines.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        Ok((lines.collect(), message.body.to_vec()))
    }

    fn event() -> SuiteEvent {
        let mut event = SuiteEvent::new(Some("k ü\n"), "payload");
        event.tenant_id = Some("100%".to_owned());
        event.content_type = Some("text/plain".to_owned());
        event.headers = vec![
            ("b".to_owned(), Some("\"1\"".to_owned())),
            ("b".to_owned(), None),
        ];
        event
    }

    #[test]
    fn attributes_are_headers_of_cloud_events() {
        let event = event();
        let id = event.id;
        let (lines, body) = written(event, "source=/shop").unwrap();
        let expected = [
            "webhook-timestamp: 7".to_owned(),
            "content-length: 7".to_owned(),
            "user-agent: posthaste/0.1.0".to_owned(),
            "host: h".to_owned(),
            "ce-specversion: 1.0".to_owned(),
            "ce-source: /shop".to_owned(),
            format!("ce-id: {id}"),
            "ce-type: posthaste.event".to_owned(),
            "ce-time: 2023-11-14T22:13:20.123456Z".to_owned(),
            "ce-topic: suite".to_owned(),
            "ce-partitionkey: k%20%C3%BC%0A".to_owned(),
            "ce-tenantid: 100%25".to_owned(),
            r"ce-headers: [[%22b%22,%22\%221\%22%22],[%22b%22,null]]".to_owned(),
            "content-type: text/plain".to_owned(),
            format!("webhook-id: {id}"),
        ];
        assert_eq!(lines, expected);
        assert_eq!(body, b"payload");
    }

    #[test]
    fn raw_headers_have_the_names_of_other_sinks() {
        let mut event = event();
        event.kind = Some("order.placed".to_owned());
        event.tenant_id = Some(NO_TYPE.to_owned());
        event.payload = None;
        let (lines, body) = written(event, "format=raw").unwrap();
        let names: Vec<_> = lines
            .iter()
            .map(|line| line.split_once(':').unwrap().0)
            .collect();
        assert_eq!(
            names,
            [
                "webhook-timestamp",
                "content-length",
                "user-agent",
                "host",
                "id",
                "type",
                "occurred-at",
                "topic",
                "key",
                "tenant-id",
                "tombstone",
                "headers",
                "content-type",
                "webhook-id"
            ]
        );
        assert_eq!(body, b"");
    }

    #[test]
    fn the_signature_is_of_what_is_sent() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let target = target(&format!("https://h/in?secret={secret}"));
        let record = records(&[event()], 0)
            .remove(0)
            .with_dedup_id("a.b".to_owned());
        let message = Message::of(&record, &target).unwrap();
        let request = message.request(&target, 7).unwrap();
        assert_eq!(request.headers()["webhook-id"], "a%2Eb");
        let expected = target.signer.sign("a%2Eb", 7, b"payload").unwrap();
        assert_eq!(request.headers()["webhook-signature"], *expected);
    }

    #[test]
    fn records_that_no_request_can_hold_are_rejected() {
        let mut wide = SuiteEvent::new(None, "");
        wide.headers = vec![("a".to_owned(), Some("x".repeat(1_000)))];
        let mut late = SuiteEvent::new(None, "");
        late.occurred_at = i64::MAX;
        let mut strange = SuiteEvent::new(None, "");
        strange.content_type = Some("text/plain\r\nx: y".to_owned());
        for (event, kind) in [
            (wide, RejectionKind::TooLarge),
            (late, RejectionKind::Invalid),
            (strange, RejectionKind::Invalid),
        ] {
            match written(event, "max_header_bytes=1024") {
                Err(Outcome::Rejected(why)) => assert_eq!(why.kind, kind),
                other => panic!("{other:?}"),
            }
        }
    }
}
