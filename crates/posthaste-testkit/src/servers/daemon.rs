//! A server process and its folder: started, awaited, signalled, and gone afterwards.

use crate::account::Account;
use crate::guard::Guard;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far beyond a start, and beyond the ten seconds and more of a recovery after `kill -9`: only a
/// server that hangs meets it.
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const LOG_TAIL_LINES: usize = 60;

/// A link saves tens of megabytes of jars for each server, but cannot leave its file system.
pub(super) fn link_or_copy(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap_or_else(|e| panic!("copy {}: {e}", from.display()));
    }
}

/// Run by the guard with the folder as `$1`. A process that is still ending may write once more.
const CLEAN_UP: &str = r#"
for file in "$1"/*.pid; do [ -e "$file" ] && kill -KILL "$(cat "$file")"; done
tries=0
until rm -rf "$1" || [ $tries -ge 200 ]; do sleep 0.05; tries=$((tries+1)); done
"#;

/// The program of a package, at the first of these paths where it is.
pub(super) fn installed(product: &str, paths: &[&str], package: &str) -> PathBuf {
    let mut programs = paths.iter().map(PathBuf::from);
    programs
        .find(|program| program.exists())
        .unwrap_or_else(|| {
            panic!(
                "{product} is not installed (looked in {paths:?}); ./test installs it, or by \
                 hand: apt-get install {package}"
            )
        })
}

/// Writes its own process id and becomes the program: so there is no moment at which a server runs
/// that the guard does not know.
const BECOME: &str = r#"echo $$ >"$0" && exec "$@""#;

/// A folder, and the one server process that lives in it while it runs.
///
/// Dropped, it kills the process and deletes the folder; so does the death of the test process.
#[derive(Debug)]
pub(super) struct Daemon {
    /// For messages.
    name: &'static str,
    account: Account,
    process: Mutex<Option<Child>>,
    folder: TempDir,
    _guard: Guard,
}

impl Daemon {
    /// Makes an empty folder that the account owns; nothing runs yet.
    pub(super) fn new(name: &'static str, account: Account) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ph-server-")
            .tempdir()
            .expect("make a folder");
        account.take_over(folder.path());
        let guard = Guard::new(CLEAN_UP, &[folder.path()]);
        Self {
            name,
            account,
            process: Mutex::new(None),
            folder,
            _guard: guard,
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file that the server's user owns.
    pub(super) fn write(&self, name: &str, content: &str) -> PathBuf {
        let file = self.folder().join(name);
        fs::write(&file, content).unwrap_or_else(|e| panic!("write {}: {e}", file.display()));
        self.account.take_over(&file);
        file
    }

    /// Makes a folder that the server's user owns.
    pub(super) fn make_folder(&self, name: &str) -> PathBuf {
        let folder = self.folder().join(name);
        fs::create_dir(&folder).unwrap_or_else(|e| panic!("create {}: {e}", folder.display()));
        self.account.take_over(&folder);
        folder
    }

    /// A command for [`Self::launch`], to be given arguments and environment.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = self.account.command(Path::new("/bin/sh"));
        command
            .args(["-c", BECOME])
            .arg(self.folder().join("server.pid"))
            .arg(program)
            // A shell beside the server's folder would find it unreadable.
            .current_dir(self.folder());
        command
    }

    /// Starts the process and waits until `is_ready` says so of what the log has said since.
    ///
    /// # Panics
    ///
    /// When a process runs already, ends by itself, or is not ready within the limit.
    pub(super) fn launch(&self, mut command: Command, is_ready: impl Fn(&str) -> bool) {
        let mut process = self.lock();
        assert!(process.is_none(), "{} runs already", self.name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("the log");
        let before = log.metadata().expect("the log's length").len();
        let before = usize::try_from(before).expect("a short log");
        let child = command
            // Out of reach of a Ctrl-C, which must first unwind the tests.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("clone a file handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
        // From here on dropping `self` kills it, also when a panic below unwinds.
        let child = process.insert(child);
        let started = Instant::now();
        while !is_ready(&self.log_from(before)) {
            let ended = child.try_wait().expect("wait for a server");
            assert!(
                ended.is_none() && started.elapsed() < START_LIMIT,
                "{} did not start ({}):\n{}",
                self.name,
                ended.map_or("not ready in time".to_owned(), |status| status.to_string()),
                self.log_tail()
            );
            thread::sleep(POLL);
        }
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Panics
    ///
    /// When nothing runs, or the process does not obey within the limit.
    pub(super) fn stop(&self) {
        let mut process = self.lock();
        let child = self.running(&mut process);
        send(child, Signal::TERM);
        let asked = Instant::now();
        while child.try_wait().expect("wait for a server").is_none() {
            assert!(
                asked.elapsed() < STOP_LIMIT,
                "{} did not stop within {STOP_LIMIT:?}:\n{}",
                self.name,
                self.log_tail()
            );
            thread::sleep(POLL);
        }
        self.forget(&mut process);
    }

    /// `kill -9`, and waits for the end; also of a process that [`Self::pause`] holds.
    pub(super) fn kill9(&self) {
        let mut process = self.lock();
        kill(self.running(&mut process));
        self.forget(&mut process);
    }

    /// SIGSTOP: the process stands still, its connections stay open.
    pub(super) fn pause(&self) {
        let mut process = self.lock();
        let child = self.running(&mut process);
        send(child, Signal::STOP);
        // Some of its threads may go on for a moment. An error means that it has ended.
        let change = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(child)), change));
    }

    /// SIGCONT.
    pub(super) fn resume(&self) {
        send(self.running(&mut self.lock()), Signal::CONT);
    }

    pub(super) fn log(&self) -> String {
        self.log_from(0)
    }

    fn log_from(&self, byte: usize) -> String {
        fs::read(self.log_file()).map_or_else(
            |e| format!("(no log: {e})"),
            |bytes| String::from_utf8_lossy(&bytes[byte..]).into_owned(),
        )
    }

    fn log_file(&self) -> PathBuf {
        self.folder().join("server.log")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        // A panic while it was held has been reported; the process is still ours to end.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running<'a>(&self, process: &'a mut Option<Child>) -> &'a mut Child {
        process
            .as_mut()
            .unwrap_or_else(|| panic!("{} is not running", self.name))
    }

    /// Its number may soon be another process's, which the guard must not kill.
    fn forget(&self, process: &mut Option<Child>) {
        *process = None;
        fs::remove_file(self.folder().join("server.pid")).expect("remove the process id");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{} said:\n{}", self.name, self.log_tail());
        }
        if let Some(child) = self.lock().as_mut() {
            // Its data is worthless now, so there is no reason for an orderly stop.
            kill(child);
        }
    }
}

fn send(child: &Child, signal: Signal) {
    // Refused only if the process has ended by itself: whoever uses it next will see that.
    let _ = kill_process(Pid::from_child(child), signal);
}

fn kill(child: &mut Child) {
    // An error means that it has ended and was reaped.
    let _ = child.kill();
    let _ = child.wait();
}
