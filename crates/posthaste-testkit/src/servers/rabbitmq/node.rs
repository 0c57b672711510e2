//! One node: its process, its settings, and the port mapper that Erlang needs beside it.

use super::install::{account, program};
use crate::ports::Port;
use crate::servers::daemon::Daemon;
use crate::tls::ServerCertificate;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A node with its own `epmd`, or one of its cluster's, so that neither meets those of other tests
/// and none outlives it. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Node {
    daemon: Daemon,
    mapper: Arc<Mapper>,
    /// As Erlang knows it.
    name: String,
    ports: Ports,
}

/// Tells the nodes of a cluster each other's ports.
#[derive(Debug)]
struct Mapper {
    _daemon: Daemon,
    port: Port,
}

#[derive(Debug)]
struct Ports {
    amqp: Port,
    tls: Option<Port>,
    /// `rabbitmqctl` comes in here.
    distribution: Port,
}

impl Node {
    pub(super) fn start(config_lines: &[&str], certificate: Option<&ServerCertificate>) -> Self {
        let mapper = Arc::new(Mapper::start());
        Self::start_as("posthaste@localhost", mapper, config_lines, certificate)
    }

    /// One that joins this one's cluster under another name.
    pub(super) fn start_beside(&self, name: &str) -> Self {
        let join = [
            "cluster_formation.peer_discovery_backend = classic_config",
            &format!("cluster_formation.classic_config.nodes.1 = {}", self.name),
        ];
        Self::start_as(name, Arc::clone(&self.mapper), &join, None)
    }

    fn start_as(
        name: &str,
        mapper: Arc<Mapper>,
        config_lines: &[&str],
        certificate: Option<&ServerCertificate>,
    ) -> Self {
        let node = Self {
            daemon: Daemon::new("RabbitMQ", account()),
            mapper,
            name: name.to_owned(),
            ports: Ports {
                amqp: Port::reserve(),
                tls: certificate.map(|_| Port::reserve()),
                distribution: Port::reserve(),
            },
        };
        node.write_files(config_lines, certificate);
        node.launch();
        node
    }

    pub(super) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    pub(super) fn port(&self) -> u16 {
        self.ports.amqp.number()
    }

    pub(super) fn tls_port(&self) -> Option<u16> {
        self.ports.tls.as_ref().map(Port::number)
    }

    pub(super) fn launch(&self) {
        let mut command = self.daemon.command(&program("rabbitmq-server"));
        self.set_environment(&mut command);
        // A port that answers is not enough: after a restart the node greets clients, and may still
        // close their channels.
        self.daemon
            .launch(command, |log| log.contains("Server startup complete"));
    }

    pub(super) fn ctl(&self, args: &[&str]) -> String {
        let mut command = account().command(&program("rabbitmqctl"));
        self.set_environment(&mut command);
        let output = command
            .arg("--quiet")
            .args(args)
            .output()
            .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "rabbitmqctl {args:?} failed, {}\n{stdout}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        stdout
    }

    fn write_files(&self, config_lines: &[&str], certificate: Option<&ServerCertificate>) {
        for folder in ["home", "mnesia", "log"] {
            self.daemon.make_folder(folder);
        }
        let cookie = self.daemon.write("home/.erlang.cookie", "posthaste");
        // Erlang refuses a cookie that others may read.
        let private = std::fs::Permissions::from_mode(0o400);
        std::fs::set_permissions(cookie, private).expect("chmod");
        self.daemon.write("enabled_plugins", "[].\n");
        let mut config = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\n\
             log.console = true\n\
             log.file = false\n\
             loopback_users = none\n",
            self.port()
        );
        if let (Some(port), Some(certificate)) = (self.tls_port(), certificate) {
            let [certificate_file, key_file] = self.write_certificate(certificate);
            config.push_str(&format!(
                "listeners.ssl.1 = 127.0.0.1:{port}\n\
                 ssl_options.certfile = {}\n\
                 ssl_options.keyfile = {}\n\
                 ssl_options.verify = verify_none\n",
                certificate_file.display(),
                key_file.display()
            ));
        }
        for line in config_lines {
            config.push_str(line);
            config.push('\n');
        }
        self.daemon.write("rabbitmq.conf", &config);
    }

    pub(super) fn write_certificate(&self, certificate: &ServerCertificate) -> [PathBuf; 2] {
        let write = |name, pem: &String| self.daemon.write(name, pem);
        [
            write("server.crt", &certificate.certificate_pem),
            write("server.key", &certificate.key_pem),
        ]
    }

    /// The same for the server and for `rabbitmqctl`, which finds the server by it.
    fn set_environment(&self, command: &mut Command) {
        let folder = self.daemon.folder();
        let port = |port: &Port| port.number().to_string();
        command
            .env("HOME", folder.join("home"))
            .env("ERL_EPMD_PORT", port(&self.mapper.port))
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            .env("RABBITMQ_NODENAME", &self.name)
            .env("RABBITMQ_DIST_PORT", port(&self.ports.distribution))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", port(&self.ports.amqp))
            .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
            .env("RABBITMQ_MNESIA_DIR", folder.join("mnesia/db"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_PID_FILE", folder.join("rabbitmq-pid"))
            .env(
                "RABBITMQ_ENABLED_PLUGINS_FILE",
                folder.join("enabled_plugins"),
            )
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_CONF_ENV_FILE", folder.join("none"))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", folder.join("generated"))
            .env("RABBITMQ_SCHEMA_DIR", folder.join("schema"))
            // Makes the script become the server instead of its parent, so that signals reach it.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                // Schedulers that spin would take the time of the tests beside them. The port for
                // `rabbitmqctl` would listen on every interface.
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none \
                 -kernel inet_dist_use_interface {127,0,0,1}",
            );
    }
}

impl Mapper {
    /// Started first and in the foreground: a node that finds none starts one that outlives it.
    fn start() -> Self {
        let (daemon, port) = (Daemon::new("epmd", account()), Port::reserve());
        let mut command = daemon.command(Path::new("epmd"));
        command
            .args(["-address", "127.0.0.1", "-port"])
            .arg(port.number().to_string());
        daemon.launch(command, |_| is_open(port.number()));
        Self {
            _daemon: daemon,
            port,
        }
    }
}

fn is_open(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}
