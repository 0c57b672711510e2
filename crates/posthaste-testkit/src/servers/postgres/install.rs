//! Where PostgreSQL's programs come from, and the initialised cluster that every server copies.

use crate::account::Account;
use crate::cache::{cache_dir, cached_dir};
use crate::servers::run::{copy_all, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version whose client programs (`psql`, `pg_basebackup`) serve all others.
pub(super) const PACKAGED: u16 = 15;

/// Where packages put the programs of [`PACKAGED`]: Debian, Red Hat, Homebrew.
const PACKAGED_FOLDERS: [&str; 4] = [
    "/usr/lib/postgresql/15/bin",
    "/usr/pgsql-15/bin",
    "/opt/homebrew/opt/postgresql@15/bin",
    "/usr/local/opt/postgresql@15/bin",
];

/// The user that the package makes and that servers run as when the tests run as root.
pub(super) fn account() -> Account {
    Account::unless_root("postgres")
}

/// The folder of the packaged version's programs, client programs among them.
pub(super) fn packaged_bin() -> PathBuf {
    PACKAGED_FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|bin| bin.join("postgres").exists())
        .unwrap_or_else(|| {
            panic!(
                "PostgreSQL {PACKAGED} is not installed (looked in {PACKAGED_FOLDERS:?}); \
                 ./test installs it, or by hand: apt-get install postgresql-{PACKAGED}"
            )
        })
}

/// Programs of one version, runnable by the account that servers use.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) bin: PathBuf,
}

impl Programs {
    /// Finds them; `staging` is an existing folder of the server that may take a copy.
    pub(super) fn find(version: u16, staging: &Path) -> Self {
        if version == PACKAGED {
            return Self {
                bin: packaged_bin(),
            };
        }
        let unpacked = cache_dir().join(format!("postgres-{version}"));
        assert!(
            unpacked.join("bin/postgres").exists(),
            "PostgreSQL {version} is not in {}; this downloads it: ./test --install",
            unpacked.display()
        );
        if !account().is_another_user() {
            return Self {
                bin: unpacked.join("bin"),
            };
        }
        // The cache is usually below root's home, which the server's user may not enter.
        let copy = staging.join("programs");
        if !copy.exists() {
            copy_all(&unpacked, &copy);
        }
        Self {
            bin: copy.join("bin"),
        }
    }

    /// A command for one of the programs, run as the servers' user.
    pub(super) fn command(&self, program: &str) -> Command {
        account().command(&self.bin.join(program))
    }

    /// Fills `data`, which must not exist, with a fresh cluster: superuser `postgres`, trust on
    /// loopback, UTF-8, locale C.
    pub(super) fn new_cluster(&self, data: &Path, scratch: &Path) {
        let version = run(self.command("postgres").arg("--version"));
        let version = version
            .split_whitespace()
            .nth(2)
            .expect("a version number")
            .to_owned();
        // Copying takes a tenth of the time of `initdb`.
        let template = cached_dir(&format!("cluster-{version}"), |unfinished| {
            let fresh = scratch.join("initdb");
            run(self.command("initdb").arg("-D").arg(&fresh).args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ]));
            copy_all(&fresh, unfinished);
            std::fs::remove_dir_all(&fresh).expect("remove the first copy");
        });
        copy_all(&template, data);
    }
}
