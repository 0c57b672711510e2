//! The payload of one event in object storage, and the record that names it.

use std::time::Duration;

use bytes::Bytes;
use posthaste_engine::{GivenHeader, Record, is_plain_name, wire_id_room};
use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::{
    CLAIM_CHECK, CLAIM_CHECK_BYTES, CLAIM_CHECK_SHA256, CONTENT_ENCODING, Compression,
    compressing::Compressing,
    storage::{Fault, Storage},
};

/// A server's object is given up after this time, and longer by a second for each so many bytes: a
/// connection may stay open and never answer.
const LIMIT: Duration = Duration::from_secs(60);
const BYTES_EACH_SECOND: usize = 256 << 10;
/// Letters of the digest in an object's name: enough to tell the forms of one payload apart.
const DIGEST_IN_NAME: usize = 16;

/// Which payloads lie in object storage, and where.
#[derive(Debug)]
pub(super) struct ClaimCheck {
    pub(super) storage: Storage,
    /// Larger payloads are stored.
    pub(super) bytes_max: usize,
    /// They are compressed before.
    pub(super) compressing: Option<Compressing>,
}

/// A stored payload.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    reference: String,
    bytes: usize,
    sha256: String,
    encoding: Option<Compression>,
}

/// An event whose payload is to be stored.
#[derive(Debug)]
pub(super) struct Unstored {
    id: String,
    payload: Bytes,
    compressing: Option<Compressing>,
}

impl ClaimCheck {
    pub(super) fn wants(&self, record: &Record) -> bool {
        record.value().map_or(0, <[u8]>::len) > self.bytes_max
    }

    pub(super) fn unstored(&self, record: &Record) -> Unstored {
        let compressing = self.compressing.filter(|of| of.may_be_encoded(record));
        Unstored {
            id: record.event().wire_id(&mut wire_id_room()).to_owned(),
            payload: record.value_bytes().unwrap_or_default(),
            compressing,
        }
    }

    /// Stores a payload. Its name is made of destination, event and content: whoever stores it
    /// again writes the same object, and nobody puts another one in its place.
    pub(super) async fn store(&self, destination: &str, event: Unstored) -> Result<Claim, Fault> {
        let id = event.id.clone();
        let Ok((bytes, encoding, sha256)) = spawn_blocking(move || event.packed()).await else {
            return Err(Fault::away("packing it broke down (a bug)".to_owned()));
        };
        let name = name(destination, &id, &sha256);
        let seconds = bytes.len() / BYTES_EACH_SECOND;
        let limit = LIMIT + Duration::from_secs(seconds as u64);
        let claim = Claim {
            reference: self.storage.reference(&name),
            bytes: bytes.len(),
            sha256,
            encoding,
        };
        self.storage.put(&name, bytes, limit).await.map(|()| claim)
    }
}

impl Unstored {
    /// The bytes to store, their form and their digest.
    fn packed(self) -> (Bytes, Option<Compression>, String) {
        let compressed = self
            .compressing
            .and_then(|of| Some((of.compress(&self.payload)?, of.compression)));
        let (bytes, encoding) = match compressed {
            Some((bytes, format)) => (bytes, Some(format)),
            None => (self.payload, None),
        };
        let sha256 = hex(digest(&SHA256, &bytes).as_ref());
        (bytes, encoding, sha256)
    }
}

impl Claim {
    /// The record with this claim for its payload. The value says the same as the headers, for
    /// people, and for consumers that see no headers.
    pub(super) fn apply(&self, record: Record) -> Record {
        let mut value = json!({
            "claim_check": self.reference,
            "bytes": self.bytes,
            "sha256": self.sha256,
        });
        let header = |name: &str, value: &str| -> GivenHeader { (name.into(), Some(value.into())) };
        let mut headers = vec![
            header(CLAIM_CHECK, &self.reference),
            header(CLAIM_CHECK_BYTES, &self.bytes.to_string()),
            header(CLAIM_CHECK_SHA256, &self.sha256),
        ];
        if let Some(encoding) = self.encoding {
            headers.push(header(CONTENT_ENCODING, encoding.name()));
            value["content_encoding"] = json!(encoding.name());
        }
        record
            .with_value(Some(value.to_string().into()))
            .with_added_headers(headers)
    }
}

/// The name of an object. An id may be any text.
fn name(destination: &str, id: &str, sha256: &str) -> String {
    let hashed;
    let id = match is_plain_name(id) {
        true => id,
        false => {
            hashed = hex(digest(&SHA256, id.as_bytes()).as_ref());
            &hashed
        }
    };
    format!("{destination}/{id}-{}", &sha256[..DIGEST_IN_NAME])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_and_tells_destination_event_and_content() {
        let sha256 = hex(digest(&SHA256, b"x").as_ref());
        assert_eq!(name("d", "id-1", &sha256), "d/id-1-2d711642b726b044");
        let odd = name("d", "../../a b", &sha256);
        assert_eq!(odd.len(), "d/".len() + 64 + 1 + DIGEST_IN_NAME);
        assert_ne!(odd, name("d", "../../a c", &sha256));
    }
}
