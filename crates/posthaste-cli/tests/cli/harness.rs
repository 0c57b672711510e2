//! A directory with an outbox in it, and the binary run inside.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use posthaste_testkit::{
    lines::{self, Line},
    process::{Finished, Running, run},
};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// Only what hangs meets it, on a busy machine too.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Between questions to a relay that has work to do besides.
const POLL: Duration = Duration::from_millis(20);
/// The store of a [`World`], for every command.
pub(crate) const STORE: [&str; 2] = ["--store", "sqlite:shop.db"];

/// A directory of its own.
pub(crate) struct World(TempDir);

impl World {
    /// An empty directory.
    pub(crate) fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A directory with an outbox in `shop.db`.
    pub(crate) fn with_outbox() -> Self {
        let world = Self::empty();
        world.ends(&["init", "--store", "sqlite:shop.db"], 0);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The binary in this directory, and nothing of the environment that it would heed.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = posthaste_torture::relay::command(args);
        command.current_dir(self.0.path());
        command
    }

    /// Runs a command, which has to end with this status.
    pub(crate) fn ends(&self, args: &[&str], status: i32) -> Finished {
        run(&mut self.command(args), LIMIT).expect_status(status)
    }

    /// Runs a command on this directory's outbox.
    pub(crate) fn on_store(&self, args: &[&str], status: i32) -> Finished {
        self.ends(&[args, &STORE].concat(), status)
    }

    /// The JSON that a command on this directory's outbox answers with.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        last_json(&self.on_store(&[args, &["--json"]].concat(), 0))
    }

    /// Runs a relay until it has drained.
    pub(crate) fn drain(&self, to: &str, args: &[&str], status: i32) -> Finished {
        let drain = [
            "relay",
            "--from",
            "sqlite:shop.db",
            "--to",
            to,
            "--until-drained",
        ];
        self.ends(&[&drain, args].concat(), status)
    }

    /// Starts a command that goes on.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(&mut self.command(args))
    }

    /// Writes an event, as any client of the database can.
    pub(crate) fn emit(&self, topic: &str, key: &str, payload: &str) {
        let database = Connection::open(self.path("shop.db")).unwrap();
        database.busy_timeout(Duration::from_secs(10)).unwrap();
        database
            .execute(
                "insert into posthaste_outbox (topic, key, payload) values (?1, ?2, ?3)",
                [topic, key, payload],
            )
            .unwrap();
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The events delivered into a file of this directory; none when there is no such file.
    pub(crate) fn delivered(&self, name: &str) -> Vec<Line> {
        if !self.path(name).exists() {
            return Vec::new();
        }
        lines::read(&self.path(name))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    /// The payloads of what was delivered into a file of this directory.
    pub(crate) fn payloads(&self, name: &str) -> Vec<String> {
        let payload = |line: Line| String::from_utf8(line.payload().unwrap()).unwrap();
        self.delivered(name).into_iter().map(payload).collect()
    }
}

/// Waits until it is so.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "not within {LIMIT:?}: {what}");
        thread::sleep(POLL);
    }
}

/// The last line of standard output.
pub(crate) fn last_json(finished: &Finished) -> Value {
    let line = finished.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}:\n{finished}"))
}

/// Asserts that no line is wider than the least terminal.
pub(crate) fn fits_a_terminal(text: &str) {
    let too_wide = text.lines().find(|line| line.chars().count() > 80);
    assert_eq!(too_wide, None, "{text}");
}

/// Asserts that standard error says all of this.
pub(crate) fn says(finished: &Finished, parts: &[&str]) {
    for part in parts {
        assert!(
            finished.stderr.contains(part),
            "without {part:?}:\n{finished}"
        );
    }
}
