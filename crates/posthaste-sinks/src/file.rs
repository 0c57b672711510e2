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
use posthaste_engine::{
    CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo,
};

use crate::{
    address::Address,
    descriptors::file::{EVENT_BYTES_MAX, FILE, MODE},
    publisher::Stop,
    writer,
};
use appender::Appender;

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
        address.check(&FILE.plug_in)?;
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
        let limit = address.number(&EVENT_BYTES_MAX)?;
        let mode = address.file_mode(&MODE)?;
        let sink = Self::new(Path::new(&OsString::from_vec(bytes.to_vec())), limit)?;
        Ok(Self { mode, ..sink })
    }
}

#[async_trait]
impl Sink for FileSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "file",
            batch_events_max: 10_000,
            batch_bytes_max: 8 << 20,
            in_flight_events_max: 20_000,
            event_bytes_max: self.event_bytes_max,
            // A group of lines is written and synced, then the next one.
            requests_max: Some(1),
            deduplication: None,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: true,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
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
