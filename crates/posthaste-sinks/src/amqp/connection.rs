//! One connection with one channel in confirm mode: made, spoken on, and let go.

use std::{io, sync::Arc, time::Duration};

use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use super::{
    error::Error,
    wire::{self, Incoming},
    write::FrameWriter,
};
use crate::transport::{self, ReadBuffer, Stream, Tls};

/// The frame size that we ask for; RabbitMQ offers the same.
const FRAME_MAX: u32 = 131_072;
/// The least that the protocol allows.
const FRAME_MIN: u32 = 4_096;

/// The user who logs in, and the exchange. It has no `Debug`: it holds a password.
pub(crate) struct Login {
    /// How to encrypt the connection, if it is to be.
    pub(crate) tls: Option<Tls>,
    /// The user.
    pub(crate) user: String,
    /// The password.
    pub(crate) password: String,
    /// The virtual host, of 255 bytes at the most.
    pub(crate) vhost: String,
    /// The exchange, of 255 bytes at the most; an empty name is the default exchange.
    pub(crate) exchange: Arc<str>,
}

/// How long a peer may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Whole seconds between heartbeats.
    pub(crate) heartbeat: u16,
    /// Until sent bytes are acknowledged by the peer's kernel.
    pub(crate) patience: Duration,
}

/// Dropping it destroys the socket at once: what the kernel had not sent yet is thrown away.
pub(crate) struct Connection {
    pub(super) reader: FrameReader,
    pub(super) writer: WriteHalf<Box<dyn Stream>>,
    /// Payload of a frame at the most, its frame's overhead included.
    pub(super) frame_max: usize,
    /// Longest silence that both sides have agreed on.
    pub(super) heartbeat: Duration,
    pub(super) exchange: Arc<str>,
}

/// The broker's frames.
pub(super) struct FrameReader {
    buffer: ReadBuffer<ReadHalf<Box<dyn Stream>>>,
    frame_max: usize,
}

impl FrameReader {
    /// Reads more bytes. Cancel safe.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        self.buffer.fill().await
    }

    /// The next frame among the bytes that were read.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, Error> {
        let found = wire::read(self.buffer.rest(), self.frame_max);
        Ok(found.map_err(Error::malformed)?.map(|(incoming, length)| {
            self.buffer.take(length);
            incoming
        }))
    }

    async fn wait(&mut self, doing: &str) -> Result<Incoming, Error> {
        loop {
            match self.next()? {
                Some(Incoming::Heartbeat) => {}
                Some(Incoming::ConnectionClose { code, text }) => {
                    let what = "connection";
                    return Err(Error::Closed { what, code, text });
                }
                Some(Incoming::ChannelClose { code, text }) => {
                    let what = "channel";
                    return Err(Error::Closed { what, code, text });
                }
                Some(incoming) => return Ok(incoming),
                None => self
                    .fill()
                    .await
                    .map_err(|error| Error::lost(doing, &error))?,
            }
        }
    }
}

