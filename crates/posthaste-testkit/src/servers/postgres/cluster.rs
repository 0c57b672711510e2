//! One data folder and the server process on it.

use super::install::{Programs, account};
use crate::guard::Guard;
use crate::ports::Port;
use crate::tls::ServerCertificate;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far beyond what a start (0.1 s) or a recovery takes: only a server that hangs meets it.
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
const ADDRESS_IN_USE_TRIES: usize = 5;
const LOG_TAIL_LINES: usize = 60;

/// Run by the guard with the server's folder as `$1`. The postmaster removes `postmaster.pid` when
/// it has ended; a zombie that nobody reaps would still answer `kill -0`.
const CLEAN_UP: &str = r#"
pid=$(head -n 1 "$1/data/postmaster.pid") && kill -QUIT "$pid"
tries=0
while [ -e "$1/data/postmaster.pid" ] && [ $tries -lt 200 ]; do sleep 0.05; tries=$((tries+1)); done
[ -e "$1/data/postmaster.pid" ] && kill -KILL "$pid"
rm -rf "$1"
"#;

/// A data folder with a server process while it runs. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Cluster {
    process: Mutex<Option<Child>>,
    pub(super) programs: Programs,
    port: Port,
    folder: TempDir,
    _guard: Guard,
}

impl Cluster {
    /// Starts a server on a fresh cluster.
    pub(super) fn start_new(version: u16, settings: &[(String, String)]) -> Self {
        let scratch = server_folder();
        let programs = Programs::find(version, scratch.path());
        let mut lines = String::from(
            "listen_addresses = '127.0.0.1'\nwal_level = logical\nmax_connections = 200\n\
             max_wal_senders = 10\nmax_replication_slots = 10\n",
        );
        for (name, value) in settings {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        Self::start_in(scratch, programs, |programs, folder| {
            let data = folder.join("data");
            programs.new_cluster(&data, folder);
            append(&data.join("postgresql.conf"), &lines);
        })
    }

    /// Starts a server on the data folder that `make_data` creates, settings included.
    pub(super) fn start_from(version: u16, make_data: impl Fn(&Path)) -> Self {
        let folder = server_folder();
        let programs = Programs::find(version, folder.path());
        Self::start_in(folder, programs, |_, folder| {
            make_data(&folder.join("data"))
        })
    }

    fn start_in(folder: TempDir, programs: Programs, fill: impl Fn(&Programs, &Path)) -> Self {
        let guard = Guard::new(CLEAN_UP, &[folder.path()]);
        fill(&programs, folder.path());
        let mut cluster = Self {
            process: Mutex::new(None),
            programs,
            port: Port::reserve(),
            folder,
            _guard: guard,
        };
        let sockets = cluster.folder.path().display().to_string();
        for attempt in 1.. {
            let conf = format!(
                "port = {}\nunix_socket_directories = '{sockets}'\n",
                cluster.port()
            );
            append(&cluster.data().join("postgresql.conf"), &conf);
            match cluster.launch() {
                Ok(()) => break,
                Err(log)
                    if log.contains("Address already in use") && attempt < ADDRESS_IN_USE_TRIES =>
                {
                    cluster.port = Port::reserve();
                    fs::remove_file(cluster.log_file()).expect("start a new log");
                }
                Err(log) => panic!("PostgreSQL did not start:\n{log}"),
            }
        }
        cluster
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(super) fn start_again(&self) {
        if let Err(log) = self.launch() {
            panic!("PostgreSQL did not start again:\n{log}");
        }
    }

    /// Sends a signal that ends the server and waits for its end.
    pub(super) fn stop(&self, signal: Signal) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = process.take().expect("the server is not running");
        if let Err(reason) = end(&mut child, signal) {
            panic!("{reason}:\n{}", self.log_tail());
        }
    }

    /// From the next start on.
    pub(super) fn become_standby(&self) {
        let file = self.data().join("standby.signal");
        fs::write(&file, "").expect("write standby.signal");
        // Removed by the server when it is promoted.
        account().take_over(&file);
    }

    /// Puts lines above all others in `pg_hba.conf`, where the first match counts.
    pub(super) fn allow_first(&self, lines: &str) {
        let file = self.data().join("pg_hba.conf");
        let old = fs::read_to_string(&file).expect("read pg_hba.conf");
        fs::write(&file, format!("{lines}\n{old}")).expect("write pg_hba.conf");
    }

    /// Switches TLS on from the next start.
    pub(super) fn install_certificate(&self, certificate: &ServerCertificate) {
        let files = [
            ("server.crt", &certificate.certificate_pem),
            ("server.key", &certificate.key_pem),
        ];
        for (name, content) in files {
            let file = self.data().join(name);
            fs::write(&file, content).expect("write a certificate file");
            // The server refuses a key that others may read.
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("chmod");
            account().take_over(&file);
        }
        append(&self.data().join("postgresql.conf"), "ssl = on\n");
    }

    pub(super) fn log(&self) -> String {
        fs::read(self.log_file()).map_or_else(
            |e| format!("(no log: {e})"),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Starts the process and waits until it accepts connections; the error is the log's end.
    fn launch(&self) -> Result<(), String> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(process.is_none(), "the server runs already");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("the log");
        let mut child = self
            .programs
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            // Out of reach of a Ctrl-C, which must first unwind the tests.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("clone a file handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run postgres from {:?}: {e}", self.programs));
        let started = Instant::now();
        while !accepts_connections(self.port()) {
            if let Some(status) = child.try_wait().expect("wait for the server") {
                return Err(format!("{status}\n{}", self.log_tail()));
            }
            if started.elapsed() > START_LIMIT {
                let ended = end(&mut child, Signal::QUIT);
                return Err(format!(
                    "not ready in time ({ended:?})\n{}",
                    self.log_tail()
                ));
            }
            thread::sleep(POLL);
        }
        *process = Some(child);
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "PostgreSQL on port {} said:\n{}",
                self.port(),
                self.log_tail()
            );
        }
        let process = self
            .process
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // Its data is worthless now, so there is no reason to wait for a checkpoint.
        if let Some(mut child) = process.take()
            && let Err(reason) = end(&mut child, Signal::QUIT)
        {
            eprintln!("{reason}");
        }
    }
}

