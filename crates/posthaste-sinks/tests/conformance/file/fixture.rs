//! A file in a directory that can go away.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use posthaste_engine::{Cause, RejectionKind, Sink};
use posthaste_sinks::open;
use posthaste_testkit::sink_suite::{Expected, Fixture, Row, SuiteEvent, WireRecord};
use tempfile::TempDir;

use crate::{expected, lines};

pub(crate) fn rows() -> Vec<Row> {
    vec![Row {
        expected: Expected {
            breaks_with: Some(Cause::Misconfigured),
            // A local device that takes nothing cannot be made without a kernel module.
            stalls: false,
            rejects: Some(RejectionKind::TooLarge),
            event_bytes_max: Some(EVENT_BYTES_MAX as u64),
            ..expected("file")
        },
        fixture: file,
    }]
}

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

fn file() -> Box<dyn Fixture> {
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

    async fn arrived_records(&self) -> Vec<WireRecord> {
        let text = fs::read(self.directory().join("events.jsonl")).unwrap();
        let lines = text.split_inclusive(|&byte| byte == b'\n');
        lines.map(lines::record).collect()
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
