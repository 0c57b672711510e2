//! The artefacts, made once for all tests of this process.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use posthaste_testkit::process::{Finished, run};
use tempfile::TempDir;

/// Above all that a busy machine needs, downloads included: only what hangs meets it.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A folder of artefacts.
pub(crate) struct Made {
    folder: PathBuf,
    _temporary: Option<TempDir>,
}

impl Made {
    /// The artefact with this beginning and this end of its name.
    pub(crate) fn artefact(&self, start: &str, end: &str) -> PathBuf {
        let names = self.names();
        let mut found = names
            .iter()
            .filter(|name| name.starts_with(start) && name.ends_with(end));
        let (Some(name), None) = (found.next(), found.next()) else {
            panic!("not one {start}…{end} in {names:?}");
        };
        self.folder.join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap();
        let name = |entry: Result<fs::DirEntry, _>| entry.unwrap().file_name().into_string();
        let mut names: Vec<_> = entries.map(|entry| name(entry).unwrap()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

pub(crate) fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        if let Some(folder) = env::var_os("POSTHASTE_TEST_RELEASE") {
            let folder = root().join(folder);
            return Made {
                folder,
                _temporary: None,
            };
        }
        let temporary = tempfile::tempdir().unwrap();
        release(temporary.path()).expect_status(0);
        Made {
            folder: temporary.path().to_owned(),
            _temporary: Some(temporary),
        }
    })
}

/// `./release` with the binary under test.
pub(crate) fn release(out: &Path) -> Finished {
    let mut command = Command::new(root().join("release"));
    command.arg("--unportable").arg("--out").arg(out);
    command.arg("--binary").arg(env!("CARGO_BIN_EXE_posthaste"));
    run(&mut command, LIMIT)
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// Runs a program to its end, which has to be a good one.
pub(crate) fn done(command: &mut Command) -> Finished {
    run(command, LIMIT).expect_status(0)
}

/// A program that has to be installed.
pub(crate) fn program(name: &str, package: &str) -> Command {
    let found = env::split_paths(&env::var_os("PATH").unwrap())
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|path| path.exists());
    let path = found.unwrap_or_else(|| panic!("no `{name}`: apt-get install {package}"));
    Command::new(path)
}
