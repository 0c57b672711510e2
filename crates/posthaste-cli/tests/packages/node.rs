//! The packages for npm: what npm installs, and how the launcher behaves.

use std::{fs, path::Path, process::Command, time::Duration};

use posthaste_testkit::process::{Finished, Running, run};
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
    let path = std::env::var("PATH").unwrap();
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
