//! One connection to a server: made, and asked a question.

use std::{io, time::Duration};

use posthaste_engine::Cause;
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadHalf, WriteHalf},
    net::TcpStream,
};
use uuid::Uuid;

use super::{
    fault::ServerFault,
    wire::{self, Incoming, Message, ServerInfo},
};
use crate::transport::{self, ReadBuffer, Stream, Tls};

/// The status of an answer that the server gives itself, since nobody listens.
pub(super) const NO_RESPONDERS: u16 = 503;

/// How to log in. It has no `Debug`: it holds a password.
#[derive(Default)]
pub(super) struct Login {
    /// User and password.
    pub(super) user: Option<(String, String)>,
    /// A token instead.
    pub(super) token: Option<String>,
    /// How to encrypt the connection, if it is to be.
    pub(super) tls: Option<Tls>,
}

/// A connection on which answers come to subjects below `inbox`. Dropping it destroys the socket at
/// once: what the kernel had not sent yet is thrown away.
pub(super) struct Connection {
    pub(super) reader: Reader<ReadHalf<Box<dyn Stream>>>,
    pub(super) writer: WriteHalf<Box<dyn Stream>>,
    pub(super) info: ServerInfo,
    /// Ends with a dot.
    pub(super) inbox: String,
}

/// Reads from a server.
pub(super) struct Reader<S>(ReadBuffer<S>);

impl<S: AsyncRead + Unpin> Reader<S> {
    /// Reads more bytes. Cancel safe.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        self.0.fill().await
    }

    /// The next thing said among the bytes that were read.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, ServerFault> {
        let found = wire::read(self.0.rest())?;
        Ok(found.map(|(incoming, length)| {
            self.0.take(length);
            incoming
        }))
    }

    async fn wait(&mut self, doing: &str) -> Result<Incoming, ServerFault> {
        loop {
            match self.next()? {
                Some(Incoming::Error(words)) => return Err(ServerFault::said(&words)),
                Some(incoming) => return Ok(incoming),
                None => self
                    .fill()
                    .await
                    .map_err(|error| ServerFault::lost(doing, &error))?,
            }
        }
    }
}

impl Connection {
    /// Connects to `address`, which is `HOST:PORT`, and logs in. With TLS the peer has to prove
    /// that it is `host`. Takes as long as it takes: the caller sets the limit.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn open(
        login: &Login,
        host: &str,
        address: &str,
        patience: Duration,
    ) -> Result<Self, ServerFault> {
        let mut stream = transport::connect(address, patience).await?;
        let (info, behind) = greet(&mut stream).await?;
        if !info.headers {
            return Err(ServerFault::setup(
                "the server knows no headers; use one of version 2.2 or later",
            ));
        }
        let stream: Box<dyn Stream> = match &login.tls {
            Some(_) if !(info.tls_required || info.tls_available) => {
                return Err(ServerFault::setup(
                    "the server offers no TLS; correct the port, or leave out `tls=true`",
                ));
            }
            // Bytes in front of TLS are of somebody between us and the server.
            Some(_) if !behind.is_empty() => return Err(wire::Malformed.into()),
            Some(tls) => Box::new(tls.wrap(host, stream).await?),
            None if info.tls_required => {
                return Err(ServerFault::setup(
                    "the server asks for TLS; add `tls=true` to the address",
                ));
            }
            None => Box::new(stream),
        };
        let (reader, writer) = tokio::io::split(stream);
        let mut connection = Self {
            reader: Reader(ReadBuffer::new(reader, behind)),
            writer,
            info,
            inbox: format!("_INBOX.{}.", Uuid::new_v4().simple()),
        };
        connection.log_in(login).await?;
        Ok(connection)
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), ServerFault> {
        const DOING: &str = "logging in";
        let mut options = json!({
            "verbose": false,
            "pedantic": false,
            "echo": false,
            "headers": true,
            "no_responders": true,
            "tls_required": login.tls.is_some(),
            "protocol": 1,
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "name": format!("posthaste {}", std::process::id()),
        });
        if let Some((user, password)) = &login.user {
            options["user"] = json!(user);
            options["pass"] = json!(password);
        }
        if let Some(token) = &login.token {
            options["auth_token"] = json!(token);
        }
        let inbox = &self.inbox;
        let text = format!("CONNECT {options}\r\nSUB {inbox}* 1\r\nPING\r\n");
        self.send(text.as_bytes(), DOING).await?;
        // Refusals come before the answer to what was said last.
        while !matches!(self.reader.wait(DOING).await?, Incoming::Pong) {}
        Ok(())
    }

    /// Asks a subject something, and waits for the answer. Only before anything is published.
    ///
    /// # Errors
    /// When the connection breaks, or the server refuses the question.
    pub(super) async fn ask(&mut self, subject: &str) -> Result<Message, ServerFault> {
        const DOING: &str = "asking the server";
        let text = format!("PUB {subject} {}0 0\r\n\r\n", self.inbox);
        self.send(text.as_bytes(), DOING).await?;
        loop {
            match self.reader.wait(DOING).await? {
                Incoming::Message(message) => return Ok(message),
                Incoming::Ping => self.send(b"PONG\r\n", DOING).await?,
                Incoming::Info(_) | Incoming::Pong | Incoming::Ok | Incoming::Error(_) => {}
            }
        }
    }

    async fn send(&mut self, bytes: &[u8], doing: &str) -> Result<(), ServerFault> {
        let sent = async {
            self.writer.write_all(bytes).await?;
            self.writer.flush().await
        };
        let Err(error) = sent.await else {
            return Ok(());
        };
        // A server that hangs up may have said why, and that can still be read.
        loop {
            match self.reader.wait(doing).await {
                Ok(_) => {}
                Err(said) if said.cause != Cause::Connection => return Err(said),
                Err(_) => return Err(ServerFault::lost(doing, &error)),
            }
        }
    }
}

/// Reads the server's first words, which it says before it waits for ours. Answers the bytes behind
/// them, too.
async fn greet(stream: &mut TcpStream) -> Result<(ServerInfo, Vec<u8>), ServerFault> {
    let mut reader = Reader(ReadBuffer::new(stream, Vec::new()));
    match reader.wait("waiting for the server's greeting").await? {
        Incoming::Info(info) => Ok((info, reader.0.rest().to_vec())),
        _ => Err(wire::Malformed.into()),
    }
}
