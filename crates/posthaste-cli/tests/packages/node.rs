//! The packages for npm: what npm installs, and how the launcher behaves.

use std::{
    env::{self, consts::ARCH},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use posthaste_testkit::{
    cache::cached_dir,
    process::{Finished, Running, run},
};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    installed::{Installed, read},
    made::{LIMIT, done, made},
};

/// Installs packages into an empty folder, without asking a registry.
fn install(folder: &Path, packages: &[(&str, &str)]) {
    let manifest = "{\"name\": \"service\", \"version\": \"1.0.0\"}";
    fs::write(folder.join("package.json"), manifest).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund"]);
    for (start, end) in packages {
        npm.arg(made().artefact(start, end));
    }
    // A cache of its own, so that what this machine has downloaded plays no part.
    npm.env("npm_config_cache", folder.join("cache"))
        .current_dir(folder);
    done(&mut npm);
}

const MAIN: (&str, &str) = ("posthaste-0", ".tgz");
const PLATFORM: (&str, &str) = ("posthaste-linux-", ".tgz");

pub(crate) fn installed(folder: TempDir) -> Installed {
    install(folder.path(), &[MAIN, PLATFORM]);
    let path = env::var("PATH").unwrap();
    Installed::new(folder, &["npx", "--offline", "posthaste"], &path)
}

fn launch(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(folder.join("node_modules/.bin/posthaste"));
    command.args(args).current_dir(folder);
    command
}

fn relay(folder: &Path, until: &str) -> Running {
    let store = ["--from", "sqlite:shop.db", "--to", "file:events.jsonl"];
    let relay = Running::start(&mut launch(folder, &[&["relay"], &store[..]].concat()));
    relay.wait_for_stderr(until, LIMIT);
    relay
}

/// Processes of this folder's binary.
fn left(folder: &Path) -> Vec<String> {
    let finished = run(
        Command::new("pgrep").arg("-f").arg(folder),
        Duration::from_secs(60),
    );
    finished.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn signals_and_statuses_pass_through_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    install(folder, &[MAIN, PLATFORM]);
    done(&mut launch(folder, &["init", "--store", "sqlite:shop.db"]));
    let wrong = run(&mut launch(folder, &["relay", "--no-such-option"]), LIMIT);
    assert_eq!(wrong.status.code(), Some(2), "{wrong}");

    let started = "claimed";
    let signals: [(fn(&Running), _); 2] = [
        (Running::terminate, "SIGTERM"),
        (Running::interrupt, "SIGINT"),
    ];
    for (signal, name) in signals {
        let relay = relay(folder, started);
        signal(&relay);
        let ended: Finished = relay.wait(LIMIT);
        assert_eq!(ended.status.code(), Some(0), "{name}: {ended}");
        assert_eq!(left(folder), [""; 0], "{name}: {ended}");
    }
}

/// A Node that can put the program in the place of the launcher.
const NODE: &str = "24.21.0";

/// The system's folders of programs, behind that of this Node.
fn path_with_node() -> String {
    let machine = match ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let package = format!("node-linux-{machine}");
    let folder = cached_dir(&format!("node-{NODE}"), |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]);
        done(npm.arg(folder).arg(format!("{package}@{NODE}")));
    });
    let programs = folder.join("node_modules").join(package).join("bin");
    format!("{}:{}", programs.display(), env::var("PATH").unwrap())
}

