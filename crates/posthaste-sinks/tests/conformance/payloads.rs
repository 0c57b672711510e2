//! Sinks with settings for payloads around them: the whole suite, read as consumers read it.

#[cfg(feature = "claim-check")]
mod providers;
#[cfg(feature = "claim-check")]
mod stored;
mod unpacked;

use libtest_mimic::Trial;
use posthaste_sinks::{Compression, PayloadSettings};
use posthaste_testkit::sink_suite::{Expected, Fixture, Row};

#[cfg(feature = "claim-check")]
use providers::Provider;
use unpacked::{Objects, Unpacked};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for row in crate::file::rows() {
        rows.push(Row {
            expected: named("file-compressed", row.expected),
            fixture: || compressed(crate::file::rows, Compression::Gzip),
        });
        #[cfg(feature = "claim-check")]
        rows.push(Row {
            expected: stored::named("file-claim-check", row.expected),
            fixture: || stored::fixture(crate::file::rows, Objects::folder()),
        });
        #[cfg(feature = "claim-check")]
        rows.push(Row {
            expected: stored::named("file-claim-check-azure", row.expected),
            fixture: || stored::fixture(crate::file::rows, Objects::bucket(Provider::Azure)),
        });
        #[cfg(feature = "claim-check")]
        rows.push(Row {
            expected: stored::named("file-claim-check-google", row.expected),
            fixture: || stored::fixture(crate::file::rows, Objects::bucket(Provider::Google)),
        });
    }
    #[cfg(feature = "nats")]
    for row in crate::nats::rows() {
        rows.push(Row {
            expected: named("nats-compressed", row.expected),
            fixture: || compressed(crate::nats::rows, Compression::Zstd),
        });
        #[cfg(feature = "claim-check")]
        rows.push(Row {
            expected: stored::named("nats-claim-check", row.expected),
            fixture: || stored::fixture(crate::nats::rows, Objects::bucket(Provider::S3)),
        });
    }
    rows
}

pub(crate) fn trials() -> Vec<Trial> {
    #[cfg(feature = "claim-check")]
    return stored::trials()
        .into_iter()
        .chain(providers::trials())
        .collect();
    #[cfg(not(feature = "claim-check"))]
    Vec::new()
}

/// The promises of the sink count for its decorator, but for the size of payloads.
fn named(name: &'static str, expected: Expected) -> Expected {
    Expected {
        sink: name,
        event_bytes_max: None,
        ..expected
    }
}

/// The sink of the first of these rows, which gets whatever payload is smaller compressed.
fn compressed(rows: fn() -> Vec<Row>, compression: Compression) -> Box<dyn Fixture> {
    Box::new(Unpacked {
        inner: (rows()[0].fixture)(),
        objects: Objects::None,
        settings: PayloadSettings {
            compression: Some(compression),
            compression_bytes_min: Some(1),
            ..PayloadSettings::default()
        },
    })
}
