//! Where the programs of MySQL and MariaDB come from, and the initialised data that servers copy.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ADMIN, Version};
use crate::account::Account;
use crate::cache::{cache_dir, cached_dir};
use crate::servers::daemon::Daemon;
use crate::servers::run::{copy_all, run};

/// The distribution's MariaDB.
const PACKAGED: &str = "/usr/sbin/mariadbd";
const PACKAGED_INSTALL: &str = "/usr/bin/mariadb-install-db";
const CLIENT: &str = "/usr/bin/mariadb";

/// The user that servers run as when the tests run as root: the package that makes one of their own
/// starts a service.
pub(super) fn account() -> Account {
    Account::unless_root("nobody")
}

/// MariaDB's client, which speaks to all servers.
pub(super) fn client_program() -> PathBuf {
    packaged(CLIENT, "mariadb-client-core")
}

/// Programs of one version, runnable by the account that servers use.
#[derive(Debug)]
pub(super) struct Programs {
    version: Version,
    /// None: the distribution's.
    base: Option<PathBuf>,
}

impl Programs {
    /// Finds them, and makes them readable by way of the server's folder.
    pub(super) fn stage(version: Version, daemon: &Daemon) -> Self {
        let base = match version {
            Version::MySql8 => cached("mysql-8.0.15", "bin/mysqld"),
            Version::MariaDb11 => cached("mariadb-11.4.5", "bin/mariadbd"),
            Version::MariaDb10 => {
                let said = run(Command::new(packaged(PACKAGED, "mariadb-server-core"))
                    .args(["--no-defaults", "--version"]));
                assert!(said.contains("10.11."), "not MariaDB 10.11: {said}");
                let plugins = cached("mariadb-10.11-plugins", "metadata_lock_info.so");
                copy_all(&plugins, &daemon.folder().join("plugins"));
                return Self {
                    version,
                    base: None,
                };
            }
        };
        if !account().is_another_user() {
            return Self {
                version,
                base: Some(base),
            };
        }
        // The cache is usually below root's home, which the server's user may not enter.
        let staged = daemon.folder().join("programs");
        // Links save the copying, but cannot leave their file system.
        let linked = Command::new("cp")
            .arg("-al")
            .args([&base, &staged])
            .output();
        if !linked.is_ok_and(|linked| linked.status.success()) {
            if staged.exists() {
                std::fs::remove_dir_all(&staged).expect("remove what a failed `cp -al` left");
            }
            copy_all(&base, &staged);
        }
        Self {
            version,
            base: Some(staged),
        }
    }

    /// The server, with what all servers are started with; for [`Daemon::launch`].
    pub(super) fn server(&self, daemon: &Daemon) -> Command {
        let mut command = match &self.base {
            None => daemon.command(Path::new(PACKAGED)),
            Some(base) if self.version.is_mariadb() => daemon.command(&base.join("bin/mariadbd")),
            Some(base) => daemon.command(&base.join("bin/mysqld")),
        };
        command.arg("--no-defaults");
        self.add_folders(&mut command, &daemon.folder().join("data"));
        // Accounts are told apart by address: a machine need not know its own name.
        command.arg("--skip-name-resolve");
        command.args([
            "--innodb-buffer-pool-size=32M",
            "--innodb-use-native-aio=OFF",
        ]);
        if self.base.is_none() {
            let plugins = daemon.folder().join("plugins");
            command.arg(format!("--plugin-dir={}", plugins.display()));
        }
        if self.version == Version::MariaDb11 {
            // It would make a certificate at each start, with a key that takes seconds.
            command.arg("--ssl=OFF");
        }
        if !self.version.is_mariadb() {
            // A second port, which all servers of the machine would ask for.
            command.arg("--mysqlx=OFF");
        }
        command
    }

    /// Fills the folder `data` of a server: an administrator without password, and nothing else.
    pub(super) fn new_data(&self, daemon: &Daemon) {
        let name = match self.version {
            Version::MySql8 => "mysql-data-8.0.15",
            Version::MariaDb10 => "mariadb-data-10.11",
            Version::MariaDb11 => "mariadb-data-11.4.5",
        };
        // Copying saves the seconds that the first start takes.
        let template = cached_dir(name, |unfinished| {
            let fresh = daemon.folder().join("fresh");
            self.initialise(daemon, &fresh);
            copy_all(&fresh, unfinished);
            std::fs::remove_dir_all(&fresh).expect("remove the first copy");
        });
        copy_all(&template, &daemon.folder().join("data"));
    }

    /// MariaDB makes the administrator of this address itself.
    fn initialise(&self, daemon: &Daemon, data: &Path) {
        let mut command = match &self.base {
            None => account().command(&packaged(PACKAGED_INSTALL, "mariadb-server-core")),
            Some(base) if self.version.is_mariadb() => {
                account().command(&base.join("scripts/mariadb-install-db"))
            }
            Some(base) => account().command(&base.join("bin/mysqld")),
        };
        command.arg("--no-defaults");
        self.add_folders(&mut command, data);
        if self.version.is_mariadb() {
            run(command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]));
            return;
        }
        let first = format!(
            "create user {ADMIN}@'127.0.0.1';\n\
             grant all privileges on *.* to {ADMIN}@'127.0.0.1' with grant option;\n"
        );
        let first = daemon.write("first.sql", &first);
        command.arg("--initialize-insecure");
        run(command.arg(format!("--init-file={}", first.display())));
        // Each server makes an identity of its own.
        std::fs::remove_file(data.join("auto.cnf")).expect("remove the server's identity");
    }

    fn add_folders(&self, command: &mut Command, data: &Path) {
        command.arg(format!("--datadir={}", data.display()));
        if let Some(base) = &self.base {
            command.arg(format!("--basedir={}", base.display()));
        }
    }
}

fn packaged(program: &str, package: &str) -> PathBuf {
    assert!(
        Path::new(program).exists(),
        "MariaDB 10.11 is not installed (no {program}); ./test installs it, or by hand: \
         apt-get install {package}"
    );
    program.into()
}

fn cached(folder: &str, program: &str) -> PathBuf {
    let cached = cache_dir().join(folder);
    assert!(
        cached.join(program).exists(),
        "{folder} is not in {}; this downloads it: ./test --install",
        cached.display()
    );
    cached
}
