//! Changes of payloads before a sink gets them: a decorator around any sink.

#[cfg(feature = "claim-check")]
mod claim;
#[cfg(feature = "claim-check")]
mod claims;
#[cfg(feature = "compression")]
mod compressing;
#[cfg(feature = "_payloads")]
mod inside;
#[cfg(feature = "_payloads")]
mod jobs;
#[cfg(feature = "_payloads")]
mod lane;
#[cfg(feature = "compression")]
mod packing;
#[cfg(feature = "_payloads")]
mod patience;
#[cfg(feature = "claim-check")]
mod places;
#[cfg(feature = "schema-registry")]
mod schemas;
#[cfg(feature = "compression")]
mod sink;
#[cfg(feature = "claim-check")]
mod storage;

use std::sync::Arc;

#[cfg(any(feature = "claim-check", feature = "schema-registry"))]
use posthaste_engine::DedupWindow;
use posthaste_engine::{Sink, SinkError};

#[cfg(feature = "claim-check")]
use claim::ClaimCheck;
#[cfg(feature = "compression")]
use compressing::Compressing;
#[cfg(feature = "compression")]
use sink::PayloadSink;
#[cfg(feature = "claim-check")]
use storage::Storage;

/// The header that names the [`Compression`] of a record's value.
pub const CONTENT_ENCODING: &str = "content-encoding";
/// The header with the address of the payload, where it lies in object storage.
pub const CLAIM_CHECK: &str = "claim-check";
/// The header with the length of the object.
pub const CLAIM_CHECK_BYTES: &str = "claim-check-bytes";
/// The header with the SHA-256 of the object, in hexadecimal digits.
pub const CLAIM_CHECK_SHA256: &str = "claim-check-sha256";

/// The least payload that is compressed. Below it a header and the format's own bytes eat up much
/// of what is saved, and a broker counts messages more than bytes.
#[cfg(feature = "compression")]
const COMPRESSION_BYTES_MIN: usize = 1 << 10;

/// The largest payload that stays in its record where others are stored. A broker takes as much
/// without a change of its limits, and a request to storage costs more than its bytes.
#[cfg(feature = "claim-check")]
const CLAIM_CHECK_BYTES_MAX: usize = 256 << 10;

/// A format of compressed payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Self); 2] = [("gzip", Self::Gzip), ("zstd", Self::Zstd)];

    /// The name in settings, and in the header [`CONTENT_ENCODING`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// The changes of payloads. It has no `Debug`: an address may hold a secret.
#[derive(Clone, Default)]
pub struct PayloadSettings {
    /// The format that they are compressed in.
    pub compression: Option<Compression>,
    /// Smaller ones stay as they are.
    pub compression_bytes_min: Option<usize>,
    /// The address of the object storage that large ones are put into.
    pub claim_check: Option<String>,
    /// Larger ones are put there.
    pub claim_check_bytes: Option<usize>,
    /// The address of the registry whose schemas they must fit.
    pub schema_registry: Option<String>,
    /// The names of their schemas.
    pub schema_subject: Option<String>,
}

/// Puts the settings around a sink; the sink itself where they ask for nothing.
///
/// # Errors
/// [`SinkError::Misconfigured`] where the settings contradict each other or the sink, or ask for
/// something that this build does not carry.
pub fn around(sink: Arc<dyn Sink>, settings: &PayloadSettings) -> Result<Arc<dyn Sink>, SinkError> {
    let refused = |reason: &str| Err(misconfigured(&*sink, reason.to_owned()));
    if settings.compression.is_none() && settings.compression_bytes_min.is_some() {
        return refused(
            "`compression_bytes_min` does nothing without `compression`; give compression = \
             \"zstd\" too, or leave it out",
        );
    }
    if settings.claim_check.is_none() && settings.claim_check_bytes.is_some() {
        return refused(
            "`claim_check_bytes` does nothing without `claim_check`; give claim_check = \
             \"s3://BUCKET/PREFIX\" too, or leave it out",
        );
    }
    if settings.schema_registry.is_none() && settings.schema_subject.is_some() {
        return refused(
            "`schema_subject` does nothing without `schema_registry`; give schema_registry = \
             \"https://HOST:8081\" too, or leave it out",
        );
    }
    // Outside all else: what is compressed or stored is the payload in its form.
    encoded(packed(sink, settings)?, settings)
}

