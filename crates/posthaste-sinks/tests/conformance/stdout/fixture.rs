//! Standard output into a pipe with a reader that can go away and fall asleep.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::StdoutSink;
use posthaste_testkit::sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tempfile::TempDir;

use crate::{expected, lines};

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            breaks_with: Some(Cause::Connection),
            stalls: true,
            rejects: Some(RejectionKind::Invalid),
            ..expected("stdout")
        },
        fixture: stdout,
    }]
}

/// Standard output into a named pipe with a reader that can go, come back, and fall asleep.
struct StdoutFixture {
    sink: Arc<StdoutSink>,
    reader: Arc<Reader>,
    thread: Option<JoinHandle<()>>,
    _root: TempDir,
}

struct Reader {
    path: PathBuf,
    state: Mutex<ReaderState>,
    changed: Condvar,
}

struct ReaderState {
    /// None while the reader is away. The bytes in the pipe wait for the next one.
    pipe: Option<OwnedFd>,
    asleep: bool,
    ended: bool,
    text: Vec<u8>,
}

fn stdout() -> Box<dyn Fixture> {
    let root = TempDir::new().unwrap();
    let path = root.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pipe = open_reader(&path);
    let out = File::options().write(true).open(&path).unwrap();
    let reader = Arc::new(Reader {
        path,
        state: Mutex::new(ReaderState {
            pipe: Some(pipe),
            asleep: false,
            ended: false,
            text: Vec::new(),
        }),
        changed: Condvar::new(),
    });
    let reading = Arc::clone(&reader);
    Box::new(StdoutFixture {
        sink: Arc::new(StdoutSink::to(out.into())),
        thread: Some(thread::spawn(move || reading.run())),
        reader,
        _root: root,
    })
}

fn open_reader(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap()
}

impl Reader {
    fn state(&self) -> MutexGuard<'_, ReaderState> {
        self.state.lock().unwrap()
    }

    /// Keeps the pipe empty while the reader is there and awake.
    fn run(&self) {
        const TURN: Duration = Duration::from_millis(1);
        let mut state = self.state();
        while !state.ended {
            if !state.asleep {
                state.read_all();
            }
            // Lets the fixture act in between. No copy of the pipe may outlive its turn: a reader
            // that went must be gone at once.
            state = self.changed.wait_timeout(state, TURN).unwrap().0;
        }
    }
}

impl ReaderState {
    fn read_all(&mut self) {
        let mut block = vec![0; 64 << 10];
        let Some(pipe) = &self.pipe else { return };
        loop {
            match rustix::io::read(pipe, &mut block) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return,
                Ok(count) => self.text.extend_from_slice(&block[..count]),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for StdoutFixture {
    fn drop(&mut self) {
        self.reader.state().ended = true;
        self.reader.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[async_trait]
impl Fixture for StdoutFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink) as Arc<dyn Sink>
    }

    async fn trace(&self) -> String {
        let mut state = self.reader.state();
        state.read_all();
        String::from_utf8_lossy(&state.text).into_owned()
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        let mut state = self.reader.state();
        state.read_all();
        // A lane that ended in mid-line leaves a torn one, which the next lane ends.
        state
            .text
            .split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .filter_map(lines::parse)
            .collect()
    }

    async fn arrived_records(&self) -> Vec<WireRecord> {
        let mut state = self.reader.state();
        state.read_all();
        let lines = state.text.split_inclusive(|&byte| byte == b'\n');
        lines.map(lines::record).collect()
    }

    async fn take_away(&self) {
        self.reader.state().pipe = None;
    }

    async fn bring_back(&self) {
        self.reader.state().pipe = Some(open_reader(&self.reader.path));
        self.reader.changed.notify_all();
    }

    async fn stall(&self) {
        self.reader.state().asleep = true;
    }

    async fn resume(&self) {
        self.reader.state().asleep = false;
        self.reader.changed.notify_all();
    }

    fn spoil(&self, mut event: SuiteEvent) -> SuiteEvent {
        // No RFC 3339 time.
        event.occurred_at = i64::MAX;
        event
    }
}
