//! Events as JSON Lines in a file, synced to the device before they count as accepted.
//!
//! The file's exclusive lock is the fence: a lane holds it from opening until its last write is
//! done, so two relays never write one file, and a new lane starts only when the old one is silent.

mod appender;
mod fault;
#[cfg(test)]
mod fuzz;
mod tail;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use posthaste_engine::{FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo};

use crate::{address::Address, publisher::Stop, writer};
use appender::Appender;

const EVENT_BYTES_MAX: &str = "max_event_bytes";
const MODE: &str = "mode";
/// The relay opens the file again after a rotation or a restart.
const OWNER_READS_AND_WRITES: u32 = 0o600;
const MODE_MAX: u32 = 0o777;

/// Appends a line for each event to one file.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    event_bytes_max: Option<u64>,
    /// None: [`appender::MODE_DEFAULT`], less what the process's umask takes away.
    mode: Option<u32>,
}

impl FileSink {
    /// A sink into the file at `path`. Events whose payload has more than `event_bytes_max` bytes
    /// are rejected.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] when a relative path cannot be resolved, because the working
    /// directory is gone.
    pub fn new(path: &Path, event_bytes_max: Option<u64>) -> Result<Self, SinkError> {
        // Absolute from here on: messages name the place that was written.
        let path = std::path::absolute(path).map_err(|error| SinkError::Misconfigured {
            target: fault::target(path),
            reason: format!("{error}; write an absolute path"),
        })?;
        Ok(Self {
            path,
            event_bytes_max,
            mode: None,
        })
    }

    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.expect_options(&[EVENT_BYTES_MAX, MODE])?;
        let bytes = address.path()?;
        if bytes.is_empty() {
            return Err(address.misconfigured(
                "it names no file; write `file:///var/spool/events.jsonl`".to_owned(),
            ));
        }
        if bytes.ends_with(b"/") {
            return Err(address.misconfigured(
                "it names a directory; name a file in it, which is created".to_owned(),
            ));
        }
        let limit = address
            .option(EVENT_BYTES_MAX)
            .map(|value| parse_limit(address, value))
            .transpose()?;
        let mode = address.option(MODE);
        let mode = mode.map(|value| parse_mode(address, value)).transpose()?;
        let sink = Self::new(Path::new(&OsString::from_vec(bytes.to_vec())), limit)?;
        Ok(Self { mode, ..sink })
    }
}

fn parse_limit(address: &Address, value: &str) -> Result<u64, SinkError> {
    match value.parse() {
        Ok(0) => Err(address.misconfigured(format!("{EVENT_BYTES_MAX} must be at least 1"))),
        Ok(limit) => Ok(limit),
        Err(_) => Err(address.misconfigured(format!(
            "{EVENT_BYTES_MAX}={value} is not a whole number of bytes; write for example \
             {EVENT_BYTES_MAX}=1048576"
        ))),
    }
}

fn parse_mode(address: &Address, value: &str) -> Result<u32, SinkError> {
    let is_octal = matches!(value.len(), 3 | 4) && value.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(value, 8).ok().filter(|mode| {
        is_octal && *mode <= MODE_MAX && mode & OWNER_READS_AND_WRITES == OWNER_READS_AND_WRITES
    });
    mode.ok_or_else(|| {
        address.misconfigured(format!(
            "{MODE}={value} is not the mode of a file that its owner reads and writes; write it in \
             octal, for example {MODE}=0640"
        ))
    })
}

#[async_trait]
impl Sink for FileSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "file",
            batch_events_max: 10_000,
            batch_bytes_max: 8 << 20,
            in_flight_events_max: 20_000,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: true,
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.blocking(appender::check).await
    }

    async fn open_lane(&self, _spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let mode = self.mode;
        let appender = self
            .blocking(move |path| Appender::open(path, mode))
            .await?;
        let lane = writer::start("file", appender, Stop::default(), self.event_bytes_max)?;
        Ok(Box::new(lane))
    }
}

impl FileSink {
    /// Runs what may wait for the device off the relay's tasks.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || work(&path))
            .await
            .map_err(|error| SinkError::Bug {
                target: fault::target(&self.path),
                reason: error.to_string(),
            })?
    }
}