fn packed(sink: Arc<dyn Sink>, settings: &PayloadSettings) -> Result<Arc<dyn Sink>, SinkError> {
    let refused = |reason: &str| Err(misconfigured(&*sink, reason.to_owned()));
    if settings.compression.is_none() && settings.claim_check.is_none() {
        return Ok(sink);
    }
    if cfg!(not(feature = "claim-check")) && settings.claim_check.is_some() {
        return refused(
            "this build stores no payloads, and `claim_check` asks for it; build it with `cargo \
             build --features claim-check`",
        );
    }
    if cfg!(not(feature = "compression")) {
        return refused(
            "this build compresses nothing, and `compression` asks for it; build it with `cargo \
             build --features compression`",
        );
    }
    decorated(sink, settings)
}

#[cfg(not(feature = "compression"))]
fn decorated(sink: Arc<dyn Sink>, _: &PayloadSettings) -> Result<Arc<dyn Sink>, SinkError> {
    Ok(sink)
}

#[cfg(feature = "compression")]
fn decorated(sink: Arc<dyn Sink>, settings: &PayloadSettings) -> Result<Arc<dyn Sink>, SinkError> {
    let bytes_min = settings.compression_bytes_min;
    let compressing = settings.compression.map(|compression| Compressing {
        compression,
        bytes_min: bytes_min.unwrap_or(COMPRESSION_BYTES_MIN),
    });
    #[cfg(feature = "claim-check")]
    let claim_check = claim_check(&*sink, settings, compressing)?.map(Arc::new);
    Ok(Arc::new(PayloadSink {
        inner: sink,
        compressing,
        #[cfg(feature = "claim-check")]
        claim_check,
    }))
}

#[cfg(feature = "claim-check")]
fn claim_check(
    sink: &dyn Sink,
    settings: &PayloadSettings,
    compressing: Option<Compressing>,
) -> Result<Option<ClaimCheck>, SinkError> {
    let Some(url) = &settings.claim_check else {
        return Ok(None);
    };
    refuse_kept_progress(sink, "claim_check")?;
    let sink_max = sink
        .info()
        .event_bytes_max
        .and_then(|max| usize::try_from(max).ok());
    let sink_max = sink_max.unwrap_or(usize::MAX);
    let bytes_max = settings.claim_check_bytes;
    if bytes_max.is_some_and(|bytes| bytes > sink_max) {
        return Err(misconfigured(
            sink,
            format!(
                "`claim_check_bytes` is more than the {sink_max} bytes that the sink takes, so \
                 payloads between the two would be refused; write claim_check_bytes = \
                 \"{sink_max}B\", or less"
            ),
        ));
    }
    Ok(Some(ClaimCheck {
        storage: Storage::open(url)?,
        bytes_max: bytes_max.unwrap_or(CLAIM_CHECK_BYTES_MAX.min(sink_max)),
        compressing,
    }))
}

/// An event that waits outside the sink, or is refused there, may leave the window, and progress
/// that the broker keeps does not know of that.
#[cfg(any(feature = "claim-check", feature = "schema-registry"))]
fn refuse_kept_progress(sink: &dyn Sink, setting: &str) -> Result<(), SinkError> {
    let window = sink.info().deduplication.map(|memory| memory.window);
    match window == Some(DedupWindow::UntilStored) {
        false => Ok(()),
        true => Err(misconfigured(
            sink,
            format!(
                "`{setting}` does not go together with progress that is kept in the broker; leave \
                 out `{setting}`, or `delivery=transactional`"
            ),
        )),
    }
}

fn encoded(sink: Arc<dyn Sink>, settings: &PayloadSettings) -> Result<Arc<dyn Sink>, SinkError> {
    let Some(url) = &settings.schema_registry else {
        return Ok(sink);
    };
    #[cfg(feature = "schema-registry")]
    {
        refuse_kept_progress(&*sink, "schema_registry")?;
        let schemas = schemas::Schemas::of(url, settings.schema_subject.as_deref())?;
        Ok(Arc::new(schemas::SchemaSink {
            inner: sink,
            schemas,
        }))
    }
    #[cfg(not(feature = "schema-registry"))]
    {
        _ = url;
        let reason = "this build asks no schema registry, and `schema_registry` wants it to; build \
                      it with `cargo build --features schema-registry`";
        Err(misconfigured(&*sink, reason.to_owned()))
    }
}

fn misconfigured(sink: &dyn Sink, reason: String) -> SinkError {
    SinkError::Misconfigured {
        target: format!("payloads of the sink `{}`", sink.info().kind),
        reason,
    }
}

#[cfg(test)]
#[cfg(feature = "claim-check")]
mod tests;
