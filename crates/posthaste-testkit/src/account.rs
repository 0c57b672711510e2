//! The user that servers run as: PostgreSQL and others refuse to run as root.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An unprivileged user for servers, or nobody special when the tests themselves are unprivileged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account(Option<(u32, u32)>);

impl Account {
    /// The named user when the tests run as root, otherwise the user of the tests.
    pub(crate) fn unless_root(name: &str) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self(None);
        }
        let id = |flag: &str| -> u32 {
            let output = Command::new("id")
                .args([flag, name])
                .output()
                .expect("run `id`");
            let text = String::from_utf8_lossy(&output.stdout);
            text.trim().parse().unwrap_or_else(|_| {
                panic!("user `{name}` does not exist: run ./test, which installs the servers")
            })
        };
        Self(Some((id("-u"), id("-g"))))
    }

    /// The user of the tests, for a server that may run as anybody.
    pub(crate) fn of_the_tests() -> Self {
        Self(None)
    }

    /// Whether a server runs as somebody else than the tests.
    pub(crate) fn is_another_user(self) -> bool {
        self.0.is_some()
    }

    /// A command that runs as this user, away from the current folder, which it may not enter.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").env("LC_ALL", "C");
        if let Some((uid, gid)) = self.0 {
            // `uid` alone also drops root's supplementary groups.
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Gives a file or folder to this user.
    pub(crate) fn take_over(self, path: &Path) {
        if let Some((uid, gid)) = self.0 {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("chown for a server");
        }
    }
}
