//! Destinations of the suite.

use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::Duration,
};

use async_trait::async_trait;
use posthaste_engine::Sink;
use posthaste_sinks::{NullSink, StdoutSink, open};
use posthaste_testkit::sink_suite::{Fixture, SuiteEvent};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tempfile::TempDir;

use crate::lines;

/// Above the 10 MB that must arrive.
const EVENT_BYTES_MAX: usize = 11_000_000;

/// A file in a directory of its own; away means that the directory has another name.
struct FileFixture {
    root: TempDir,
}

impl FileFixture {
    fn directory(&self) -> PathBuf {
        self.root.path().join("spool")
    }

    fn away(&self) -> PathBuf {
        self.root.path().join("away")
    }
}

pub(crate) fn file() -> Box<dyn Fixture> {
    let fixture = FileFixture {
        root: TempDir::new().unwrap(),
    };
    fs::create_dir(fixture.directory()).unwrap();
    Box::new(fixture)
}

/// The address of a file.
pub(crate) fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[async_trait]
impl Fixture for FileFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        let url = file_url(&self.directory().join("events.jsonl"));
        open(&format!("{url}?max_event_bytes={EVENT_BYTES_MAX}")).unwrap()
    }

    async fn trace(&self) -> String {
        let mut trace = String::new();
        for directory in [self.directory(), self.away()] {
            for entry in fs::read_dir(&directory).into_iter().flatten() {
                let entry = entry.unwrap();
                let found = entry.metadata().unwrap();
                let (mtime, nanos) = (found.mtime(), found.mtime_nsec());
                let text = fs::read_to_string(entry.path()).unwrap();
                trace += &format!("{:?} {mtime}.{nanos:09} {text}\n", entry.path());
            }
        }
        trace
    }

    async fn arrived(&self) -> Vec<SuiteEvent> {
        match fs::read(self.directory().join("events.jsonl")) {
            Ok(text) => lines::parse_all(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    async fn take_away(&self) {
        fs::rename(self.directory(), self.away()).unwrap();
    }

    async fn bring_back(&self) {
        fs::rename(self.away(), self.directory()).unwrap();
    }

    fn spoil(&self, mut event: SuiteEvent) -> SuiteEvent {
        event.payload = Some(vec![b'x'; EVENT_BYTES_MAX + 1]);
        event
    }
}

struct NullFixture(Arc<NullSink>);

pub(crate) fn null() -> Box<dyn Fixture> {
    Box::new(NullFixture(Arc::default()))
}

#[async_trait]
impl Fixture for NullFixture {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.0) as Arc<dyn Sink>
    }

    async fn trace(&self) -> String {
        format!("{:?}", self.0.taken())
    }
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

pub(crate) fn stdout() -> Box<dyn Fixture> {
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
