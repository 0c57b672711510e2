//! The packages of crates.io: which members are published, and that each builds by itself.

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::made::{done, root};

const PUBLISHED: &[&str] = &[
    "posthaste",
    "posthaste-cli",
    "posthaste-engine",
    "posthaste-relay",
    "posthaste-sinks",
    "posthaste-stores",
];

fn members() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--locked",
        "--offline",
    ]);
    let metadata = done(cargo.current_dir(root()));
    let mut metadata: Value = serde_json::from_str(&metadata.stdout).unwrap();
    match metadata["packages"].take() {
        Value::Array(members) => members,
        other => panic!("cargo metadata was not understood: {other}"),
    }
}

#[test]
fn published_crates_say_what_the_registry_shows() {
    let members = members();
    // An empty list of registries is `publish = false`.
    let published = members.iter().filter(|member| member["publish"].is_null());
    let mut names: Vec<_> = published
        .map(|member| {
            let name = member["name"].as_str().unwrap();
            for field in ["description", "license", "readme"] {
                assert!(member[field].is_string(), "{name} has no {field}");
            }
            let manifest = Path::new(member["manifest_path"].as_str().unwrap());
            let readme = manifest.with_file_name(member["readme"].as_str().unwrap());
            assert!(readme.exists(), "{name}: {}", readme.display());
            let keywords = member["keywords"].as_array().unwrap();
            assert!((1..=5).contains(&keywords.len()), "{name}: {keywords:?}");
            let targets = member["targets"].as_array().unwrap();
            let library = targets.iter().any(|target| target["kind"][0] == "lib");
            let pages = &member["metadata"]["docs"]["rs"];
            assert_eq!(
                library,
                !pages.is_null(),
                "{name}: docs.rs builds libraries"
            );
            name
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, PUBLISHED);
}

/// The short form only packs; the long one also builds each crate from its package.
#[test]
fn published_crates_can_be_packed() {
    let target = tempfile::tempdir().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // The checkout may have changes that are not committed.
    cargo
        .args(["package", "--locked", "--allow-dirty"])
        .current_dir(root());
    for name in PUBLISHED {
        cargo.args(["--package", name]);
    }
    if !posthaste_testkit::long_form() {
        cargo.arg("--no-verify");
    }
    let packed = done(cargo.env("CARGO_TARGET_DIR", target.path()));
    // Cargo.toml names a repository as soon as there is one.
    let allowed = "warning: manifest has no documentation, homepage or repository";
    let warnings = packed
        .stderr
        .lines()
        .filter(|line| line.starts_with("warning: "));
    let warnings: Vec<_> = warnings.filter(|line| *line != allowed).collect();
    assert!(warnings.is_empty(), "{packed}");
    for name in PUBLISHED {
        let file = format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        assert!(target.path().join(&file).exists(), "{file}:\n{packed}");
    }
}
