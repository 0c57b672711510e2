//! The programs that the pages' commands find in the `PATH`, and the Python that runs the examples.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use posthaste_testkit::{cache::cached_dir, process, servers::postgres::PostgresServer};

use crate::page::root;

/// Far more than any step takes on a busy machine, downloads included: only what hangs meets it.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A `PATH` with the binary under test, PostgreSQL's client programs, and a folder for more.
pub(crate) fn path(more: &Path) -> String {
    let binaries = Path::new(env!("CARGO_BIN_EXE_posthaste")).parent().unwrap();
    format!(
        "{}:{}:{}:{}",
        more.display(),
        binaries.display(),
        PostgresServer::client_programs().display(),
        std::env::var("PATH").unwrap()
    )
}

/// A folder that looks like the root of a checkout in which the examples' packages are installed.
pub(crate) fn checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(root().join("docs"), folder.path().join("docs")).unwrap();
    symlink(python_environment(), folder.path().join(".venv")).unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    folder
}

/// The packages that the pages install, once, named by their versions.
fn python_environment() -> PathBuf {
    let requirements = root().join("docs/examples/python/requirements-consumers.txt");
    let versions: String = fs::read_to_string(&requirements)
        .unwrap()
        .replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    cached_dir(&format!("example-{versions}"), |folder| {
        let mut venv = Command::new("python3");
        process::run(venv.args(["-m", "venv"]).arg(folder), LIMIT).expect_status(0);
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "-r"]);
        process::run(pip.arg(requirements), LIMIT).expect_status(0);
    })
}

/// Puts Kafka's own tools into a folder: as in a distribution, each script is the class's name.
#[cfg(feature = "kafka")]
pub(crate) fn install_kafka_tools(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let jars = posthaste_testkit::servers::kafka::KafkaServer::jars();
    for (script, class) in [
        ("kafka-topics.sh", "TopicCommand"),
        ("kafka-console-consumer.sh", "consumer.ConsoleConsumer"),
    ] {
        let text = format!(
            "#!/bin/sh\nexec java -cp '{}/*' org.apache.kafka.tools.{class} \"$@\"\n",
            jars.display()
        );
        let script = folder.join(script);
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
