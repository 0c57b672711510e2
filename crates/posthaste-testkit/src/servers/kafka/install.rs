//! Where Kafka's jars come from, and the formatted data folder that every broker copies.

use super::properties;
use crate::account::Account;
use crate::cache::{cache_dir, cached_dir};
use crate::servers::daemon::{Daemon, link_or_copy};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const VERSION: &str = "4.1.0";

/// The name of an archive of classes.
pub(super) const CLASSES: &str = "classes.jsa";

/// The user that brokers run as when the tests run as root: Kafka needs none of its own.
pub(super) fn account() -> Account {
    Account::unless_root("nobody")
}

/// Kafka's jars in the cache.
pub(super) fn cached_jars() -> PathBuf {
    let cached = cache_dir().join(format!("kafka-{VERSION}"));
    assert!(
        cached.join(format!("kafka_2.13-{VERSION}.jar")).exists(),
        "Apache Kafka {VERSION} is not in {}; this downloads it: ./test --install",
        cached.display()
    );
    cached
}

/// Kafka's jars in the broker's folder, which the broker's user may enter: the cache is usually
/// below root's home.
#[derive(Debug)]
pub(super) struct Programs {
    /// The jars by paths relative to the folder, in one order: as an archive of classes knows them.
    class_path: String,
    /// Whether the archive of classes is there too.
    has_classes: bool,
    /// Java compiles for speed. A broker of a test is gone before that pays: without, it takes half
    /// the processor time until it serves.
    for_speed: bool,
}

impl Programs {
    /// Finds the jars in the cache.
    pub(super) fn stage(daemon: &Daemon, for_speed: bool) -> Self {
        let staged = daemon.make_folder("jars");
        let mut jars = Vec::new();
        for jar in fs::read_dir(cached_jars()).expect("read the cache") {
            let jar = jar.expect("read the cache");
            link_or_copy(&jar.path(), &staged.join(jar.file_name()));
            jars.push(format!("jars/{}", jar.file_name().display()));
        }
        jars.sort_unstable();
        Self {
            class_path: jars.join(":"),
            has_classes: false,
            for_speed,
        }
    }

    /// Brokers map this archive of classes.
    pub(super) fn with_classes(self, archive: &Path, daemon: &Daemon) -> Self {
        link_or_copy(archive, &daemon.folder().join(CLASSES));
        Self {
            has_classes: true,
            ..self
        }
    }

    /// Java with Kafka's classes, to be given a main class; for [`Daemon::launch`].
    pub(super) fn java(&self, daemon: &Daemon) -> Command {
        let mut command = daemon.command(Path::new("java"));
        self.add_options(&mut command);
        command
    }

    /// A data folder of a cluster of its own, with the SCRAM users of [`properties::SASL_USERS`].
    pub(super) fn formatted_data(&self, daemon: &Daemon) -> PathBuf {
        // Copying saves the second and more that formatting takes.
        let template = cached_dir(&format!("kafka-formatted-{VERSION}"), |unfinished| {
            let config = daemon.write("format.properties", &properties::for_format(unfinished));
            let mut command = Command::new("java");
            command.current_dir(daemon.folder());
            self.add_options(&mut command);
            command.args(["kafka.tools.StorageTool", "format", "--config"]);
            command.arg(config).args(["--cluster-id", &uuid()]);
            for user in properties::scram_users() {
                command.args(["--add-scram", &user]);
            }
            let output = command
                .output()
                .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
            assert!(
                output.status.success(),
                "{command:?} failed, {}\n{}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        });
        let data = daemon.make_folder("data");
        let meta = fs::read_to_string(template.join("meta.properties")).expect("the template");
        write_meta(daemon, &meta, &[("cluster.id", &uuid())]);
        let checkpoint = data.join("bootstrap.checkpoint");
        fs::copy(template.join("bootstrap.checkpoint"), &checkpoint).expect("copy the template");
        account().take_over(&checkpoint);
        data
    }

    /// A data folder for one more broker of the cluster whose first node lives in `first`.
    pub(super) fn joining_data(&self, daemon: &Daemon, first: &Daemon, node: u32) -> PathBuf {
        let data = daemon.make_folder("data");
        let meta = first.folder().join("data/meta.properties");
        let meta = fs::read_to_string(meta).expect("the first node's data");
        let (node, directory) = (node.to_string(), uuid());
        let changes = [("node.id", &*node), ("directory.id", &*directory)];
        write_meta(daemon, &meta, &changes);
        data
    }

    fn add_options(&self, command: &mut Command) {
        if !self.for_speed {
            command.arg("-XX:TieredStopAtLevel=1");
        }
        if self.has_classes {
            command.arg(format!("-XX:SharedArchiveFile={}", CLASSES));
        }
        command
            .args([
                "-Xmx512m",
                "-XX:+UseSerialGC",
                // Its file would lie outside the broker's folder and outlive a kill.
                "-XX:-UsePerfData",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
                // Hundreds of lines with every setting there is.
                "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
            ])
            .args(["-cp", &self.class_path]);
    }
}

/// Writes `meta.properties` with other values for these names.
fn write_meta(daemon: &Daemon, meta: &str, changes: &[(&str, &str)]) {
    let lines = meta.lines().map(|line| {
        let name = line.split('=').next().unwrap_or(line);
        match changes.iter().find(|(changed, _)| *changed == name) {
            Some((name, value)) => format!("{name}={value}\n"),
            None => format!("{line}\n"),
        }
    });
    daemon.write("data/meta.properties", &lines.collect::<String>());
}

/// A UUID as Kafka writes it: 22 characters.
fn uuid() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(uuid::Uuid::new_v4().as_bytes())
}
