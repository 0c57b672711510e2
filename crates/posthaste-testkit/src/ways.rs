//! One address for several clients, and behind it a proxy for each of them.

use crate::ports::Port;
use crate::proxy::Proxy;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// The address that every client is told to connect to.
const HOST: &str = "broker";

/// Proxies on one port of several addresses of this machine. A client that resolves the host's name
/// by its own [`Ways::hosts`] comes to its own, so that it can be cut off alone.
#[derive(Debug)]
pub struct Ways {
    port: Port,
    proxies: Vec<Proxy>,
}

impl Ways {
    /// A way to each of these ports on 127.0.0.1, the first one for client 0.
    ///
    /// # Panics
    ///
    /// When no port or no thread can be had.
    #[must_use]
    pub fn to(servers: impl IntoIterator<Item = u16>) -> Self {
        let port = Port::reserve();
        let number = port.number();
        let way = |(client, server): (usize, u16)| {
            let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
            Proxy::start_at((address(client), number).into(), server).expect("start a proxy")
        };
        Self {
            proxies: servers.into_iter().enumerate().map(way).collect(),
            port,
        }
    }

    /// `host:port`, alike for all clients.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{HOST}:{}", self.port.number())
    }

    /// The way by which this client comes.
    #[must_use]
    pub fn proxy(&self, client: usize) -> &Proxy {
        &self.proxies[client]
    }

    /// `IP:port` of each client's.
    pub fn addresses(&self) -> impl Iterator<Item = String> {
        let port = self.port.number();
        (0..self.proxies.len()).map(move |client| format!("{}:{port}", address(client)))
    }

    /// The client's `/etc/hosts`.
    #[must_use]
    pub fn hosts(client: usize) -> String {
        format!("127.0.0.1 localhost\n{} {HOST}\n", address(client))
    }
}

fn address(client: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, u8::try_from(client + 2).expect("few clients"))
}

/// The command, with its environment, where names are resolved by this file: in a mount namespace
/// of its own, which is gone with the process. The process keeps its id.
#[must_use]
pub fn resolving_by(hosts: &Path, command: &Command) -> Command {
    const INSIDE: &str = r#"mount --bind "$1" /etc/hosts; shift; exec "$@""#;
    let mut wrapped = Command::new("unshare");
    wrapped.args(["--mount", "--map-root-user", "sh", "-ec", INSIDE, "sh"]);
    wrapped.arg(hosts).arg(command.get_program());
    wrapped.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, OsStr::new(value)),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}
