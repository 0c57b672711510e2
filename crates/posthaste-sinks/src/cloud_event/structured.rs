//! A CloudEvent as one JSON object (`application/cloudevents+json`).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use posthaste_engine::{Field, Record};
use serde::de::IgnoredAny;

use super::attributes::{Name, SPEC_VERSION, TOMBSTONE};

/// The content type of the object.
pub(crate) const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// The object of a record with these attributes.
pub(crate) fn write(record: &Record, attributes: &[(Name, String)], source: &str) -> Vec<u8> {
    let payload = record.value();
    let room = 512 + payload.map_or(0, <[u8]>::len);
    let mut out = Vec::with_capacity(room);
    out.extend_from_slice(b"{\"specversion\":");
    write_text(&mut out, SPEC_VERSION);
    member(&mut out, "source");
    write_text(&mut out, source);
    for (name, value) in attributes {
        member(&mut out, name.cloud_event);
        match name.cloud_event == TOMBSTONE.cloud_event {
            true => out.extend_from_slice(value.as_bytes()),
            false => write_text(&mut out, value),
        }
    }
    let content_type = record.attribute(Field::ContentType);
    if let Some(content_type) = content_type {
        member(&mut out, "datacontenttype");
        write_text(&mut out, content_type);
    }
    if let Some(payload) = payload {
        write_data(&mut out, payload, content_type);
    }
    out.push(b'}');
    out
}

/// Data that is JSON stands as it is, other text as a string, and anything else in base64. Data
/// without a content type is JSON for CloudEvents.
fn write_data(out: &mut Vec<u8>, payload: &[u8], content_type: Option<&str>) {
    let is_json = content_type.is_none_or(is_json);
    match std::str::from_utf8(payload) {
        Ok(text) if is_json && serde_json::from_str::<IgnoredAny>(text).is_ok() => {
            member(out, "data");
            out.extend_from_slice(payload);
        }
        Ok(text) if !is_json => {
            member(out, "data");
            write_text(out, text);
        }
        _ => {
            member(out, "data_base64");
            write_text(out, &STANDARD.encode(payload));
        }
    }
}

/// Whether a content type says that data is JSON.
fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    let (_, kind) = media.split_once('/').unwrap_or_default();
    kind == "json" || kind.ends_with("+json")
}

fn member(out: &mut Vec<u8>, name: &str) {
    out.push(b',');
    write_text(out, name);
    out.push(b':');
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // A string always becomes JSON.
    if let Ok(mut text) = serde_json::to_vec(text) {
        out.append(&mut text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(payload: &[u8], content_type: Option<&str>) -> String {
        let mut out = Vec::new();
        write_data(&mut out, payload, content_type);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn data_stands_as_its_content_type_says() {
        let json = Some("application/JSON; charset=utf-8");
        for (payload, content_type, expected) in [
            (&br#"{"a": 2.50}"#[..], json, r#","data":{"a": 2.50}"#),
            (b"null", None, r#","data":null"#),
            (b"[1]", Some("application/vnd.x+json"), r#","data":[1]"#),
            (b"[1", json, r#","data_base64":"WzE=""#),
            (b"", None, r#","data_base64":"""#),
            (b"a\"b", Some("text/plain"), r#","data":"a\"b""#),
            (b"\xff", Some("text/plain"), r#","data_base64":"/w==""#),
            (b"\"\xff\"", json, r#","data_base64":"Iv8i""#),
            (b"[1]", Some("application/octet-stream"), r#","data":"[1]""#),
            (b"1", Some("json"), r#","data":"1""#),
        ] {
            assert_eq!(data(payload, content_type), expected);
        }
    }
}
