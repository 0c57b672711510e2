//! PgBouncer for tests: the pooler that most applications reach PostgreSQL by, where a connection
//! of the database is a client's for one transaction only.

use super::daemon::{Daemon, installed};
use super::postgres::PostgresServer;
use crate::account::Account;
use crate::ports::Port;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

/// Where packages put the program: Debian, Red Hat, Homebrew.
const PROGRAMS: [&str; 5] = [
    "/usr/sbin/pgbouncer",
    "/usr/bin/pgbouncer",
    "/usr/local/bin/pgbouncer",
    "/opt/homebrew/bin/pgbouncer",
    "/opt/homebrew/opt/pgbouncer/bin/pgbouncer",
];

/// Connections to the database: fewer than clients, so that these really share them.
const POOL: u16 = 4;

/// A pooler in front of a [`PostgresServer`], in transaction mode.
///
/// Dropping it kills the process; so does the death of the test process, by `kill -9` too.
#[derive(Debug)]
pub struct PgBouncer {
    port: Port,
    daemon: Daemon,
    config: PathBuf,
}

impl PgBouncer {
    /// Starts a pooler for every database of the server and these users, and returns when it
    /// accepts connections.
    ///
    /// # Panics
    ///
    /// When PgBouncer is not installed (the message says how to install it), or does not come up
    /// (the message has its log).
    #[must_use]
    pub fn start(server: &PostgresServer, users: &[&str]) -> Self {
        Self::start_ignoring(server, users, &[])
    }

    /// The same; start-up parameters of these names are dropped, where others are refused.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[must_use]
    pub fn start_ignoring(server: &PostgresServer, users: &[&str], parameters: &[&str]) -> Self {
        // It refuses to run as root.
        let daemon = Daemon::new("PgBouncer", Account::unless_root("postgres"));
        let port = Port::reserve();
        let users: String = users
            .iter()
            .map(|user| format!("\"{user}\" \"\"\n"))
            .collect();
        let users = daemon.write("users.txt", &users);
        let ignored = [&["extra_float_digits"], parameters].concat().join(", ");
        let config = daemon.write(
            "pgbouncer.ini",
            &format!(
                "[databases]\n\
                 * = host=127.0.0.1 port={}\n\
                 [pgbouncer]\n\
                 listen_addr = 127.0.0.1\n\
                 listen_port = {}\n\
                 unix_socket_dir =\n\
                 auth_type = trust\n\
                 auth_file = {}\n\
                 pool_mode = transaction\n\
                 default_pool_size = {POOL}\n\
                 max_client_conn = 500\n\
                 ignore_startup_parameters = {ignored}\n",
                server.port(),
                port.number(),
                users.display()
            ),
        );
        let pooler = Self {
            port,
            daemon,
            config,
        };
        pooler.launch();
        pooler
    }

    fn launch(&self) {
        let mut command = self.daemon.command(&program());
        command.arg(&self.config);
        self.daemon.launch(command, |_| {
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).is_ok()
        });
    }

    /// `kill -9`, and starts it again at the same port: all its clients lose their connections.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn restart(&self) {
        self.daemon.kill9();
        self.launch();
    }

    /// The TCP port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A connection URL for one of the users, without password, and a database.
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port())
    }

    /// The pooler's log, for a failure's message.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }
}

fn program() -> PathBuf {
    installed("PgBouncer", &PROGRAMS, "pgbouncer")
}