impl Connection {
    /// Connects to `address`, which is `HOST:PORT`, logs in, opens the channel, and looks whether
    /// the exchange is there. With TLS the peer has to prove that it is `host`. Takes as long as it
    /// takes: the caller sets the limit.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) async fn open(
        login: &Login,
        host: &str,
        address: &str,
        timing: Timing,
    ) -> Result<Self, Error> {
        let mut connection = Self::connect(login, host, address, timing.patience).await?;
        connection.start(login, timing.heartbeat).await?;
        match connection.open_channel().await {
            Ok(()) => Ok(connection),
            Err(error) => {
                // Said politely, or the broker logs each attempt as a client that vanished.
                let _ = connection.goodbye().await;
                Err(error)
            }
        }
    }

    async fn connect(
        login: &Login,
        host: &str,
        address: &str,
        patience: Duration,
    ) -> Result<Self, Error> {
        let stream = transport::connect(address, patience).await?;
        let stream: Box<dyn Stream> = match &login.tls {
            Some(tls) => Box::new(tls.wrap(host, stream).await?),
            None => Box::new(stream),
        };
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self {
            reader: FrameReader {
                buffer: ReadBuffer::new(reader, Vec::new()),
                frame_max: FRAME_MAX as usize,
            },
            writer,
            frame_max: FRAME_MAX as usize,
            heartbeat: Duration::ZERO,
            exchange: Arc::clone(&login.exchange),
        })
    }

    async fn start(&mut self, login: &Login, heartbeat: u16) -> Result<(), Error> {
        const DOING: &str = "logging in";
        self.send(wire::PROTOCOL_HEADER.to_vec()).await?;
        match self.reader.wait(DOING).await? {
            Incoming::Start { mechanisms } => {
                if !mechanisms.split(' ').any(|mechanism| mechanism == "PLAIN") {
                    return Err(Error::Setup(format!(
                        "the broker logs in by {mechanisms} only; allow PLAIN (`auth_mechanisms` \
                         in its configuration)"
                    )));
                }
            }
            other => return Err(Error::unexpected(DOING, &other)),
        }
        let name = format!("posthaste {}", std::process::id());
        self.say(|w| w.start_ok(&login.user, &login.password, &name))
            .await?;
        let (frame_max, heartbeat) = match self.reader.wait(DOING).await? {
            // 0 means that the server sets no limit.
            Incoming::Tune {
                frame_max,
                heartbeat: theirs,
            } => (
                if frame_max == 0 {
                    FRAME_MAX
                } else {
                    frame_max.clamp(FRAME_MIN, FRAME_MAX)
                },
                if theirs == 0 {
                    heartbeat
                } else {
                    heartbeat.min(theirs)
                },
            ),
            other => return Err(Error::unexpected(DOING, &other)),
        };
        self.frame_max = frame_max as usize;
        self.heartbeat = Duration::from_secs(heartbeat.into());
        let mut opening = Vec::new();
        let mut writer = FrameWriter::new(&mut opening);
        writer.tune_ok(frame_max, heartbeat);
        // Its length was checked when the address was read.
        let _ = writer.open(&login.vhost);
        self.send(opening).await?;
        self.expect("opening the vhost", &Incoming::OpenOk).await
    }

    async fn open_channel(&mut self) -> Result<(), Error> {
        self.say(|w| w.channel_open()).await?;
        self.expect("opening a channel", &Incoming::ChannelOpenOk)
            .await?;
        // The default exchange always is, and refuses to be declared.
        if !self.exchange.is_empty() {
            let exchange = Arc::clone(&self.exchange);
            self.say(|w| {
                // Its length was checked when the address was read.
                let _ = w.exchange_declare_passive(&exchange);
            })
            .await?;
            let doing = "looking for the exchange";
            self.expect(doing, &Incoming::ExchangeDeclareOk).await?;
        }
        self.say(|w| w.confirm_select()).await?;
        let doing = "asking for confirms";
        self.expect(doing, &Incoming::ConfirmSelectOk).await
    }

    /// The bytes of a frame at the most, and the longest silence, that both sides agreed on.
    pub(crate) fn agreed(&self) -> (usize, Duration) {
        (self.frame_max, self.heartbeat)
    }

    /// Closes the connection as the protocol wants it, and waits until the broker has.
    ///
    /// # Errors
    /// When the connection breaks before.
    pub(crate) async fn goodbye(&mut self) -> Result<(), Error> {
        const DOING: &str = "closing the connection";
        self.say(|w| w.connection_close()).await?;
        loop {
            match self.reader.next()? {
                Some(Incoming::ConnectionCloseOk | Incoming::ConnectionClose { .. }) => {
                    return Ok(());
                }
                Some(_) => {}
                None => {
                    let filled = self.reader.fill().await;
                    filled.map_err(|error| Error::lost(DOING, &error))?;
                }
            }
        }
    }

    async fn expect(&mut self, doing: &str, answer: &Incoming) -> Result<(), Error> {
        let incoming = self.reader.wait(doing).await?;
        if incoming == *answer {
            Ok(())
        } else {
            Err(Error::unexpected(doing, &incoming))
        }
    }

    async fn say(&mut self, method: impl FnOnce(&mut FrameWriter<'_>)) -> Result<(), Error> {
        let mut out = Vec::new();
        method(&mut FrameWriter::new(&mut out));
        self.send(out).await
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        let sent = async {
            self.writer.write_all(&bytes).await?;
            self.writer.flush().await
        };
        let Err(error) = sent.await else {
            return Ok(());
        };
        // A broker that hangs up may have said why, and that can still be read.
        match self.reader.wait("sending").await {
            Err(said) if !matches!(said, Error::Connection(_)) => Err(said),
            _ => Err(Error::lost("sending", &error)),
        }
    }
}
