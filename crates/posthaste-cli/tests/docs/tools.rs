//! The programs that the pages' commands find in the `PATH`, and the Python that runs the examples.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use posthaste_testkit::{packages, servers::postgres::PostgresServer};

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
    let requirements = root().join("docs/examples/python/requirements-consumers.txt");
    let python = packages::python(&requirements);
    let environment = python.ancestors().nth(2).unwrap();
    symlink(environment, folder.path().join(".venv")).unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    folder
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
