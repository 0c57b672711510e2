//! An endpoint that counts requests, in a process of its own. That of the test kit keeps each
//! request and is a script: both sides of a comparison would wait for it alone.

use std::{
    cell::Cell,
    io::{Read, Write},
    net::Ipv4Addr,
    process::Command,
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};
use posthaste_testkit::process::Running;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::LocalSet,
};

/// Far more than a start takes.
const START: Duration = Duration::from_secs(60);
/// Read at once: a request of the relay's fits.
const READ: usize = 16 << 10;
/// Begins the line that names the port.
const LISTENING: &str = "listening at port ";

/// The process. Dropping it ends it.
pub(crate) struct Receiver {
    port: u16,
    _process: Running,
}

impl Receiver {
    pub(crate) fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let process = Running::start(command.arg("--receive"));
        // Its line has ended, too.
        process.wait_for_stdout("\n", START);
        let said = process.stdout();
        let port = said.lines().find_map(|line| line.strip_prefix(LISTENING));
        let port = port.context("the receiver named no port")?.parse()?;
        Ok(Self {
            port,
            _process: process,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many events it has accepted.
    pub(crate) fn accepted(&self) -> Result<u64> {
        let mut stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.write_all(b"GET /accepted HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        let (_, count) = said.split_once("\r\n\r\n").context("no answer")?;
        Ok(count.parse()?)
    }
}

/// The process's own work: it ends when it is killed.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let accepted = Rc::new(Cell::new(0));
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{LISTENING}{}", listener.local_addr()?.port());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let accepted = Rc::clone(&accepted);
            tokio::task::spawn_local(async move { drop(answer(stream, &accepted).await) });
        }
    })
}

/// Answers the requests of a connection until it ends.
async fn answer(mut stream: TcpStream, accepted: &Cell<u64>) -> Result<()> {
    let mut bytes = Vec::with_capacity(READ);
    while stream.read_buf(&mut bytes).await? > 0 {
        while let Some(length) = length(&bytes)? {
            let body = match bytes.starts_with(b"POST ") {
                true => {
                    accepted.set(accepted.get() + 1);
                    String::new()
                }
                false => accepted.get().to_string(),
            };
            bytes.drain(..length);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await?;
        }
        bytes.reserve(READ);
    }
    Ok(())
}

/// The bytes of the first request; none before it has come in whole.
fn length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end])?;
    let body = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>())
    });
    let whole = end + 4 + body.transpose()?.unwrap_or_default();
    Ok((bytes.len() >= whole).then_some(whole))
}
