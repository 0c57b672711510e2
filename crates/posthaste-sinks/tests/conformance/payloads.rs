//! Sinks with settings for payloads around them: the whole suite, read as consumers read it.

mod unpacked;

use posthaste_sinks::{Compression, PayloadSettings};
use posthaste_testkit::sink_suite::{Expected, Fixture, Row};

use unpacked::Unpacked;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for row in crate::file::rows() {
        rows.push(Row {
            expected: named("file-compressed", row.expected),
            fixture: || around(crate::file::rows, Compression::Gzip),
        });
    }
    #[cfg(feature = "nats")]
    for row in crate::nats::rows() {
        rows.push(Row {
            expected: named("nats-compressed", row.expected),
            fixture: || around(crate::nats::rows, Compression::Zstd),
        });
    }
    rows
}

/// What the sink promises counts for its decorator, but for the size of payloads.
fn named(name: &'static str, expected: Expected) -> Expected {
    Expected {
        sink: name,
        event_bytes_max: None,
        ..expected
    }
}

/// The sink of the first of these rows, which gets whatever payload is smaller compressed.
fn around(rows: fn() -> Vec<Row>, compression: Compression) -> Box<dyn Fixture> {
    Box::new(Unpacked {
        inner: (rows()[0].fixture)(),
        settings: PayloadSettings {
            compression: Some(compression),
            compression_bytes_min: Some(1),
        },
    })
}
