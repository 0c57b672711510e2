//! A fixture whose consumer unpacks payloads.

use std::{io::Read as _, sync::Arc};

use async_trait::async_trait;
use flate2::read::GzDecoder;
use posthaste_engine::Sink;
use posthaste_sinks::{CONTENT_ENCODING, PayloadSettings, around};
use posthaste_testkit::sink_suite::{Fixture, SuiteEvent, WireRecord};

/// A fixture with these settings around its sink.
pub(super) struct Unpacked {
    pub(super) inner: Box<dyn Fixture>,
    pub(super) settings: PayloadSettings,
}

type Headers = Vec<(String, Option<String>)>;

/// The payload as its writer had it. What tells how to read it is taken from the headers, where it
/// stands before all others.
fn unpack(headers: &mut Headers, payload: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let Some(encoding) = take(headers, CONTENT_ENCODING) else {
        return payload;
    };
    let payload = payload.expect("a tombstone is not compressed");
    Some(decompressed(&encoding, &payload))
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
            event.payload = unpack(&mut event.headers, event.payload.take());
        }
        all
    }

    async fn arrived_records(&self) -> Vec<WireRecord> {
        let mut all = self.inner.arrived_records().await;
        for record in &mut all {
            record.value = unpack(&mut record.headers, record.value.take());
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
