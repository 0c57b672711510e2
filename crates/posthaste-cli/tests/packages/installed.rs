//! Each artefact, installed as people do it, starts, proves itself, and moves events.

use std::{path::Path, process::Command};

use posthaste_testkit::process::Finished;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    debian, image,
    made::{VERSION, done, made},
    node,
};

/// A program with nothing of this machine's environment but a `PATH`.
pub(crate) struct Installed {
    folder: TempDir,
    start: Vec<String>,
    path: String,
}

impl Installed {
    /// The words that start the program, which may be found in folders of the `PATH`.
    pub(crate) fn new(folder: TempDir, start: &[&str], path: &str) -> Self {
        let start = start.iter().map(|word| (*word).to_owned()).collect();
        Self {
            folder,
            start,
            path: path.to_owned(),
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.start[0]);
        command.env_clear().env("PATH", &self.path);
        command
            .args(&self.start[1..])
            .args(args)
            .current_dir(self.folder.path());
        command
    }

    fn ends_well(&self, args: &[&str]) -> Finished {
        done(&mut self.command(args))
    }

    /// It is this version, and its demo finds every event delivered.
    fn proves_itself(&self) {
        let version = self.ends_well(&["--version"]);
        assert_eq!(version.stdout.trim(), format!("posthaste {VERSION}"));
        let demo = self.ends_well(&["demo", "--events", "300", "--json"]);
        let proof: Value = serde_json::from_str(demo.stdout.lines().last().unwrap()).unwrap();
        for (name, value) in [
            ("committed", 300),
            ("delivered", 300),
            ("lost", 0),
            ("phantom", 0),
        ] {
            assert_eq!(proof[name], value, "{proof}");
        }
        self.moves_events();
    }

    /// From PostgreSQL to Kafka, with all servers outside of where the program is installed.
    #[cfg(feature = "kafka")]
    fn moves_events(&self) {
        use posthaste_testkit::{
            servers::{kafka::KafkaServer, postgres::PostgresServer},
            unique_name,
        };

        if !posthaste_testkit::long_form() {
            return;
        }
        let database = PostgresServer::shared(15).create_database();
        let kafka = KafkaServer::shared();
        let topic = unique_name("orders");
        kafka.create_topic(&topic, 1, &[]);
        let url = database.url();
        self.ends_well(&["init", "--store", &url]);
        database.psql(&format!(
            "select posthaste.emit('{topic}', jsonb_build_object('n', n), key => 'k')
             from generate_series(1, 100) n"
        ));
        let to = format!("kafka://{}", kafka.bootstrap());
        self.ends_well(&["relay", "--from", &url, "--to", &to, "--until-drained"]);
        let numbers = kafka.consume(&[&topic]).into_iter().map(|message| {
            let event: Value = serde_json::from_slice(&message.value.unwrap()).unwrap();
            event["n"].as_i64().unwrap()
        });
        assert_eq!(numbers.collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
    }

    #[cfg(not(feature = "kafka"))]
    fn moves_events(&self) {}
}

/// The system's own programs, and none of ours.
const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";

pub(crate) fn tarball(folder: TempDir) -> Installed {
    let archive = made().artefact("posthaste-", "linux-gnu.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "-xzf"]).arg(archive);
    done(tar.arg("-C").arg(folder.path()));
    Installed::new(folder, &["./posthaste"], SYSTEM)
}

fn wheel(folder: TempDir) -> Installed {
    let environment = folder.path().join("environment");
    done(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    );
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--no-index", "--no-deps"]);
    done(pip.arg(made().artefact("posthaste_relay-", ".whl")));
    let program = environment.join("bin/posthaste");
    Installed::new(folder, &[program.to_str().unwrap()], SYSTEM)
}

#[test]
fn the_archive_works() {
    tarball(tempfile::tempdir().unwrap()).proves_itself();
}

#[test]
fn the_wheel_works() {
    wheel(tempfile::tempdir().unwrap()).proves_itself();
}

#[test]
fn the_packages_of_npm_work() {
    node::installed(tempfile::tempdir().unwrap()).proves_itself();
}

#[test]
fn the_debian_package_works() {
    debian::installed(tempfile::tempdir().unwrap()).proves_itself();
}

#[test]
fn the_image_works() {
    image::installed(tempfile::tempdir().unwrap()).proves_itself();
}

/// Certificates of brokers are checked against the system's authorities, also by an OpenSSL that
/// was built elsewhere; `SSL_CERT_FILE` names others.
#[cfg(feature = "kafka")]
#[test]
fn the_systems_authorities_are_found() {
    use posthaste_testkit::{
        servers::{kafka::KafkaServer, postgres::PostgresServer},
        tls::TestCa,
    };

    if !posthaste_testkit::long_form() {
        return;
    }
    let program = tarball(tempfile::tempdir().unwrap());
    let authority = TestCa::new();
    let kafka = KafkaServer::start_secure(&authority);
    kafka.create_topic("orders", 1, &[]);
    let database = PostgresServer::shared(15).create_database();
    let url = database.url();
    program.ends_well(&["init", "--store", &url]);
    database.psql("select posthaste.emit('orders', '{}', key => 'k')");
    let to = format!("kafka://{}?tls=true", kafka.ssl());
    let drain = ["relay", "--from", &url, "--to", &to, "--until-drained"];
    let refused = posthaste_testkit::process::run(&mut program.command(&drain), crate::made::LIMIT);
    assert_eq!(refused.status.code(), Some(2), "{refused}");
    assert!(refused.stderr.contains("certificate"), "{refused}");
    let mut trusting = program.command(&drain);
    done(trusting.env("SSL_CERT_FILE", authority.certificate_file()));
    assert_eq!(kafka.count_committed("orders"), 1);
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
