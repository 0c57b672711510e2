//! The workflow that makes releases on GitHub, read by actionlint; only tags publish.

use std::{path::PathBuf, process::Command};

use posthaste_testkit::cache::cached_dir;

use crate::{
    installed::read,
    made::{done, program, root},
};

const ACTIONLINT: &str = "v1.7.12";

fn actionlint() -> PathBuf {
    let folder = cached_dir(&format!("actionlint-{ACTIONLINT}"), |folder| {
        let mut go = program("go", "golang-go");
        let package = format!("github.com/rhysd/actionlint/cmd/actionlint@{ACTIONLINT}");
        done(
            go.args(["install", &package])
                .env("GOBIN", folder)
                .env("GOFLAGS", "-mod=mod"),
        );
    });
    folder.join("actionlint")
}

#[test]
fn the_workflow_of_releases_has_no_mistake() {
    let workflow = root().join(".github/workflows/release.yml");
    // Its scripts are short; shellcheck is not everywhere.
    done(
        Command::new(actionlint())
            .args(["-shellcheck=", "-pyflakes="])
            .arg(&workflow),
    );
    let text = read(&workflow);
    let mut actions = 0;
    for line in text.lines().filter(|line| line.contains("uses:")) {
        let (action, comment) = line.split_once('#').unwrap_or((line, ""));
        let commit = action.trim().rsplit('@').next().unwrap();
        let pinned = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
        let own = action.contains("uses: ./");
        assert!(
            own || pinned && comment.trim().starts_with('v'),
            "not pinned: {line}"
        );
        actions += 1;
    }
    assert!(actions > 5, "the workflow was not understood");
    assert!(text.contains("permissions: {}"), "no right is the default");
}
