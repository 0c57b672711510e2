//! The sink that reads every byte and keeps none: for trials, and as the ruler of the read side.

use std::{
    future::pending,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Outcome, Record, Sink, SinkError, SinkInfo,
    Verdict,
};

use crate::{address::Address, descriptors::null::NULL};

/// Reads and counts every record, accepts it, and drops it.
#[derive(Debug, Default)]
pub struct NullSink {
    totals: Arc<Totals>,
}

#[derive(Debug, Default)]
struct Totals {
    events: AtomicU64,
    bytes: AtomicU64,
    checksum: AtomicU64,
}

/// The totals of a [`NullSink`], over all its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Records.
    pub events: u64,
    /// Bytes of keys, header names and values, and payloads.
    pub bytes: u64,
    /// Wrapping sum over those bytes; shows that they were read, nothing more.
    pub checksum: u64,
}

impl NullSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&NULL.plug_in)?;
        Ok(Self::default())
    }

    /// The totals so far.
    #[must_use]
    pub fn taken(&self) -> Taken {
        Taken {
            events: self.totals.events.load(Ordering::Relaxed),
            bytes: self.totals.bytes.load(Ordering::Relaxed),
            checksum: self.totals.checksum.load(Ordering::Relaxed),
        }
    }
}

#[async_trait]
impl Sink for NullSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "null",
            // Nothing here costs anything: bounds only so that a caller has some.
            batch_events_max: 10_000,
            batch_bytes_max: 8 << 20,
            in_flight_events_max: 50_000,
            event_bytes_max: None,
            requests_max: None,
            deduplication: None,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: false,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        Ok(CheckReport::default())
    }

    async fn open_lane(&self, _spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        Ok(Box::new(NullLane {
            totals: Arc::clone(&self.totals),
            verdicts: Vec::new(),
        }))
    }
}

/// Everything happens in `submit`; only the verdicts wait to be fetched.
struct NullLane {
    totals: Arc<Totals>,
    verdicts: Vec<Verdict>,
}

#[async_trait]
impl Lane for NullLane {
    async fn submit(&mut self, batch: Vec<Record>) {
        let mut reader = ByteCounter::default();
        self.verdicts.reserve(batch.len());
        for record in &batch {
            reader.read_record(record);
            self.verdicts.push(Verdict {
                ticket: record.ticket(),
                outcome: Outcome::accepted(),
            });
        }
        let totals = &self.totals;
        totals
            .events
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        totals.bytes.fetch_add(reader.bytes, Ordering::Relaxed);
        totals
            .checksum
            .fetch_add(reader.checksum, Ordering::Relaxed);
    }

    async fn outcomes(&mut self) -> Vec<Verdict> {
        if self.verdicts.is_empty() {
            // Only `submit` makes verdicts, and it cannot run while this borrows the lane.
            pending::<()>().await;
        }
        mem::take(&mut self.verdicts)
    }

    async fn abort(self: Box<Self>) {}

    async fn close(self: Box<Self>, _limit: Duration) -> Vec<Verdict> {
        self.verdicts
    }
}

#[derive(Default)]
struct ByteCounter {
    bytes: u64,
    checksum: u64,
}

impl ByteCounter {
    fn read_record(&mut self, record: &Record) {
        self.read(record.key().unwrap_or_default());
        for (name, value) in record.headers() {
            self.read(name.as_bytes());
            self.read(value.unwrap_or_default().as_bytes());
        }
        self.read(record.value().unwrap_or_default());
    }

    fn read(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (words, rest) = bytes.as_chunks::<8>();
        let mut sum = self.checksum;
        for word in words {
            sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
        for &byte in rest {
            sum = sum.wrapping_add(u64::from(byte));
        }
        self.checksum = sum;
    }
}

#[cfg(test)]
mod tests {
    use posthaste_testkit::sink_suite::{SuiteEvent, lane_spec, records};

    use super::*;

    async fn taken(event: SuiteEvent) -> Taken {
        let sink = NullSink::default();
        let mut lane = sink.open_lane(lane_spec(1)).await.unwrap();
        lane.submit(records(&[event], 0)).await;
        assert_eq!(lane.outcomes().await.len(), 1);
        sink.taken()
    }

    #[tokio::test]
    async fn every_byte_is_read() {
        let mut event = SuiteEvent::new(Some("key"), *b"a payload of 24 bytes...");
        event.headers = vec![("name".to_owned(), Some("value".to_owned()))];
        let whole = taken(event.clone()).await;
        assert_eq!((whole.events, whole.bytes), (1, 3 + 4 + 5 + 24));
        for at in 0..24 {
            let mut other = event.clone();
            other.payload.as_mut().unwrap()[at] ^= 1;
            assert_ne!(taken(other).await.checksum, whole.checksum, "byte {at}");
        }
        let mut other = event.clone();
        other.headers[0].1 = Some("valuf".to_owned());
        assert_ne!(taken(other).await.checksum, whole.checksum);
        event.key = Some("kez".to_owned());
        assert_ne!(taken(event).await.checksum, whole.checksum);
    }
}
