//! Programs of servers, run to their end.

use std::path::Path;
use std::process::{Command, Output};

/// Copies a folder with modes and owners.
pub(super) fn copy_all(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Runs a command to its end and returns its standard output; panics with both streams if it fails.
pub(super) fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(
        status.success(),
        "{command:?} failed, {status}\n{stdout}{stderr}"
    );
    stdout
}
