//! A fixture whose consumer unpacks payloads.

#[cfg(feature = "claim-check")]
use std::fs;
use std::{io::Read as _, sync::Arc};

use async_trait::async_trait;
use flate2::read::GzDecoder;
use posthaste_engine::Sink;
#[cfg(feature = "claim-check")]
use posthaste_sinks::{CLAIM_CHECK, CLAIM_CHECK_BYTES, CLAIM_CHECK_SHA256};
use posthaste_sinks::{CONTENT_ENCODING, PayloadSettings, around};
use posthaste_testkit::sink_suite::{Fixture, SuiteEvent, WireRecord};
#[cfg(feature = "claim-check")]
use tempfile::TempDir;

#[cfg(feature = "claim-check")]
use super::providers::{Bucket, Provider};

/// A fixture with these settings around its sink.
pub(super) struct Unpacked {
    pub(super) inner: Box<dyn Fixture>,
    pub(super) objects: Objects,
    pub(super) settings: PayloadSettings,
}

/// Where stored payloads lie.
pub(super) enum Objects {
    None,
    #[cfg(feature = "claim-check")]
    Folder(TempDir),
    #[cfg(feature = "claim-check")]
    Bucket(Bucket),
}

#[cfg(feature = "claim-check")]
impl Objects {
    pub(super) fn folder() -> Self {
        Self::Folder(TempDir::new().unwrap())
    }

    pub(super) fn bucket(provider: Provider) -> Self {
        Self::Bucket(Bucket::new(provider))
    }

    /// As the setting `claim_check` has it.
    pub(super) fn url(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Folder(folder) => Some(format!("file://{}", folder.path().display())),
            Self::Bucket(bucket) => Some(bucket.url()),
        }
    }

    fn get(&self, reference: &str) -> Vec<u8> {
        match self {
            Self::None => panic!("nothing is stored: {reference}"),
            Self::Folder(folder) => {
                let path = reference.strip_prefix("file://").unwrap();
                assert!(path.starts_with(folder.path().to_str().unwrap()), "{path}");
                fs::read(path).unwrap()
            }
            Self::Bucket(bucket) => {
                let name = reference.strip_prefix(&bucket.address()).unwrap();
                bucket.object(name.strip_prefix('/').unwrap()).unwrap()
            }
        }
    }
}

type Headers = Vec<(String, Option<String>)>;

impl Unpacked {
    /// The payload as its writer had it. The headers that tell how to read it are taken away; they
    /// stand before all others.
    fn unpack(&self, headers: &mut Headers, payload: Option<Vec<u8>>) -> Option<Vec<u8>> {
        #[cfg(feature = "claim-check")]
        let payload = match take(headers, CLAIM_CHECK) {
            None => payload,
            Some(reference) => {
                let size = take(headers, CLAIM_CHECK_BYTES).unwrap();
                let sha256 = take(headers, CLAIM_CHECK_SHA256).unwrap();
                let said: serde_json::Value = serde_json::from_slice(&payload.unwrap()).unwrap();
                assert_eq!(said["claim_check"], *reference);
                assert_eq!(said["bytes"].to_string(), size);
                assert_eq!(said["sha256"], *sha256);
                let object = self.objects.get(&reference);
                assert_eq!(object.len().to_string(), size);
                let digest = ring::digest::digest(&ring::digest::SHA256, &object);
                let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
                assert_eq!(digest, sha256);
                Some(object)
            }
        };
        let Some(encoding) = take(headers, CONTENT_ENCODING) else {
            return payload;
        };
        let payload = payload.expect("a tombstone is not compressed");
        Some(decompressed(&encoding, &payload))
    }
}

fn take(headers: &mut Headers, name: &str) -> Option<String> {
    let at = headers.iter().position(|(found, _)| found == name)?;
    headers.remove(at).1
}

fn decompressed(encoding: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match encoding {
        "gzip" => {
            GzDecoder::new(payload).read_to_end(&mut out).unwrap();
        }
        "zstd" => {
            let size = zstd_safe::get_frame_content_size(payload).unwrap().unwrap();
            out.resize(usize::try_from(size).unwrap(), 0);
            let size = zstd_safe::decompress(&mut out[..], payload).unwrap();
            assert_eq!(size, out.len());
        }
        other => panic!("no such encoding: {other}"),
    }
    out
}

#[async_trait]
impl Fixture for Unpacked {
    fn sink(&self) -> Arc<dyn Sink> {
        around(self.inner.sink(), &self.settings).unwrap()
    }

    async fn trace(&self) -> String {
        self.inner.trace().await
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        let mut all = self.inner.arrived().await;
        for event in &mut all {
            event.payload = self.unpack(&mut event.headers, event.payload.take());
        }
        all
    }

    async fn arrived_records(&self) -> Vec<WireRecord> {
        let mut all = self.inner.arrived_records().await;
        for record in &mut all {
            record.value = self.unpack(&mut record.headers, record.value.take());
        }
        all
    }

    async fn take_away(&self) {
        self.inner.take_away().await;
    }

    async fn bring_back(&self) {
        self.inner.bring_back().await;
    }

    async fn stall(&self) {
        self.inner.stall().await;
    }

    async fn resume(&self) {
        self.inner.resume().await;
    }

    /// As large as the inner one's, and of bytes that do not become fewer.
    fn spoil(&self, event: SuiteEvent) -> SuiteEvent {
        let mut event = self.inner.spoil(event);
        let mut state = 1_u64;
        for byte in event.payload.iter_mut().flatten() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = state.to_be_bytes()[0];
        }
        event
    }
}