/// A folder that the server's user owns; short, because a socket's path may have 107 bytes.
fn server_folder() -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix("ph-pg-")
        .tempdir()
        .expect("make a folder");
    account().take_over(folder.path());
    folder
}

fn append(file: &Path, lines: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(file)
        .expect("open postgresql.conf");
    file.write_all(lines.as_bytes())
        .expect("append to postgresql.conf");
}

/// Signals a child and reaps it, by `kill -9` if it does not obey: that is the error.
fn end(child: &mut Child, signal: Signal) -> Result<(), String> {
    // A child that has ended by itself is no error: it is reaped below.
    let _ = kill_process(Pid::from_child(child), signal);
    let asked = Instant::now();
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if asked.elapsed() > STOP_LIMIT {
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(|e| e.to_string())?;
            return Err(format!(
                "PostgreSQL did not stop within {STOP_LIMIT:?} and was killed"
            ));
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Whether the server gets as far as authentication; while it starts or recovers it says an error.
fn accepts_connections(port: u16) -> bool {
    const LIMIT: Duration = Duration::from_secs(5);
    let ask = || -> std::io::Result<u8> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        // StartupMessage: length, protocol 3.0, pairs of strings, an empty string.
        let body = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        let length = u32::try_from(body.len() + 4).expect("a short message");
        stream.write_all(&[&length.to_be_bytes()[..], body].concat())?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        if kind[0] == b'R' {
            // Terminate, and read to the end: a connection just dropped fills the log with resets.
            stream.write_all(b"X\0\0\0\x04")?;
            stream.read_to_end(&mut Vec::new())?;
        }
        Ok(kind[0])
    };
    matches!(ask(), Ok(b'R'))
}
