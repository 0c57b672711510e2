//! The rules of the house that neither compiler nor clippy checks: licences and sources of
//! dependencies, their direction, lengths, leftovers, titles.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

#[path = "house/builds.rs"]
mod builds;
#[path = "house/changed.rs"]
mod changed;
#[path = "house/circles.rs"]
mod circles;
#[path = "house/contracts.rs"]
mod contracts;
#[path = "house/lines.rs"]
mod lines;
#[path = "house/plug_ins.rs"]
mod plug_ins;

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Licences that ask for no more than their text; MPL or copyleft needs a decision, not a line
/// here.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that must not come back by a default feature of some dependency: C and assembly code with
/// a build of its own, where rustls with ring serves.
const BANNED: &[&str] = &["aws-lc-sys", "native-tls"];

/// C libraries that a feature may bring (Kafka's client), but never the default build.
const NOT_BY_DEFAULT: &[&str] = &["openssl-sys", "rdkafka-sys", "libz-sys", "zstd-sys"];

/// Which members a member may name, at run time and in build scripts.
const DIRECTION: &[(&str, &[&str])] = &[
    ("posthaste", &[]),
    ("posthaste-engine", &["posthaste"]),
    ("posthaste-relay", &["posthaste", "posthaste-engine"]),
    ("posthaste-stores", &["posthaste", "posthaste-engine"]),
    ("posthaste-sinks", &["posthaste", "posthaste-engine"]),
    ("posthaste-testkit", &["posthaste", "posthaste-engine"]),
    ("posthaste-torture", &["posthaste", "posthaste-testkit"]),
    ("posthaste-model", &["posthaste-engine", "posthaste-stores"]),
    (
        "posthaste-simulation",
        &[
            "posthaste-engine",
            "posthaste-relay",
            "posthaste-stores",
            "posthaste-testkit",
        ],
    ),
    (
        "posthaste-cli",
        &[
            "posthaste",
            "posthaste-engine",
            "posthaste-relay",
            "posthaste-stores",
            "posthaste-sinks",
        ],
    ),
];

const FILE_LINES_MAX: usize = 500;

#[test]
fn every_dependency_has_a_licence_that_we_accept() {
    let refused: Vec<_> = packages()
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(acceptable))
        .map(|package| {
            format!(
                "{} {}: {}",
                package["name"], package["version"], package["license"]
            )
        })
        .collect();
    assert!(
        refused.is_empty(),
        "licences to look at:\n{}",
        refused.join("\n")
    );
}

#[test]
fn every_dependency_comes_from_crates_io_and_none_is_banned() {
    let lock: toml::Value = toml::from_str(&read(&root().join("Cargo.lock"))).unwrap();
    let locked = lock["package"].as_array().unwrap();
    assert!(locked.len() > 50, "Cargo.lock was not understood");
    for package in locked {
        let name = package["name"].as_str().unwrap();
        assert!(
            !BANNED.contains(&name),
            "{name} is back: see `cargo tree -i {name}`"
        );
        let source = package.get("source").and_then(toml::Value::as_str);
        let ours = source.is_none() && DIRECTION.iter().any(|(member, _)| *member == name);
        let crates_io = source == Some("registry+https://github.com/rust-lang/crates.io-index");
        assert!(ours || crates_io, "{name} comes from {source:?}");
    }
}

#[test]
fn the_default_build_brings_no_large_c_library() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "--offline", "--prefix", "none"]);
    command.args(["--package", "posthaste-cli", "--edges", "normal,build"]);
    let output = command.current_dir(root()).output().unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains(&"tokio"), "the tree was not understood");
    for name in NOT_BY_DEFAULT {
        assert!(!names.contains(name), "the default build has {name}");
    }
}