#[test]
fn the_program_takes_the_place_of_the_launcher_where_node_can_do_that() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    install(folder, &[MAIN, PLATFORM]);
    let path = path_with_node();
    let start = |args: &[&str]| {
        let mut command = launch(folder, args);
        command.env("PATH", &path);
        command
    };
    done(&mut start(&["init", "--store", "sqlite:shop.db"]));
    let wrong = run(&mut start(&["relay", "--no-such-option"]), LIMIT);
    assert_eq!(wrong.status.code(), Some(2), "{wrong}");

    let args = ["relay", "--from", "sqlite:shop.db", "--to", "file:events"];
    let relay = Running::start(&mut start(&args));
    relay.wait_for_stderr("claimed", LIMIT);
    let program = fs::read_link(format!("/proc/{}/exe", relay.id())).unwrap();
    assert_eq!(program.file_name().unwrap(), "posthaste");
    let ended = relay.kill9();
    assert_eq!(left(folder), [""; 0], "{ended}");

    fs::remove_file(binary(folder)).unwrap();
    fs::write(binary(folder), "").unwrap();
    let refused = run(&mut start(&["--version"]), LIMIT);
    assert_eq!(refused.status.code(), Some(1), "{refused}");
    assert!(
        refused.stderr.contains("cannot be run: EACCES"),
        "{refused}"
    );
    assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
}

/// The installed binary.
fn binary(folder: &Path) -> PathBuf {
    let packages = fs::read_dir(folder.join("node_modules/@posthaste")).unwrap();
    let package = packages.map(Result::unwrap).next().unwrap();
    package.path().join("posthaste")
}

/// A relay on a terminal of its own, in the foreground.
struct OnTerminal {
    terminal: Child,
    output: PathBuf,
    launcher: Pid,
}

impl OnTerminal {
    fn start(folder: &Path, command: &str) -> Self {
        let output = folder.join("terminal");
        // `script` of util-linux would stop with its child.
        let terminal = "import os, pty, sys\n\
            sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        // Of a shell that runs nothing besides: no other process takes the terminal.
        let command = format!("echo $$ >launcher; exec {command}");
        let terminal = Command::new("python3")
            .args(["-c", terminal, "sh", "-c", &command])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(File::create(&output).unwrap())
            .spawn()
            .unwrap();
        let mut started = Self {
            terminal,
            output,
            launcher: Pid::INIT,
        };
        started.wait_for("claimed");
        let launcher = read(&folder.join("launcher")).trim().parse().unwrap();
        started.launcher = Pid::from_raw(launcher).unwrap();
        started
    }

    fn wait_for(&self, text: &str) {
        let end = Instant::now() + LIMIT;
        while !self.shown().contains(text) {
            assert!(Instant::now() < end, "without {text}: {}", self.shown());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.terminal.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "goes on: {}", self.shown());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn type_in(&mut self, keys: &[u8]) {
        let input = self.terminal.stdin.as_mut().unwrap();
        input.write_all(keys).unwrap();
        input.flush().unwrap();
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // With its terminal a relay ends that a failed test has left.
        let _ = self.terminal.kill();
        let _ = self.terminal.wait();
    }
}

/// The terminal has sent Ctrl-C to the relay as well; a launcher that comes later must not ask
/// again, which would end the planned stop.
#[test]
fn ctrl_c_reaches_the_relay_once_however_late_the_launcher_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    install(folder, &[MAIN, PLATFORM]);
    done(&mut launch(folder, &["init", "--store", "sqlite:shop.db"]));
    let command = "node_modules/.bin/posthaste relay --from sqlite:shop.db --to file:events";
    let mut relay = OnTerminal::start(folder, command);
    // The planned stop lasts as long as the file is locked: it has to give its share back.
    let database = Connection::open(folder.join("shop.db")).unwrap();
    database.busy_timeout(LIMIT).unwrap();
    database.execute_batch("begin immediate").unwrap();
    let later = Duration::from_millis(500);
    kill_process(relay.launcher, Signal::STOP).unwrap();
    relay.type_in(b"\x03");
    thread::sleep(later);
    kill_process(relay.launcher, Signal::CONT).unwrap();
    thread::sleep(later);
    database.execute_batch("commit").unwrap();
    let ended = relay.ended();
    assert_eq!(ended.code(), Some(0), "{}", relay.shown());
    assert!(
        !relay.shown().contains("second signal"),
        "{}",
        relay.shown()
    );
}

#[test]
fn a_missing_platform_package_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), &[MAIN]);
    let ended = run(&mut launch(folder.path(), &["--version"]), LIMIT);
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert!(
        ended
            .stderr
            .contains("npm install --include=optional posthaste"),
        "{ended}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
}
