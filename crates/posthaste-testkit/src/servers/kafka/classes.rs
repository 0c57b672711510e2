//! The classes that a broker loads, in an archive that the next ones map: Java then takes half the
//! processor time until a broker serves.

use std::fs;
use std::path::PathBuf;

use super::install::{self, CLASSES, Programs, VERSION};
use super::properties::{self, Ports};
use super::{Daemon, READY, Ways};
use crate::cache::cached_dir;

/// Kafka's programs with the archive.
pub(super) fn programs(daemon: &Daemon, for_speed: bool) -> Programs {
    Programs::stage(daemon, for_speed).with_classes(&archive(), daemon)
}

/// The archive in the cache, written by a broker that starts for it. Another Java than the one that
/// wrote it, or jars with other times or paths, make Java start without it.
fn archive() -> PathBuf {
    let folder = cached_dir(&format!("kafka-classes-{VERSION}"), |unfinished| {
        let daemon = Daemon::new("Kafka", install::account());
        let programs = Programs::stage(&daemon, false);
        let ports = Ports::reserve(false, 0);
        let data = programs.formatted_data(&daemon);
        let lines = properties::base(&ports, ports.client.number(), &Ways::to([]), &data);
        let config = daemon.write("server.properties", &lines);
        let archive = daemon.make_folder("classes").join(CLASSES);
        let mut command = programs.java(&daemon);
        command.arg(format!("-XX:ArchiveClassesAtExit={}", archive.display()));
        command.arg("kafka.Kafka").arg(config);
        daemon.launch(command, |log| log.contains(READY));
        daemon.stop();
        fs::create_dir(unfinished).expect("write the cache");
        fs::copy(&archive, unfinished.join(CLASSES))
            .unwrap_or_else(|e| panic!("no archive of classes, {e}:\n{}", daemon.log()));
    });
    folder.join(CLASSES)
}
