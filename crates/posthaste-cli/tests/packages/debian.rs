//! The Debian package: dpkg itself installs, removes and purges it, in a tree of its own.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    installed::{Installed, read},
    made::{done, made, program, root},
};

fn package() -> PathBuf {
    made().artefact("posthaste_", ".deb")
}

/// Only its files.
fn unpack(folder: &Path) {
    let mut unpack = program("dpkg-deb", "dpkg");
    done(unpack.arg("--extract").arg(package()).arg(folder));
}

pub(crate) fn installed(folder: TempDir) -> Installed {
    unpack(folder.path());
    Installed::new(folder, &["./usr/bin/posthaste"], "/usr/bin:/bin")
}

/// A tree with an empty database of packages. The scripts of the package run outside of it, as dpkg
/// does it for the making of images: they are told the tree in `DPKG_ROOT`.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        for folder in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "etc/systemd/system",
        ] {
            fs::create_dir_all(tree.path().join(folder)).unwrap();
        }
        for file in ["status", "available"] {
            fs::write(tree.path().join("var/lib/dpkg").join(file), "").unwrap();
        }
        Self(tree)
    }

    fn dpkg(&self, act: &str, what: &Path) {
        let mut dpkg = program("dpkg", "dpkg");
        dpkg.arg(format!("--root={}", self.0.path().display()));
        // The tree has no C library: it is no system.
        dpkg.args([
            "--force-script-chrootless",
            "--force-not-root",
            "--force-depends",
        ]);
        dpkg.arg("--log=/dev/null").arg(act).arg(what);
        dpkg.env(
            "PATH",
            "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin",
        );
        done(&mut dpkg);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The names of all files, without those of dpkg itself.
    fn files(&self) -> Vec<String> {
        let mut find = Command::new("find");
        find.current_dir(self.0.path())
            .args([".", "-path", "./var/lib/dpkg", "-prune", "-o"]);
        let found = done(find.args(["!", "-type", "d", "-print"]));
        found.stdout.lines().map(str::to_owned).collect()
    }
}

const CONFIGURATION: &str = "etc/posthaste/posthaste.toml";

#[test]
fn a_removal_keeps_the_configuration_and_a_purge_takes_it() {
    let tree = Tree::new();
    tree.dpkg("--install", &package());
    for name in [
        "usr/bin/posthaste",
        "usr/share/man/man1/posthaste.1.gz",
        CONFIGURATION,
    ] {
        assert!(tree.path(name).exists(), "{name}: {:?}", tree.files());
    }
    let mode = fs::metadata(tree.path(CONFIGURATION))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "others may read passwords");
    let wants = tree.path("etc/systemd/system/multi-user.target.wants");
    assert!(!wants.exists(), "enabled although nobody has configured it");

    fs::write(tree.path(CONFIGURATION), "# mine\n").unwrap();
    tree.dpkg("--remove", Path::new("posthaste"));
    assert_eq!(read(&tree.path(CONFIGURATION)), "# mine\n");
    let mut left = tree.files();
    // It remembers whether the service was enabled.
    left.retain(|name| !name.starts_with("./var/lib/systemd/deb-systemd-helper-enabled/"));
    assert_eq!(left, [format!("./{CONFIGURATION}")]);

    tree.dpkg("--install", &package());
    assert_eq!(read(&tree.path(CONFIGURATION)), "# mine\n");
    tree.dpkg("--purge", Path::new("posthaste"));
    assert_eq!(tree.files(), [""; 0]);
    assert!(!tree.path("etc/posthaste").exists());
}

#[test]
fn systemd_takes_the_units() {
    let folder = tempfile::tempdir().unwrap();
    unpack(folder.path());
    let units = folder.path().join("lib/systemd/system");
    for (file, name) in [
        ("posthaste.service", "posthaste.service"),
        ("posthaste@.service", "posthaste@other.service"),
    ] {
        // The program that it starts has to exist where the check runs.
        let unit = read(&units.join(file));
        assert!(unit.contains("ExecStart=/usr/bin/posthaste "), "{unit}");
        let there = folder.path().join("usr/bin/posthaste");
        let unit = unit.replace("/usr/bin/posthaste", there.to_str().unwrap());
        let place = folder.path().join("verified");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(name), unit).unwrap();
        let mut verify = program("systemd-analyze", "systemd");
        verify.args(["verify", "--man=no", "--recursive-errors=no"]);
        let verified = done(verify.arg(place.join(name)));
        assert_eq!(verified.stderr.trim(), "", "{verified}");
    }
}

/// A relay is down for good only if somebody stops it: what ends it with status 2, such as an older
/// schema after an upgrade, is mended elsewhere.
#[test]
fn systemd_starts_a_relay_again_after_every_failure() {
    let unit = read(&root().join("packaging/debian/posthaste.service"));
    let settings: Vec<_> = unit
        .lines()
        .filter(|line| line.starts_with("Restart") || line.starts_with("StartLimit"))
        .collect();
    let expected = [
        "StartLimitIntervalSec=0",
        "Restart=on-failure",
        "RestartSec=5s",
    ];
    assert_eq!(settings, expected);
}

/// The waits of the unit are above those of the relay, as its example states them.
#[test]
fn systemd_waits_for_a_planned_stop() {
    let unit = read(&root().join("packaging/debian/posthaste.service"));
    let example = read(&root().join("crates/posthaste-cli/posthaste.example.toml"));
    let seconds = |text: &str, name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    let stop = seconds(&unit, "TimeoutStopSec=");
    assert!(stop > seconds(&example, "shutdown_timeout"), "{stop}");
}
