//! The packages for npm: what npm installs, and how the launcher behaves.

use std::{
    env::{self, consts::ARCH},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use posthaste_testkit::{
    cache::cached_dir,
    process::{Finished, Running, run},
};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    installed::Installed,
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

/// The installed package, and an outbox beside it.
fn with_outbox() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), &[MAIN, PLATFORM]);
    let init = ["init", "--store", "sqlite:shop.db"];
    done(&mut launch(folder.path(), &init));
    folder
}

const RELAY: [&str; 5] = [
    "relay",
    "--from",
    "sqlite:shop.db",
    "--to",
    "file:events.jsonl",
];

fn relay(folder: &Path, until: &str) -> Running {
    let relay = Running::start(&mut launch(folder, &RELAY));
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
    let folder = with_outbox();
    let folder = folder.path();
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
    let folder = with_outbox();
    let folder = folder.path();
    let path = path_with_node();
    let start = |args: &[&str]| {
        let mut command = launch(folder, args);
        command.env("PATH", &path);
        command
    };
    done(&mut start(&["--version"]));
    let wrong = run(&mut start(&["relay", "--no-such-option"]), LIMIT);
    assert_eq!(wrong.status.code(), Some(2), "{wrong}");

    let relay = Running::start(&mut start(&RELAY));
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

/// Runs a command in the foreground of its own terminal, tells its process id, and types Ctrl-C
/// there when it gets SIGUSR1. `script` of util-linux would stop with its child.
const TERMINAL: &str = r#"
import os, pty, signal, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGUSR1, lambda *_: os.write(terminal, b"\x03"))
print(child, flush=True)
try:
    while said := os.read(terminal, 1024):
        os.write(2, said)
except OSError:
    pass  # Nobody has the terminal open any longer.
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

/// The terminal has sent Ctrl-C to the relay as well; a launcher that comes later must not ask
/// again, which would end the planned stop.
#[test]
fn ctrl_c_reaches_the_relay_once_however_late_the_launcher_is() {
    let folder = with_outbox();
    let folder = folder.path();
    let mut terminal = Command::new("python3");
    terminal.args(["-c", TERMINAL, "node_modules/.bin/posthaste"]);
    let relay = Running::start(terminal.args(RELAY).current_dir(folder));
    relay.wait_for_stderr("claimed", LIMIT);
    relay.wait_for_stdout("\n", LIMIT);
    let launcher = Pid::from_raw(relay.stdout().trim().parse().unwrap()).unwrap();
    let terminal = Pid::from_raw(relay.id().cast_signed()).unwrap();
    // The planned stop lasts as long as the file is locked: it has to give its share back.
    let database = Connection::open(folder.join("shop.db")).unwrap();
    database.busy_timeout(LIMIT).unwrap();
    database.execute_batch("begin immediate").unwrap();
    let later = Duration::from_millis(500);
    kill_process(launcher, Signal::STOP).unwrap();
    kill_process(terminal, Signal::USR1).unwrap();
    thread::sleep(later);
    kill_process(launcher, Signal::CONT).unwrap();
    thread::sleep(later);
    database.execute_batch("commit").unwrap();
    let ended = relay.wait(LIMIT).expect_status(0);
    assert!(!ended.stderr.contains("second signal"), "{ended}");
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
