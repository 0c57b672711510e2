//! All artefacts: their names, sums and versions, and that they come out the same again.

use std::{fs, process::Command};

use serde_json::Value;

use crate::{
    installed::read,
    made::{VERSION, done, made, release, root},
};

#[test]
fn every_file_is_in_the_sums_and_has_the_version_in_its_name() {
    let made = made();
    let sums = read(&made.folder().join("SHA256SUMS"));
    let mut check = Command::new("sha256sum");
    done(
        check
            .args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(made.folder()),
    );
    let (mut listed, mut missing) = (0, Vec::new());
    for name in made.names() {
        let is_file = made.folder().join(&name).is_file();
        if !is_file || name == "SHA256SUMS" {
            continue;
        }
        if !sums
            .lines()
            .any(|line| line.ends_with(&format!("  {name}")))
        {
            missing.push(name.clone());
        }
        assert!(name.contains(VERSION) || name == "CHANGES.md", "{name}");
        listed += 1;
    }
    assert_eq!(missing, [""; 0]);
    assert!(listed >= 8, "{:?}", made.names());
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The names by which `cargo binstall` looks for the archive.
#[test]
fn binstall_finds_the_archive() {
    let manifest = read(&root().join("crates/posthaste-cli/Cargo.toml"));
    let manifest: toml::Value = toml::from_str(&manifest).unwrap();
    let binstall = &manifest["package"]["metadata"]["binstall"];
    let filled = |name: &str| {
        let text = binstall[name].as_str().unwrap();
        [
            ("{ version }", VERSION),
            ("{ target }", &target()),
            ("{ bin }", "posthaste"),
            ("{ binary-ext }", ""),
            ("{ archive-suffix }", ".tar.gz"),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
    };
    assert_eq!(binstall["pkg-fmt"].as_str(), Some("tgz"));
    let url = filled("pkg-url");
    let archive = made().folder().join(url.rsplit('/').next().unwrap());
    let files = done(Command::new("tar").arg("-tzf").arg(&archive)).stdout;
    let program = filled("bin-dir");
    assert!(
        files.lines().any(|name| name == program),
        "{program} in {files}"
    );
    let stem = archive
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .trim_end_matches(".tar.gz");
    for name in [
        "README.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "THIRD-PARTY-NOTICES",
        "man/posthaste.1",
        "man/posthaste-relay.1",
        "completions/posthaste.bash",
        "completions/_posthaste",
        "completions/posthaste.fish",
        "systemd/posthaste.service",
        "systemd/posthaste@.service",
    ] {
        let name = format!("{stem}/{name}");
        assert!(files.lines().any(|file| file == name), "{name} in {files}");
    }
}

#[test]
fn the_components_name_the_c_libraries_too() {
    let path = made().artefact("posthaste-", ".cdx.json");
    let components: Value = serde_json::from_str(&read(&path)).unwrap();
    let names: Vec<_> = components["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| component["name"].as_str().unwrap())
        .collect();
    for name in [
        "tokio",
        "rustls",
        "rdkafka-sys",
        "librdkafka",
        "openssl",
        "zstd",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    for name in [
        "proptest",
        "windows-sys",
        "posthaste-testkit",
        "posthaste-cli",
    ] {
        assert!(!names.contains(&name), "{name} is not in the binary");
    }
}

/// Archives have no time but the commit's, and no order but that of names.
#[test]
fn the_same_binary_makes_the_same_artefacts() {
    if std::env::var_os("POSTHASTE_TEST_RELEASE").is_some() {
        // Those are of another binary.
        return;
    }
    let again = tempfile::tempdir().unwrap();
    release(again.path()).expect_status(0);
    let sums = |folder: &std::path::Path| read(&folder.join("SHA256SUMS"));
    assert_eq!(sums(made().folder()), sums(again.path()));
}

/// A folder of downloads may have sums of its own.
#[test]
fn a_folder_with_other_files_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (sums, other) = (
        folder.path().join("SHA256SUMS"),
        folder.path().join("other"),
    );
    fs::write(&sums, "abc  other\n").unwrap();
    fs::write(&other, "x").unwrap();
    let refused = release(folder.path()).expect_status(1);
    assert!(
        refused.stderr.contains("is not empty"),
        "{}",
        refused.stderr
    );
    let refused = release(&other).expect_status(1);
    assert!(
        refused.stderr.contains("is no folder"),
        "{}",
        refused.stderr
    );
    assert_eq!(
        (read(&sums), read(&other)),
        ("abc  other\n".into(), "x".into())
    );
}

#[test]
fn the_changes_are_those_of_the_version() {
    let changes = fs::read_to_string(made().folder().join("CHANGES.md")).unwrap();
    assert!(
        changes.starts_with(&format!("# Posthaste {VERSION}\n")),
        "{changes}"
    );
    assert!(changes.contains("### Added"), "{changes}");
    assert_eq!(changes.matches("\n## ").count(), 0, "{changes}");
}

/// Neither of its candidates, nor of a version whose number begins with the same digits.
#[test]
fn a_release_has_the_changes_of_its_own_section() {
    let titles = ["0.2.0-rc.1", "0.2.01", "[0.2.0] - 2030-01-31", "0.1.0"];
    let changelog: String = titles
        .map(|title| format!("## {title}\n\nOf {title}.\n"))
        .concat();
    let ask = "import runpy, sys; print(*runpy.run_path('release')['changes'](*sys.argv[1:]))";
    for (version, of) in [
        ("0.2.0-rc.1", "0.2.0-rc.1"),
        ("0.2.0", "[0.2.0] - 2030-01-31"),
    ] {
        let mut python = Command::new("python3");
        python.args(["-c", ask, version, &changelog]);
        let asked = done(python.current_dir(root())).stdout;
        let expected = format!("# Posthaste {version}\n\nOf {of}.\n {version}\n");
        assert_eq!(asked, expected);
    }
}
