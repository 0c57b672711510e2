//! Packages of programs in other languages, installed by each language's own client into the cache,
//! once for each manifest.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{cache::cached_dir, process::run};

/// Far more than a download takes: only what hangs meets it.
const LIMIT: Duration = Duration::from_secs(300);

/// The interpreter of an environment with what a `requirements.txt` names.
///
/// # Panics
/// When the packages cannot be installed, as all functions here.
#[must_use]
pub fn python(requirements: &Path) -> PathBuf {
    let environment = installed("python", requirements, |folder| {
        let mut venv = Command::new("python3");
        run(venv.args(["-m", "venv"]).arg(folder), LIMIT).expect_status(0);
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "-r"]);
        run(pip.arg(requirements), LIMIT).expect_status(0);
    });
    environment.join("bin/python")
}

/// The folder `node_modules` with what a `package.json` names.
#[must_use]
pub fn node(package: &Path) -> PathBuf {
    let project = installed("node", package, |folder| {
        fs::create_dir_all(folder).unwrap();
        fs::copy(package, folder.join("package.json")).unwrap();
        let mut npm = Command::new("npm");
        npm.current_dir(folder)
            .args(["install", "--no-audit", "--no-fund", "--silent"]);
        run(&mut npm, LIMIT).expect_status(0);
    });
    project.join("node_modules")
}

/// A folder with the jars that a `pom.xml` names, and theirs.
#[must_use]
pub fn java(pom: &Path) -> PathBuf {
    installed("java", pom, |folder| {
        let mut maven = Command::new("mvn");
        maven
            .args(["-q", "-B", "dependency:copy-dependencies"])
            .args(["-DincludeScope=runtime", "-f"])
            .arg(pom)
            .arg(format!("-DoutputDirectory={}", folder.display()));
        run(&mut maven, LIMIT).expect_status(0);
    })
}

/// A folder with the `go.mod` of a module and the `go.sum` of what it names, all downloaded.
#[must_use]
pub fn go(module: &Path) -> PathBuf {
    installed("go", &module.join("go.mod"), |folder| {
        fs::create_dir_all(folder).unwrap();
        for file in fs::read_dir(module).unwrap().map(|entry| entry.unwrap()) {
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        let mut tidy = Command::new("go");
        tidy.args(["mod", "tidy"]).current_dir(folder);
        run(&mut tidy, LIMIT).expect_status(0);
    })
}

/// Named by what the manifest says: a changed one is installed anew.
fn installed(language: &str, manifest: &Path, install: impl FnOnce(&Path)) -> PathBuf {
    let text = fs::read_to_string(manifest).unwrap();
    let name = format!("{language}-{}-{:04x}", text.len(), posthaste::slot(&text));
    cached_dir(&format!("packages-{name}"), install)
}
