//! MQTT for tests: the distribution's own mosquitto.

mod client;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::daemon::{Daemon, installed};
use crate::account::Account;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::tls::ServerCertificate;

pub use client::{MqttClient, MqttMessage};

/// Where packages put the program; `PATH` of an ordinary user need not have it.
const PROGRAMS: [&str; 3] = [
    "/usr/sbin/mosquitto",
    "/usr/local/sbin/mosquitto",
    "/opt/homebrew/sbin/mosquitto",
];
const PASSWORD_PROGRAMS: [&str; 3] = [
    "/usr/bin/mosquitto_passwd",
    "/usr/local/bin/mosquitto_passwd",
    "/opt/homebrew/bin/mosquitto_passwd",
];

/// User and password of the tests' own client, where a server asks for a login.
pub const ADMIN: (&str, &str) = ("admin", "pass/word");

/// A mosquitto broker. It keeps what subscribers have not had in any number, and writes it to its
/// disk when it is stopped in order.
///
/// Dropping it kills the process and deletes its data; so does the death of the test process, by
/// `kill -9` too. Tests that leave the server alone share one, and give their topics names of their
/// own ([`unique_name`](crate::unique_name)). Calls block, from an asynchronous test as well.
#[derive(Debug)]
pub struct MqttServer {
    daemon: Daemon,
    port: Port,
    tls_port: Port,
    config: PathBuf,
}

impl MqttServer {
    /// The server that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static MqttServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard process stops the server when this process ends.
        server.get_or_insert_with(|| Box::leak(Box::new(Self::start())))
    }

    /// A server for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When mosquitto is not installed (the message says how to install it), or the server does not
    /// come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server for one test, with lines of its configuration such as `"max_packet_size 1000"`.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_with(config_lines: &[&str]) -> Self {
        let server = Self::prepared();
        server.write_config(&[&["allow_anonymous true"], config_lines].concat());
        server.launch();
        server
    }

    /// A server for one test that asks for a login: [`ADMIN`], who may do all, or one of these
    /// users and passwords, who may do what these lines of an access control list say.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_guarded(users: &[(&str, &str)], access: &str) -> Self {
        let server = Self::prepared();
        let lines = std::iter::once(&ADMIN).chain(users);
        let lines: String = lines
            .map(|(user, password)| format!("{user}:{password}\n"))
            .collect();
        let passwords = server.daemon.write("passwords", &lines);
        let program = installed("MQTT", &PASSWORD_PROGRAMS, "mosquitto");
        let hashed = Command::new(program).arg("-U").arg(&passwords).output();
        let hashed = hashed.expect("hash the passwords");
        assert!(hashed.status.success(), "{hashed:?}");
        // The program has made another file of it.
        let hashed = std::fs::read_to_string(&passwords).expect("read the passwords");
        server.daemon.write("passwords", &hashed);
        let access = format!("user {}\ntopic readwrite #\n{access}\n", ADMIN.0);
        let access = server.daemon.write("access", &access);
        server.write_config(&[
            "allow_anonymous false",
            &format!("password_file {}", passwords.display()),
            &format!("acl_file {}", access.display()),
        ]);
        server.launch();
        server
    }

    /// A server for one test that speaks TLS at [`Self::tls_url`], and shows this certificate. With
    /// the file of an authority it asks for a certificate that this has signed.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate, client_authority: Option<&Path>) -> Self {
        let server = Self::prepared();
        let file = |name, pem: &str| server.daemon.write(name, pem).display().to_string();
        let mut lines = vec![
            "allow_anonymous true".to_owned(),
            format!("listener {} 127.0.0.1", server.tls_port.number()),
            format!(
                "certfile {}",
                file("server.crt", &certificate.certificate_pem)
            ),
            format!("keyfile {}", file("server.key", &certificate.key_pem)),
        ];
        if let Some(authority) = client_authority {
            let pem = std::fs::read_to_string(authority).expect("read the authority");
            lines.push(format!("cafile {}", file("clients.crt", &pem)));
            lines.push("require_certificate true".to_owned());
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        server.write_config(&lines);
        server.launch();
        server
    }

    fn prepared() -> Self {
        // The user that the package makes.
        let daemon = Daemon::new("MQTT", Account::unless_root("mosquitto"));
        let config = daemon.folder().join("mosquitto.conf");
        Self {
            daemon,
            port: Port::reserve(),
            tls_port: Port::reserve(),
            config,
        }
    }

    fn write_config(&self, lines: &[&str]) {
        // Of messages without a limit (0), this one ends the connection at a refusal among others.
        let config = format!(
            "persistence true\n\
             persistence_location {}/\n\
             max_queued_messages 10000000\n\
             listener {} 127.0.0.1\n\
             {}\n",
            self.daemon.folder().display(),
            self.port(),
            lines.join("\n")
        );
        self.daemon.write("mosquitto.conf", &config);
    }

    fn launch(&self) {
        let program = installed("MQTT", &PROGRAMS, "mosquitto");
        let mut command = self.daemon.command(&program);
        command.arg("-c").arg(&self.config);
        self.daemon.launch(command, |log| log.contains(" running"));
    }

    /// The address, without a login.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port())
    }

    /// The address for a login as an address has it: `user:password`.
    #[must_use]
    pub fn url_of(&self, login: &str) -> String {
        format!("mqtt://{login}@127.0.0.1:{}", self.port())
    }

    /// The address with TLS, of a server that was [started so](Self::start_tls).
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("mqtts://127.0.0.1:{}", self.tls_port.number())
    }

    /// [`Self::url`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy) -> String {
        format!("mqtt://127.0.0.1:{}", proxy.port())
    }

    /// The port on 127.0.0.1, without TLS; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A connection of the tests' own under this client id. The broker keeps messages for it while
    /// it is away.
    ///
    /// # Panics
    ///
    /// When the server does not let it in.
    #[must_use]
    pub fn client(&self, client_id: &str) -> MqttClient {
        MqttClient::connect(self.port(), client_id, ADMIN)
    }

    /// All that the server has said.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Stops the server in order (SIGTERM); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Kills the server (`kill -9`), even while it is paused; returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill9(&self) {
        self.daemon.kill9();
    }

    /// Lets the server stand still (SIGSTOP): connections stay open.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn pause(&self) {
        self.daemon.pause();
    }

    /// Goes on after [`Self::pause`].
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn resume(&self) {
        self.daemon.resume();
    }

    /// Starts the server again with its data, at the same port.
    ///
    /// # Panics
    ///
    /// When it runs, or does not come up.
    pub fn start_again(&self) {
        self.launch();
    }
}
