//! The builds of the tests: what is in which part, and that no test is in none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{metadata, read, root};

/// The parts in which the tests are built, with their members.
fn parts() -> BTreeMap<String, BTreeSet<String>> {
    let mut metadata = metadata();
    let parts = metadata["metadata"]["tests"].take();
    serde_json::from_value(parts).expect("the parts of the tests in Cargo.toml")
}

/// Packages that a part builds, each with its features.
fn built(members: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "--offline", "--all-features"]);
    command.args(["--edges", "normal,build,dev", "--prefix", "none"]);
    command.args(["--format", "{p}|{f}"]);
    for member in members {
        command.args(["--package", member]);
    }
    let output = command.current_dir(root()).output().unwrap();
    let mut built: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((package, features)) = line.split_once('|') else {
            continue;
        };
        let features = features.trim_end_matches(" (*)");
        // A package that build scripts use too has a set of features for each use.
        built
            .entry(package.trim_end_matches(" (proc-macro)").to_owned())
            .or_default()
            .insert(features.to_owned());
    }
    assert!(built.len() > 50, "the tree was not understood");
    built
}

fn is_member(package: &str) -> bool {
    package.starts_with("posthaste")
}

#[test]
fn each_member_is_in_one_part() {
    let mut members: Vec<_> = parts().into_values().flatten().collect();
    members.sort_unstable();
    let mut known: Vec<_> = super::DIRECTION.iter().map(|(member, _)| *member).collect();
    known.sort_unstable();
    assert_eq!(members, known);
}

/// Another feature of one crate, and all that use it are built once more.
#[test]
fn both_parts_share_the_builds_of_all_crates_of_others() {
    let parts = parts();
    let (released, proofs) = (built(&parts["released"]), built(&parts["proofs"]));
    let differ = released.iter().filter_map(|(package, features)| {
        let others = proofs.get(package)?;
        let same = features.is_subset(others) || others.is_subset(features);
        (!is_member(package) && !same)
            .then(|| format!("{package}: released {features:?}, proofs {others:?}"))
    });
    let differ: Vec<_> = differ.collect();
    assert!(
        differ.is_empty(),
        "name the features in crates/posthaste-testkit/Cargo.toml:\n{}",
        differ.join("\n")
    );
}

#[test]
fn no_feature_for_proofs_alone_is_in_the_released_part() {
    for (package, features) in built(&parts()["released"]) {
        for features in features.iter().filter(|_| is_member(&package)) {
            let mut features = features.split(',');
            let forbidden = features
                .find(|feature| ["leave-out-rules", "model", "simulation"].contains(feature));
            assert_eq!(forbidden, None, "{package}");
        }
    }
}

/// Files of tests that cargo does not look for are in a `main.rs`, and targets without tests have
/// none.
#[test]
fn no_test_is_left_out_of_the_builds() {
    let metadata = metadata();
    let members = metadata["workspace_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    for package in packages.iter().filter(|it| members.contains(&it["id"])) {
        let targets = package["targets"].as_array().unwrap();
        let source = |target: &Value| PathBuf::from(target["src_path"].as_str().unwrap());
        for target in targets.iter().filter(|target| target["test"] == false) {
            let source = source(target);
            let kind = target["kind"][0].as_str().unwrap();
            let hidden = kind != "bench" && read(&source).contains("#[test]");
            assert!(!hidden, "tests in {} are not built", source.display());
        }
        let sources: BTreeSet<_> = targets.iter().map(source).collect();
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("tests");
        let main = folder.join("main.rs");
        let named = if main.exists() {
            read(&main)
        } else {
            String::new()
        };
        for file in folder.read_dir().into_iter().flatten() {
            let file = file.unwrap().path();
            let module = file.file_stem().unwrap().to_str().unwrap();
            let is_rust = file.extension().is_some_and(|found| found == "rs");
            let built = sources.contains(&file)
                || named.lines().any(|line| line == format!("mod {module};"));
            assert!(!is_rust || built, "{} is not built", file.display());
        }
    }
}
