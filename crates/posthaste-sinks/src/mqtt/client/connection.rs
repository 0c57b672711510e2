//! One connection to a broker: made, and left.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadHalf, WriteHalf},
    time::Instant,
};

use super::{
    ClientError,
    packet::{self, ConnAck, Incoming, Version},
    write::{self, Connect, StringTooLong},
};
use crate::transport::{self, ReadBuffer, Stream, Tls};

/// The doing of a connection that was not accepted yet.
pub(in crate::mqtt) const LOGGING_IN: &str = "logging in";

/// How to log in. It has no `Debug`: it holds a password.
pub(in crate::mqtt) struct Login {
    pub(in crate::mqtt) version: Version,
    /// A user, and a password.
    pub(in crate::mqtt) user: Option<(String, Option<String>)>,
    /// How to encrypt the connection, if it is to be.
    pub(in crate::mqtt) tls: Option<Tls>,
}

/// By which name a broker knows a connection, and for how long it keeps a silent one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mqtt) struct ClientIdentity {
    /// A broker ends the connection that has it already.
    pub(in crate::mqtt) client_id: String,
    /// Seconds. A broker ends a connection on which nothing came for half as much again.
    pub(in crate::mqtt) keep_alive: u16,
}

/// A connection that the broker has accepted. Dropping it destroys the socket at once: what the
/// kernel had not sent yet is thrown away.
pub(in crate::mqtt) struct Connection {
    pub(super) reader: Reader<ReadHalf<Box<dyn Stream>>>,
    pub(super) writer: WriteHalf<Box<dyn Stream>>,
    pub(in crate::mqtt) version: Version,
    /// The broker's terms.
    pub(in crate::mqtt) terms: ConnAck,
    /// How long nothing may be sent.
    pub(super) keep_alive: Duration,
}

/// Reads from a broker.
pub(super) struct Reader<S> {
    buffer: ReadBuffer<S>,
    version: Version,
}

impl<S: AsyncRead + Unpin> Reader<S> {
    /// Reads more bytes. Cancel safe.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        self.buffer.fill().await
    }

    /// The next packet among the bytes that were read.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, ClientError> {
        let found = packet::read(self.buffer.rest(), self.version)?;
        Ok(found.map(|(incoming, length)| {
            self.buffer.take(length);
            incoming
        }))
    }

    async fn wait(&mut self, doing: &'static str) -> Result<Incoming, ClientError> {
        loop {
            if let Some(incoming) = self.next()? {
                return Ok(incoming);
            }
            let filled = self.fill().await;
            filled.map_err(|error| ClientError::Lost { doing, error })?;
        }
    }
}

impl Connection {
    /// Connects to `address`, which is `HOST:PORT`, and logs in. With TLS the peer has to prove
    /// that it is `host`. Takes as long as it takes: the caller sets the limit.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(in crate::mqtt) async fn open(
        login: &Login,
        identity: &ClientIdentity,
        host: &str,
        address: &str,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let stream = transport::connect(address, patience).await?;
        let stream: Box<dyn Stream> = match &login.tls {
            Some(tls) => Box::new(tls.wrap(host, stream).await?),
            None => Box::new(stream),
        };
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = Reader {
            buffer: ReadBuffer::new(reader, Vec::new()),
            version: login.version,
        };
        let mut hello = Vec::with_capacity(128);
        write::connect(
            &mut hello,
            &Connect {
                version: login.version,
                client_id: &identity.client_id,
                keep_alive: identity.keep_alive,
                user: login.user.as_ref().map(|(user, _)| &**user),
                password: login.user.as_ref().and_then(|(_, it)| it.as_deref()),
            },
        )
        .map_err(|StringTooLong(_)| ClientError::LoginTooLong)?;
        // A broker that hangs up may have said why. So the answer counts, which fails where this
        // does.
        let _ = send(&mut writer, &hello).await;
        let answer = reader.wait(LOGGING_IN).await?;
        let terms = match answer {
            // A clean start leaves none. It may hold packet ids of before, and a message of QoS 2
            // with one of these would be taken for a repeat, and dropped.
            Incoming::Connected(ack) if ack.reason.code == 0 && ack.has_session => {
                let packet = "a session of before, though we asked for none";
                return Err(ClientError::Unexpected { packet });
            }
            Incoming::Connected(ack) if ack.reason.code == 0 => ack,
            Incoming::Connected(ack) => return Err(ClientError::Refused(ack.reason)),
            Incoming::Disconnect(reason) => return Err(ClientError::Ended(reason)),
            Incoming::Auth => return Err(ClientError::AuthAsked),
            Incoming::Answer { .. } | Incoming::Pong => return Err(ClientError::Malformed),
        };
        let keep_alive = match terms.server_keep_alive {
            // Zero: it keeps us for ever. We go on as we meant to.
            None | Some(0) => identity.keep_alive,
            Some(theirs) => theirs.min(identity.keep_alive),
        };
        Ok(Self {
            reader,
            writer,
            version: login.version,
            terms,
            keep_alive: Duration::from_secs(keep_alive.into()),
        })
    }

    /// Leaves, and waits until the broker has let go of the connection. The caller sets a limit.
    pub(in crate::mqtt) async fn goodbye(mut self) {
        if send(&mut self.writer, write::DISCONNECT).await.is_ok() {
            // Until the end: a socket that is closed at once takes back what it has not sent.
            while self.reader.fill().await.is_ok() {
                let unread = self.reader.buffer.rest().len();
                self.reader.buffer.take(unread);
            }
        }
    }

    /// Asks whether the broker is there, and waits for the answer. Only before anything is
    /// published.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(in crate::mqtt) async fn ping(&mut self) -> Result<Duration, ClientError> {
        const DOING: &str = "asking whether the broker is there";
        let since = Instant::now();
        let sent = send(&mut self.writer, write::PING).await;
        sent.map_err(|error| ClientError::Lost {
            doing: DOING,
            error,
        })?;
        match self.reader.wait(DOING).await? {
            Incoming::Pong => Ok(since.elapsed()),
            Incoming::Disconnect(reason) => Err(ClientError::Ended(reason)),
            _ => Err(ClientError::Unexpected {
                packet: "an answer",
            }),
        }
    }
}

async fn send(writer: &mut WriteHalf<Box<dyn Stream>>, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}
