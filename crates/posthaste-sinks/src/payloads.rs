//! What a destination does with payloads before its sink gets them: a decorator around any sink.

#[cfg(feature = "compression")]
mod compressing;
#[cfg(feature = "compression")]
mod inside;
#[cfg(feature = "compression")]
mod lane;
#[cfg(feature = "compression")]
mod sink;

use std::sync::Arc;

use posthaste_engine::{Sink, SinkError};

/// The header that names the [`Compression`] of a record's value.
pub const CONTENT_ENCODING: &str = "content-encoding";

/// The least payload that is compressed. Below it a header and the format's own bytes eat up much
/// of what is saved, and a broker counts messages more than bytes.
#[cfg(feature = "compression")]
const COMPRESSION_BYTES_MIN: usize = 1 << 10;

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

/// What is done with payloads.
#[derive(Debug, Clone, Default)]
pub struct PayloadSettings {
    /// The format that they are compressed in.
    pub compression: Option<Compression>,
    /// Smaller ones stay as they are.
    pub compression_bytes_min: Option<usize>,
}

/// Puts the settings around a sink; the sink itself where they ask for nothing.
///
/// # Errors
/// [`SinkError::Misconfigured`] where the settings contradict each other or ask for something that
/// this build does not carry.
pub fn around(sink: Arc<dyn Sink>, settings: &PayloadSettings) -> Result<Arc<dyn Sink>, SinkError> {
    let Some(compression) = settings.compression else {
        return match settings.compression_bytes_min {
            None => Ok(sink),
            Some(_) => Err(misconfigured(
                &*sink,
                "`compression_bytes_min` does nothing without `compression`; give \
                 compression = \"zstd\", or leave it out",
            )),
        };
    };
    #[cfg(feature = "compression")]
    {
        let bytes_min = settings.compression_bytes_min;
        let compressing = compressing::Compressing {
            compression,
            bytes_min: bytes_min.unwrap_or(COMPRESSION_BYTES_MIN),
        };
        Ok(Arc::new(sink::PayloadSink::new(sink, compressing)))
    }
    #[cfg(not(feature = "compression"))]
    {
        let name = compression.name();
        Err(misconfigured(
            &*sink,
            &format!(
                "this build has no compression, and `compression` asks for {name}; build it with \
                 `cargo build --features compression`"
            ),
        ))
    }
}

fn misconfigured(sink: &dyn Sink, reason: &str) -> SinkError {
    SinkError::Misconfigured {
        target: format!("payloads of the sink `{}`", sink.info().kind),
        reason: reason.to_owned(),
    }
}
