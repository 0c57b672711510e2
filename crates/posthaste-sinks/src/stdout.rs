//! Events as JSON Lines on standard output, for pipelines and for looking at them.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use posthaste_engine::{
    Cause, CheckReport, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError, SinkInfo,
    Unavailability,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::PIPE_BUF,
};

use crate::{
    address::Address,
    descriptors::stdout::STDOUT,
    publisher::Stop,
    writer::{self, Target},
};

/// How long a stalled reader can keep `abort` waiting.
const STOP_LATENCY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Writes a line for each event to standard output, past the buffer of [`std::io::Stdout`].
#[derive(Debug)]
pub struct StdoutSink {
    out: Arc<OwnedFd>,
    state: Arc<OutputState>,
}

#[derive(Debug, Default)]
struct OutputState {
    /// A lane's thread may still write. Two at once would tear each other's lines.
    busy: AtomicBool,
    /// A lane ended in the middle of a line; the next one begins on a fresh line.
    torn: AtomicBool,
}

impl StdoutSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&STDOUT.plug_in)?;
        let out = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| unavailable(format!("cannot be used: {error}")))?;
        if stands_in(&out) {
            return Err(SinkError::Misconfigured {
                target: "stdout".to_owned(),
                reason: "standard output is closed: events would be gone; open it, or use `null:` \
                         if that is meant"
                    .to_owned(),
            });
        }
        Ok(Self::to(out))
    }

    /// The same lines to another descriptor: a pipe, a terminal, a socket.
    #[must_use]
    pub fn to(out: OwnedFd) -> Self {
        Self {
            out: Arc::new(out),
            state: Arc::default(),
        }
    }
}

#[async_trait]
impl Sink for StdoutSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "stdout",
            // A pipe holds 64 KiB, so larger batches would win nothing.
            batch_events_max: 1_000,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: 20_000,
            event_bytes_max: None,
            // A group of lines is written, then the next one.
            requests_max: Some(1),
            deduplication: None,
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: true,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match wait_writable(&self.out, &now) {
            Ok(flags) if flags.contains(PollFlags::ERR) => Err(unavailable(CLOSED.to_owned())),
            Ok(_) => Ok(CheckReport::default()),
            Err(error) => Err(unavailable(format!("cannot be polled: {error}"))),
        }
    }

    async fn open_lane(&self, _spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        if self.state.busy.swap(true, Ordering::AcqRel) {
            return Err(unavailable("an earlier lane still writes".to_owned()));
        }
        let stop = Stop::default();
        let target = Output {
            out: Arc::clone(&self.out),
            state: Arc::clone(&self.state),
            stop: stop.clone(),
        };
        Ok(Box::new(writer::start("stdout", target, stop, None)?))
    }
}

/// Whether this is the stand-in that Rust opens at the start where standard output is closed:
/// `/dev/null` for reading and writing. A shell that redirects output there opens it for writing.
fn stands_in(out: &OwnedFd) -> bool {
    let is_null = rustix::fs::fstat(out).is_ok_and(|out| {
        rustix::fs::stat("/dev/null")
            .is_ok_and(|null| out.st_rdev == null.st_rdev && out.st_mode == null.st_mode)
    });
    is_null
        && rustix::fs::fcntl_getfl(out).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR))
}

const CLOSED: &str = "nobody reads standard output any more (closed pipe); \
                      restart the relay together with its reader";

fn unavailable(reason: String) -> SinkError {
    SinkError::Unavailable {
        target: "stdout".to_owned(),
        reason,
    }
}

struct Output {
    out: Arc<OwnedFd>,
    state: Arc<OutputState>,
    stop: Stop,
}

impl Drop for Output {
    fn drop(&mut self) {
        self.state.busy.store(false, Ordering::Release);
    }
}

impl Target for Output {
    fn append(&mut self, lines: &[u8]) -> Result<(), Unavailability> {
        if self.state.torn.load(Ordering::Acquire) {
            self.write(b"\n")?;
        }
        self.write(lines)
    }
}

impl Output {
    fn write(&self, bytes: &[u8]) -> Result<(), Unavailability> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.stop.is_set() {
                return Err(Unavailability::new(
                    Cause::LaneEnded,
                    "the lane was ended first",
                ));
            }
            match self.write_some(rest) {
                Ok(0) | Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(count) => {
                    let torn = rest[count - 1] != b'\n';
                    self.state.torn.store(torn, Ordering::Release);
                    rest = &rest[count..];
                }
                Err(error) => return Err(classify(error)),
            }
        }
        Ok(())
    }

    /// A pipe that polls writable takes `PIPE_BUF` bytes without blocking, so a reader that stalls
    /// cannot hold the thread inside a write.
    fn write_some(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if wait_writable(&self.out, &STOP_LATENCY)?.is_empty() {
            return Ok(0);
        }
        rustix::io::write(&self.out, &bytes[..bytes.len().min(PIPE_BUF)])
    }
}

fn wait_writable(out: &OwnedFd, limit: &Timespec) -> Result<PollFlags, Errno> {
    let mut polled = [PollFd::new(out, PollFlags::OUT)];
    poll(&mut polled, Some(limit))?;
    Ok(polled[0].revents())
}

fn classify(error: Errno) -> Unavailability {
    match error {
        Errno::PIPE => Unavailability::new(Cause::Connection, CLOSED),
        Errno::NOSPC | Errno::DQUOT => Unavailability::new(
            Cause::Connection,
            format!("standard output: {error}; free space on its device"),
        ),
        Errno::FBIG => Unavailability::new(
            Cause::Misconfigured,
            format!("standard output: {error}; raise the size limit of files (ulimit -f)"),
        ),
        _ => Unavailability::new(Cause::Connection, format!("standard output: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_classified() {
        for (error, cause, fix) in [
            (Errno::PIPE, Cause::Connection, "restart the relay"),
            (Errno::NOSPC, Cause::Connection, "free space"),
            (Errno::DQUOT, Cause::Connection, "free space"),
            (Errno::FBIG, Cause::Misconfigured, "ulimit -f"),
            (Errno::IO, Cause::Connection, "standard output"),
        ] {
            let said = classify(error);
            assert_eq!(said.cause, cause, "{error:?}");
            assert!(said.reason.contains(fix), "{}", said.reason);
        }
    }
}