#[test]
fn members_depend_on_each_other_in_one_direction() {
    let packages = packages();
    let members: BTreeMap<_, _> = packages
        .iter()
        .filter(|package| package["source"].is_null())
        .map(|package| (package["name"].as_str().unwrap(), &package["dependencies"]))
        .collect();
    let known: BTreeMap<_, _> = DIRECTION.iter().copied().collect();
    assert!(
        members.keys().eq(known.keys()),
        "members: {:?}",
        members.keys()
    );
    for (member, dependencies) in members {
        for dependency in dependencies.as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if !known.contains_key(name) {
                continue;
            }
            if dependency["kind"] == "dev" {
                let plug_ins = ["posthaste-stores", "posthaste-sinks"].contains(&member);
                let runner = name == "posthaste-relay";
                assert!(
                    !(plug_ins && runner),
                    "{member} must not know {name}, nor in tests"
                );
            } else {
                assert!(
                    known[member].contains(&name),
                    "{member} must not depend on {name}"
                );
            }
            if ["posthaste-testkit", "posthaste-torture"].contains(&name) {
                // With a version, publishing would have a cycle.
                assert_eq!(dependency["req"], "*", "{member} names a version of {name}");
            }
        }
    }
}

#[test]
fn the_engine_can_read_no_clock_no_socket_and_no_dice() {
    let packages = packages();
    let engine = packages
        .iter()
        .find(|package| package["name"] == "posthaste-engine")
        .unwrap();
    for dependency in engine["dependencies"].as_array().unwrap() {
        let name = dependency["name"].as_str().unwrap();
        let dev = dependency["kind"] == "dev";
        assert!(
            dev || !["tokio", "rand", "getrandom"].contains(&name),
            "the engine has {name}"
        );
    }
    for file in sources("posthaste-engine") {
        let text = read(&file);
        for (number, line) in production_lines(&text) {
            let code = line.split("//").next().unwrap();
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let forbidden = words.find(|word| {
                ["tokio", "Instant", "SystemTime", "rand", "now_v7", "new_v4"].contains(word)
            });
            assert!(
                forbidden.is_none(),
                "{}:{number} names {forbidden:?}",
                file.display()
            );
        }
    }
}

#[test]
fn files_are_short_enough_to_be_read() {
    let mut too_long = Vec::new();
    for (member, _) in DIRECTION {
        for file in sources(member) {
            let lines = production_lines(&read(&file)).count();
            if lines > FILE_LINES_MAX {
                too_long.push(format!("{}: {lines} lines", file.display()));
            }
        }
    }
    assert!(
        too_long.is_empty(),
        "without tests, at most {FILE_LINES_MAX} lines:\n{}",
        too_long.join("\n")
    );
}

#[test]
fn nothing_is_left_to_do_in_silence() {
    // In two parts, so that this file does not find itself.
    let markers = [
        concat!("to", "do!"),
        concat!("unimplemen", "ted!"),
        concat!("db", "g!"),
    ];
    let files = files_below(&root(), "rs");
    assert!(files.len() > 20, "the sources were not found");
    for file in files {
        for (number, line) in read(&file).lines().enumerate() {
            let found = markers.iter().find(|marker| line.contains(*marker));
            assert!(
                found.is_none(),
                "{}:{}: {found:?}",
                file.display(),
                number + 1
            );
        }
    }
}

/// A corpus is looked for by the target's name alone: one under another name is never read.
#[test]
fn every_fuzz_target_has_its_corpus() {
    let mut targets = 0;
    let files = files_below(&root().join("crates"), "rs");
    for file in files.iter().filter(|file| file.ends_with("fuzz.rs")) {
        let folder = file.with_file_name("__fuzz__");
        let mut corpora: BTreeMap<String, usize> = BTreeMap::new();
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let name = name.rsplit("__").next().unwrap().to_owned();
            let inputs = fs::read_dir(entry.path().join("corpus")).into_iter();
            corpora.insert(name, inputs.flatten().count());
        }
        let text = read(file);
        for target in text.split("\nfn fuzz_").skip(1) {
            let (name, body) = target.split_once('(').unwrap();
            let body = body.split("\n}\n").next().unwrap();
            let inputs = corpora.remove(name);
            // Inputs of other types have no form that people could write down.
            let bytes = body.contains("|input: &[u8]|");
            let file = file.display();
            assert!(
                !bytes || inputs > Some(0),
                "{file}: no corpus of fuzz_{name}"
            );
            targets += 1;
        }
        assert!(
            corpora.is_empty(),
            "corpora of no target: {corpora:?} beside {}",
            file.display()
        );
    }
    assert!(targets > 10, "the targets were not found");
}

