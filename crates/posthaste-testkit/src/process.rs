//! Child processes under test: the built binary, killed, stopped, terminated, and heard out.
//!
//! Only a crate's own tests know where cargo put its binary (`env!("CARGO_BIN_EXE_posthaste")`), so
//! callers bring the [`Command`].

mod capture;

use crate::guard::Guard;
use capture::{Capture, Stream};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::RefCell;
use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(2);

/// A process that runs. Dropped, or when the test process dies, it is killed; dropped in a panic,
/// it first shows its command and what it wrote.
#[derive(Debug)]
pub struct Running {
    child: Child,
    command: String,
    stdout: Capture,
    stderr: Capture,
    end: Arc<End>,
    _guard: Guard,
}

/// A process's end, and whether somebody asked for it.
#[derive(Debug)]
struct End {
    command: String,
    /// A signal to end was sent, or the end is waited for.
    is_wanted: AtomicBool,
    streams: [Stream; 2],
}

thread_local! {
    /// Processes of this thread that go on until they are told to end.
    static GO_ON: RefCell<Vec<Weak<End>>> = const { RefCell::new(Vec::new()) };
}

/// Fails when a process of this thread that [goes on](Running::goes_on) has ended by itself. A wait
/// for what such a process does calls this in its loop, and need not wait for its time limit.
///
/// # Panics
///
/// Then. The process's output follows, as its [`Running`] is dropped.
pub fn assert_none_ended() {
    let ended = GO_ON.with_borrow_mut(|all| {
        all.retain(|end| end.strong_count() > 0);
        let mut all = all.iter().filter_map(Weak::upgrade);
        all.find(|end| end.came_by_itself())
    });
    if let Some(end) = ended {
        panic!("ended by itself: {}", end.command);
    }
}

impl End {
    fn came_by_itself(&self) -> bool {
        !self.is_wanted.load(Ordering::Relaxed)
            && self.streams.iter().all(|stream| {
                let stream = stream.0.lock().unwrap_or_else(PoisonError::into_inner);
                stream.closed
            })
    }
}

/// A process that has ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The program and its arguments.
    pub command: String,
    /// How it ended; `status.code()` is `None` when a signal killed it.
    pub status: ExitStatus,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
}

/// Runs a command to its end.
///
/// # Panics
///
/// When it cannot be started, or has not ended within the limit.
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    Running::start(command).wait(limit)
}

impl Running {
    /// Starts a command with empty standard input and both output streams captured.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
        let guard = Guard::new("kill -KILL \"$1\"", &[child.id().to_string()]);
        let stdout = Capture::start(child.stdout.take().expect("a pipe"));
        let stderr = Capture::start(child.stderr.take().expect("a pipe"));
        let command = format!("{command:?}");
        let end = End {
            command: command.clone(),
            is_wanted: AtomicBool::new(false),
            streams: [&stdout, &stderr].map(|stream| Arc::clone(&stream.shared)),
        };
        Self {
            child,
            command,
            stdout,
            stderr,
            end: Arc::new(end),
            _guard: guard,
        }
    }

    /// Declares that the process goes on until a signal ends it: see [`assert_none_ended`].
    #[must_use]
    pub fn goes_on(self) -> Self {
        GO_ON.with_borrow_mut(|all| all.push(Arc::downgrade(&self.end)));
        self
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill9(mut self) -> Finished {
        self.signal(Signal::KILL);
        self.finish(Duration::from_secs(60))
    }

    /// SIGTERM: asks for an orderly end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGINT, as Ctrl-C sends it.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// SIGSTOP: the process stands still, its connections stay open.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT: goes on after [`Self::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Whether the process has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait for a child").is_none()
    }

    /// Waits for the process's own end.
    ///
    /// # Panics
    ///
    /// When it has not ended within the limit, with all that it wrote.
    pub fn wait(mut self, limit: Duration) -> Finished {
        self.finish(limit)
    }

    /// Waits until standard output contains a text.
    ///
    /// # Panics
    ///
    /// When the limit is over, or the process closes the stream, without it.
    pub fn wait_for_stdout(&self, text: &str, limit: Duration) {
        self.stdout
            .wait_for(text, limit)
            .unwrap_or_else(|why| self.give_up(text, &why));
    }

    /// Waits until standard error contains a text.
    ///
    /// # Panics
    ///
    /// As [`Self::wait_for_stdout`].
    pub fn wait_for_stderr(&self, text: &str, limit: Duration) {
        self.stderr
            .wait_for(text, limit)
            .unwrap_or_else(|why| self.give_up(text, &why));
    }

    /// The process's standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// The process's standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// The most memory the process has held at once, in KiB. See [`peak_memory_kib`].
    #[must_use]
    pub fn peak_memory_kib(&self) -> u64 {
        peak_memory_kib(self.id())
    }

    fn signal(&self, signal: Signal) {
        if [Signal::KILL, Signal::TERM, Signal::INT].contains(&signal) {
            self.end.is_wanted.store(true, Ordering::Relaxed);
        }
        // Refused only if the process has ended: waiting for it tells how.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    // The panic's own unwinding drops `self`, which shows both streams.
    fn give_up(&self, text: &str, why: &str) -> ! {
        panic!("waited for {text:?} from {}: {why}", self.command)
    }

    fn finish(&mut self, limit: Duration) -> Finished {
        self.end.is_wanted.store(true, Ordering::Relaxed);
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for a child") {
                break status;
            }
            assert!(
                since.elapsed() < limit,
                "{} did not end within {limit:?}",
                self.command
            );
            thread::sleep(POLL);
        };
        Finished {
            command: self.command.clone(),
            status,
            stdout: self.stdout.read_to_end(),
            stderr: self.stderr.read_to_end(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended and was reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let (out, err) = (self.stdout.text(), self.stderr.text());
            eprintln!(
                "$ {}\n--- stdout\n{out}\n--- stderr\n{err}\n---",
                self.command
            );
        }
    }
}

impl Finished {
    /// Asserts the exit status and returns the value for further checks.
    ///
    /// # Panics
    ///
    /// When the status is another one, with command and both streams.
    pub fn expect_status(self, code: i32) -> Self {
        assert!(
            self.status.code() == Some(code),
            "expected exit status {code}:\n{self}"
        );
        self
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            command,
            status,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "$ {command}\n{status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---"
        )
    }
}

/// The most memory that a running process has held at once, in KiB, without the files that it maps.
///
/// Linux counts those too (`VmHWM`), the program itself above all, and maps as much of it as
/// happens to be in its cache: some 50 MiB of a debug build.
///
/// # Panics
///
/// When the process is gone, or the system has no `/proc`.
#[must_use]
pub fn peak_memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status"))
        .unwrap_or_else(|e| panic!("no /proc/{process}/status: {e}"));
    let kib = |name: &str| -> u64 {
        let value = status.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?;
            value.trim().strip_suffix(" kB")?.parse().ok()
        });
        value.unwrap_or_else(|| panic!("no {name} in /proc/{process}/status: has it ended?"))
    };
    kib("VmHWM").saturating_sub(kib("RssFile"))
}
