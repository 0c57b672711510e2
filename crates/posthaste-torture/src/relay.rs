//! The built binary, and the file that it delivers into.

use std::{
    fs,
    io::{BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock},
    time::{Duration, Instant},
};

use posthaste_testkit::process::{Finished, Running, assert_none_ended, run};
use serde_json::Value;

/// Far more than anything here takes on a busy machine: only what hangs meets it.
pub const LIMIT: Duration = Duration::from_secs(120);
/// The memory of a relay (I6), whatever waits in the outbox.
pub const MEMORY_KIB_MAX: u64 = 64 * 1024;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the binary to be tortured, once for the process. The tests of its own package need not:
/// cargo names it to them.
///
/// # Panics
///
/// When another one was named before.
pub fn use_program(program: PathBuf) {
    let named = PROGRAM.get_or_init(|| program.clone());
    assert_eq!(*named, program, "the binary was named before");
}

fn program() -> &'static Path {
    PROGRAM.get_or_init(|| {
        let variable = "CARGO_BIN_EXE_posthaste";
        let named = std::env::var_os(variable);
        PathBuf::from(named.unwrap_or_else(|| panic!("neither named nor in {variable}")))
    })
}

/// The binary with these arguments, and nothing of the environment that it would heed.
#[must_use]
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    for variable in ["POSTHASTE_FROM", "POSTHASTE_TO", "POSTHASTE_LOG"] {
        command.env_remove(variable);
    }
    command.args(args);
    command
}

/// Runs a command of the binary to its end.
pub fn posthaste(args: &[&str]) -> Finished {
    run(&mut command(args), LIMIT)
}

/// Runs a command with `--json` and reads its answer.
///
/// # Panics
///
/// When it fails.
pub fn posthaste_json(args: &[&str]) -> Value {
    let finished = posthaste(&[args, &["--json"]].concat()).expect_status(0);
    serde_json::from_str(finished.stdout.trim()).unwrap_or_else(|e| panic!("{e}:\n{finished}"))
}

/// A relay's command line.
#[derive(Debug, Clone)]
pub struct RelayCommand {
    from: String,
    to: String,
    flags: Vec<String>,
}

impl RelayCommand {
    /// One that delivers into a file.
    #[must_use]
    pub fn new(from: &str, to: &Delivered) -> Self {
        Self::to_url(from, &format!("file://{}", to.path.display()))
    }

    /// One that delivers to any address.
    #[must_use]
    pub fn to_url(from: &str, to: &str) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            flags: Vec::new(),
        }
    }

    /// Adds to the sink's address, `?` included.
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.to.push_str(option);
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags
            .extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// The command line.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = command(&["relay", "--from", &self.from, "--to", &self.to]);
        command.args(&self.flags);
        command
    }

    /// Starts it. It goes on until it is told to end: a wait fails at once when it does not.
    #[must_use]
    pub fn start(&self) -> Running {
        Running::start(&mut self.command()).goes_on()
    }

    /// Delivers everything that is there, and ends with this status.
    ///
    /// # Panics
    ///
    /// When it ends with another one, or not at all.
    pub fn drain(&self, status: i32) -> Finished {
        run(self.command().arg("--until-drained"), LIMIT).expect_status(status)
    }
}

/// The file that a relay delivers into.
#[derive(Debug)]
pub struct Delivered {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
    counted: Mutex<Counted>,
}

impl Default for Delivered {
    fn default() -> Self {
        Self::new()
    }
}

/// The finished lines of a file that were counted: it only grows behind them.
#[derive(Debug, Default)]
struct Counted {
    file: u64,
    lines: u64,
    bytes: u64,
}

impl Delivered {
    /// One in a folder of its own, which goes with this value.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            path: folder.path().join("delivered/events.jsonl"),
            _folder: Some(folder),
            counted: Mutex::default(),
        }
        .with_directory()
    }

    /// A file that lies, or will lie, elsewhere.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            _folder: None,
            counted: Mutex::default(),
        }
    }

    fn with_directory(self) -> Self {
        fs::create_dir(self.directory()).unwrap();
        self
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that it lies in.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap()
    }

    /// Finished lines; none when the file is not there. Reads only what is new, so that it may be
    /// asked often.
    pub fn lines(&self) -> u64 {
        let Ok(mut file) = fs::File::open(&self.path) else {
            return 0;
        };
        let mut counted = self.counted.lock().unwrap();
        let (now, length) = file.metadata().map(|m| (m.ino(), m.len())).unwrap();
        if counted.file != now || length < counted.bytes {
            *counted = Counted {
                file: now,
                ..Counted::default()
            };
        }
        file.seek(SeekFrom::Start(counted.bytes)).unwrap();
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        let mut behind = counted.bytes;
        loop {
            let buffer = reader.fill_buf().unwrap();
            if buffer.is_empty() {
                return counted.lines;
            }
            if let Some(last) = buffer.iter().rposition(|&byte| byte == b'\n') {
                counted.lines += buffer.iter().filter(|&&byte| byte == b'\n').count() as u64;
                counted.bytes = behind + last as u64 + 1;
            }
            let length = buffer.len();
            behind += length as u64;
            reader.consume(length);
        }
    }

    /// Whether this text stands in the file.
    pub fn holds(&self, text: &str) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|content| content.contains(text))
    }
}

/// Looks again and again until it is so.
///
/// # Panics
///
/// When that takes longer than [`LIMIT`], or a relay of this thread ends meanwhile.
pub async fn until(what: &str, so: impl FnMut() -> bool) {
    until_within(LIMIT, what, so).await;
}

/// Waits until this store has neither a pending event nor a blocked key.
///
/// # Panics
///
/// As [`until`].
pub async fn until_all_is_delivered(store: &str) {
    until("everything to be delivered", || {
        let status = posthaste_json(&["status", "--store", store]);
        status["pending"] == 0 && status["blocked_keys"] == 0
    })
    .await;
}

/// [`until`] with another limit.
///
/// # Panics
///
/// As [`until`].
pub async fn until_within(limit: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    loop {
        let asked = Instant::now();
        if so() {
            return;
        }
        assert_none_ended();
        assert!(since.elapsed() < limit, "not within {limit:?}: {what}");
        // To ask may take a process of its own, whose work is to leave room for the others.
        let pause = (4 * asked.elapsed()).max(Duration::from_millis(20));
        tokio::time::sleep(pause).await;
    }
}

/// A panic of any thread or task of the process is a failure, even if the process went on.
///
/// # Panics
///
/// When there was one.
pub fn assert_no_panic(stderr: &str) {
    assert!(
        !stderr.contains("panicked at"),
        "the relay panicked:\n{stderr}"
    );
}