#[test]
fn every_document_has_one_title() {
    for file in files_below(&root(), "md") {
        let mut fenced = false;
        let text = read(&file);
        let titles = text.lines().filter(|line| {
            fenced ^= line.trim_start().starts_with("```");
            !fenced && line.starts_with("# ")
        });
        assert_eq!(titles.count(), 1, "titles in {}", file.display());
    }
}

#[test]
fn the_evidence_of_the_promises_exists() {
    let sources = files_below(&root().join("crates"), "rs");
    let sources: String = sources.iter().map(|file| read(file)).collect();
    let evidence = read(&root().join("docs/correctness.md"));
    // Every other piece between backticks is code.
    let named = evidence.split('`').skip(1).step_by(2).filter(|code| {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        code.contains('_') && code.chars().all(is_name)
    });
    let (known, gone): (Vec<_>, Vec<_>) =
        named.partition(|name| sources.contains(&format!("fn {name}(")));
    assert!(known.len() > 50, "the page was not understood");
    assert_eq!(gone, [""; 0], "named as evidence, and nowhere to be found");
}

#[test]
fn licence_expressions_are_understood() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        "Apache-2.0 AND ISC",
    ] {
        assert!(acceptable(good), "{good}");
    }
    for bad in [
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MPL-2.0",
        "",
        "(MIT OR ISC) AND EPL-2.0",
        "LGPL-2.1/EPL-2.0",
    ] {
        assert!(!acceptable(bad), "{bad}");
    }
}

#[test]
fn tests_at_the_foot_do_not_count_as_lines() {
    let text = "a\n#[cfg(test)]\nmod tests {\n    b\n}\nc\n#[cfg(test)]\nmod more;\nd\n";
    let lines: Vec<_> = production_lines(text).collect();
    assert_eq!(lines, [(1, "a"), (6, "c"), (9, "d")]);
}

/// Whether an SPDX expression, or the older form with a slash, can be met by [`LICENCES`] alone.
fn acceptable(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let accepted = any_of(&mut words);
    accepted && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words) -> bool {
    let mut accepted = all_of(words);
    while words.next_if_eq(&"OR").is_some() {
        accepted |= all_of(words);
    }
    accepted
}

fn all_of(words: &mut Words) -> bool {
    let mut accepted = licence(words);
    while words.next_if_eq(&"AND").is_some() {
        accepted &= licence(words);
    }
    accepted
}

fn licence(words: &mut Words) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let accepted = any_of(words);
        return words.next() == Some(")") && accepted;
    }
    let mut name = words.next().unwrap_or_default().to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", words.next().unwrap_or_default());
    }
    LICENCES.contains(&name.as_str())
}

/// All packages that this machine's build of everything uses, members included.
fn packages() -> Vec<Value> {
    match metadata()["packages"].take() {
        Value::Array(packages) if packages.len() > 50 => packages,
        other => panic!("cargo metadata was not understood: {other}"),
    }
}

fn metadata() -> Value {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    // Without the filter, cargo would download what only other systems use.
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--all-features",
            "--locked",
            "--filter-platform",
        ])
        .arg(host)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// `tests.rs`, or a folder of what it includes.
fn is_tests(name: &OsStr) -> bool {
    name == "tests.rs" || name == "tests"
}

/// A member's source files, without those that hold tests alone.
fn sources(member: &str) -> Vec<PathBuf> {
    let mut files = files_below(&root().join("crates").join(member).join("src"), "rs");
    files.retain(|file| file.components().all(|part| !is_tests(part.as_os_str())));
    assert!(!files.is_empty(), "no sources of {member}");
    files
}

/// Lines with their numbers, without the items marked `#[cfg(test)]` at the left margin: rustfmt
/// puts the closing brace of such an item there too.
fn production_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_tests = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        in_tests |= *line == "#[cfg(test)]";
        let skipped = in_tests;
        let item_ends = line.starts_with('}') || (!line.starts_with(' ') && line.ends_with(';'));
        in_tests &= !item_ends;
        !skipped
    })
}

/// All files with an extension, away from hidden folders and what builds produce.
fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "node_modules"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
