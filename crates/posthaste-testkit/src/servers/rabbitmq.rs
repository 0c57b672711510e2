//! RabbitMQ for tests: the distribution's own server, one node.

#[cfg(feature = "rabbitmq")]
mod client;
mod install;
#[cfg(feature = "rabbitmq")]
mod message;
mod node;

#[cfg(feature = "rabbitmq")]
pub use client::{Argument, RabbitMqClient};
#[cfg(feature = "rabbitmq")]
pub use message::{HeaderValue, RabbitMqMessage};

use crate::proxy::Proxy;
use crate::tls::TestCa;
use node::Node;
use std::sync::{Mutex, PoisonError};

/// A RabbitMQ node, its own unless `POSTHASTE_TEST_RABBITMQ` named a running one.
///
/// Dropping it kills the node and deletes its data; so does the death of the test process, by
/// `kill -9` too. A start takes seconds, so tests that leave the node alone share one, and give
/// their exchanges and queues names of their own ([`unique_name`](crate::unique_name)). Calls
/// block, from an asynchronous test as well.
#[derive(Debug)]
pub struct RabbitMqServer {
    /// `user:password` of an administrator.
    login: String,
    host: String,
    port: u16,
    /// None: somebody else's node.
    node: Option<Node>,
}

impl RabbitMqServer {
    /// The node that all tests of this process share; leave its state alone.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn shared() -> &'static Self {
        static SERVER: Mutex<Option<&'static RabbitMqServer>> = Mutex::new(None);
        // A failed start poisons the lock; the next test shall see the reason too, not the poison.
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        server.get_or_insert_with(|| {
            let running = std::env::var("POSTHASTE_TEST_RABBITMQ").unwrap_or_default();
            // Never dropped: the guard process stops the node when this process ends.
            Box::leak(Box::new(if running.is_empty() {
                Self::start()
            } else {
                Self::running(&running)
            }))
        })
    }

    /// A node for one test, which may crash it.
    ///
    /// # Panics
    ///
    /// When RabbitMQ is not installed (the message says how to install it), or the node does not
    /// come up (the message has its log).
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A node for one test, with lines of `rabbitmq.conf` such as `"channel_max = 5"`.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_with(config_lines: &[&str]) -> Self {
        Self::of(Node::start(config_lines, None))
    }

    /// A node for one test that listens with TLS too ([`Self::tls_url`]), with a certificate for
    /// `localhost` and `127.0.0.1` from this authority.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls(ca: &TestCa) -> Self {
        Self::start_tls_for(ca, &["localhost", "127.0.0.1"])
    }

    /// [`Self::start_tls`] with a certificate for other names, to see the name check refuse.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_tls_for(ca: &TestCa, names: &[&str]) -> Self {
        Self::of(Node::start(&[], Some(&ca.server_certificate(names))))
    }

    /// Nodes of one cluster; queues that are made through one of them live there, unless they are
    /// replicated.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_cluster(nodes: usize) -> Vec<Self> {
        let first = Node::start(&[], None);
        let beside: Vec<Node> = (1..nodes)
            .map(|number| first.start_beside(&format!("posthaste-{number}@localhost")))
            .collect();
        [first].into_iter().chain(beside).map(Self::of).collect()
    }

    /// An administrator's URL for a virtual host; `/` is the one that exists from the start.
    #[must_use]
    pub fn url(&self, vhost: &str) -> String {
        self.url_of(&self.login, vhost)
    }

    /// A URL for `user:password` and a virtual host.
    #[must_use]
    pub fn url_of(&self, login: &str, vhost: &str) -> String {
        let (host, port) = (&self.host, self.port);
        format!("amqp://{login}@{host}:{port}/{}", encoded(vhost))
    }

    /// [`Self::url`] by way of a proxy in front of [`Self::port`].
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy, vhost: &str) -> String {
        let (login, port) = (&self.login, proxy.port());
        format!("amqp://{login}@127.0.0.1:{port}/{}", encoded(vhost))
    }

    /// [`Self::url`] with TLS.
    ///
    /// # Panics
    ///
    /// When the node was started without TLS.
    #[must_use]
    pub fn tls_url(&self, vhost: &str) -> String {
        let (login, port) = (&self.login, self.tls_port());
        format!("amqps://{login}@127.0.0.1:{port}/{}", encoded(vhost))
    }

    /// The port without TLS; the same after [`Self::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port with TLS.
    ///
    /// # Panics
    ///
    /// When the node was started without TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        let port = self.node().tls_port();
        port.expect("this node was started without TLS: see RabbitMqServer::start_tls")
    }

    /// Replaces the node's certificate by one for `localhost` and `127.0.0.1` from this authority.
    /// Connections go on; whoever connects from now on is shown the new one.
    ///
    /// # Panics
    ///
    /// When the node is not ours, or was started without TLS.
    pub fn renew_certificate(&self, ca: &TestCa) {
        let _ = self.tls_port();
        let certificate = ca.server_certificate(&["localhost", "127.0.0.1"]);
        self.node().write_certificate(&certificate);
        // It reads the files again two minutes later by itself.
        self.ctl(&["eval", "ssl:clear_pem_cache()."]);
    }

    /// Stops the node in order (SIGTERM); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When the node is not ours, or does not run.
    pub fn stop(&self) {
        self.node().daemon().stop();
    }

    /// Kills the node (`kill -9`), even while it is paused; returns when the process has ended. It
    /// may forget what was declared a moment before: see [`Self::sync_declarations`].
    ///
    /// # Panics
    ///
    /// When the node is not ours, or does not run.
    pub fn kill9(&self) {
        self.node().daemon().kill9();
    }

    /// Lets the node stand still (SIGSTOP): connections stay open, and the kernel still accepts
    /// new ones and some megabytes.
    ///
    /// # Panics
    ///
    /// When the node is not ours, or does not run.
    pub fn pause(&self) {
        self.node().daemon().pause();
    }

    /// Goes on after [`Self::pause`].
    ///
    /// # Panics
    ///
    /// When the node is not ours, or does not run.
    pub fn resume(&self) {
        self.node().daemon().resume();
    }

    /// Starts the stopped node again on its ports and data; returns when it accepts connections.
    ///
    /// # Panics
    ///
    /// When the node is not ours, runs already, or does not come up.
    pub fn start_again(&self) {
        self.node().launch();
    }

    /// Runs `rabbitmqctl`, a second or more each time, and returns what it prints: for users,
    /// rights, virtual hosts and alarms, such as `["set_vm_memory_high_watermark", "0.00001"]`.
    ///
    /// # Panics
    ///
    /// When the node is not ours, or the command fails.
    pub fn ctl(&self, args: &[&str]) -> String {
        self.node().ctl(args)
    }

    /// Returns when queues, exchanges and bindings that were made so far survive a kill.
    ///
    /// RabbitMQ 3 confirms them too early: the transaction is on disk, that it was committed may
    /// wait in memory for two seconds more. Killed in that time, the node comes back with the
    /// transaction presumed aborted: without the queue, and with nobody told. So a test that kills
    /// a node which may be younger than that calls this first. It runs `rabbitmqctl`
    /// ([`Self::ctl`]).
    ///
    /// # Panics
    ///
    /// When the node is not ours, or the command fails.
    pub fn sync_declarations(&self) {
        // The first handles what commits have sent it until now, the second writes what it logged.
        self.ctl(&[
            "eval",
            "ok = mnesia_recover:sync(), ok = disk_log:sync(latest_log).",
        ]);
    }

    /// The node's log, for a failure's message.
    ///
    /// # Panics
    ///
    /// When the node is not ours.
    #[must_use]
    pub fn log(&self) -> String {
        self.node().daemon().log()
    }

    fn of(node: Node) -> Self {
        Self {
            login: "guest:guest".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: node.port(),
            node: Some(node),
        }
    }

    fn running(url: &str) -> Self {
        let parts = || {
            let rest = url.strip_prefix("amqp://")?;
            let (login, host_and_port) = rest.trim_end_matches('/').rsplit_once('@')?;
            let (host, port) = host_and_port.rsplit_once(':')?;
            Some((login, host, port.parse().ok()?))
        };
        let Some((login, host, port)) = parts() else {
            panic!("POSTHASTE_TEST_RABBITMQ must look like amqp://user:password@host:5672");
        };
        Self {
            login: login.to_owned(),
            host: host.to_owned(),
            port,
            node: None,
        }
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect(
            "this node was given by POSTHASTE_TEST_RABBITMQ: tests cannot stop or change it",
        )
    }
}

/// A virtual host's name as a URL's path; the default one is itself a slash.
fn encoded(vhost: &str) -> String {
    vhost.replace('%', "%25").replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::RabbitMqServer;

    #[test]
    fn a_running_server_keeps_its_login_and_address() {
        let server = RabbitMqServer::running("amqp://me:p%40ss@broker.example:5673/");
        assert_eq!(server.url("/"), "amqp://me:p%40ss@broker.example:5673/%2F");
        assert_eq!(
            server.url_of("you:secret", "a"),
            "amqp://you:secret@broker.example:5673/a"
        );
    }
}
