//! One connection with one channel in confirm mode: made, spoken on, and let go.

use std::{io, mem, time::Duration};

use posthaste_engine::Cause;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    net::TcpStream,
};

use super::{
    Place,
    fault::Fault,
    tls,
    wire::{self, Incoming},
    write::Writer,
};

/// What we ask for; RabbitMQ offers the same.
const FRAME_MAX: u32 = 131_072;
/// The least that the protocol allows.
const FRAME_MIN: u32 = 4_096;
/// Read at once. Answers are small; thousands of them fit.
const READ_BYTES: usize = 64 << 10;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Dropping it destroys the socket at once: what the kernel had not sent yet is thrown away.
pub(super) struct Connection {
    pub(super) reader: Incomings,
    pub(super) writer: WriteHalf<Box<dyn Stream>>,
    /// Payload of a frame at the most, its frame's overhead included.
    pub(super) frame_max: usize,
    /// Longest silence that both sides have agreed on.
    pub(super) heartbeat: Duration,
}

/// What the broker says, frame by frame.
pub(super) struct Incomings {
    stream: ReadHalf<Box<dyn Stream>>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are read already.
    done: usize,
    frame_max: usize,
}

impl Incomings {
    /// Reads more bytes. Cancel safe.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..mem::take(&mut self.done));
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The next frame among the bytes that were read.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, Fault> {
        let found = wire::read(&self.buffer[self.done..], self.frame_max);
        Ok(found.map_err(Fault::malformed)?.map(|(incoming, length)| {
            self.done += length;
            incoming
        }))
    }

    async fn wait(&mut self, doing: &str) -> Result<Incoming, Fault> {
        loop {
            match self.next()? {
                Some(Incoming::Heartbeat) => {}
                Some(Incoming::ConnectionClose { code, text }) => {
                    return Err(Fault::closed("connection", code, &text));
                }
                Some(Incoming::ChannelClose { code, text }) => {
                    return Err(Fault::closed("channel", code, &text));
                }
                Some(incoming) => return Ok(incoming),
                None => self.fill().await.map_err(|error| lost(doing, &error))?,
            }
        }
    }
}

impl Connection {
    /// Connects, logs in, opens the channel, and looks whether the exchange is there. Takes as long
    /// as it takes: the caller sets the limit.
    ///
    /// `heartbeat` is in whole seconds. `patience` is how long sent bytes may stay without the
    /// peer's acknowledgement.
    pub(super) async fn open(
        place: &Place,
        host: usize,
        heartbeat: u16,
        patience: Duration,
    ) -> Result<Self, Fault> {
        let mut connection = Self::connect(place, host, patience).await?;
        connection.start(place, heartbeat).await?;
        match connection.open_channel(place).await {
            Ok(()) => Ok(connection),
            Err(fault) => {
                // Said politely, or the broker logs each attempt as a client that vanished.
                let _ = connection.goodbye().await;
                Err(fault)
            }
        }
    }

    async fn connect(place: &Place, host: usize, patience: Duration) -> Result<Self, Fault> {
        let host = &place.hosts[host];
        let at = host.with_default_port(place.default_port());
        let stream = TcpStream::connect(&at)
            .await
            .map_err(|error| Fault::io(&format!("connecting to {at}"), &error))?;
        prepare(&stream, patience).map_err(|error| Fault::io("setting up the socket", &error))?;
        let stream: Box<dyn Stream> = match &place.tls {
            Some(tls) => Box::new(tls.wrap(&host.name, stream).await?),
            None => Box::new(stream),
        };
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self {
            reader: Incomings {
                stream: reader,
                buffer: Vec::new(),
                done: 0,
                frame_max: FRAME_MAX as usize,
            },
            writer,
            frame_max: FRAME_MAX as usize,
            heartbeat: Duration::ZERO,
        })
    }

    async fn start(&mut self, place: &Place, heartbeat: u16) -> Result<(), Fault> {
        const DOING: &str = "logging in";
        self.send(wire::PROTOCOL_HEADER.to_vec()).await?;
        match self.reader.wait(DOING).await? {
            Incoming::Start { mechanisms } => {
                if !mechanisms.split(' ').any(|mechanism| mechanism == "PLAIN") {
                    return Err(Fault::new(
                        Cause::Misconfigured,
                        format!(
                            "the broker logs in by {mechanisms} only; allow PLAIN \
                             (`auth_mechanisms` in its configuration)"
                        ),
                    ));
                }
            }
            other => return Err(unexpected(DOING, &other)),
        }
        let name = format!("posthaste {}", std::process::id());
        self.say(|w| w.start_ok(&place.user, &place.password, &name))
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
            other => return Err(unexpected(DOING, &other)),
        };
        self.frame_max = frame_max as usize;
        self.heartbeat = Duration::from_secs(heartbeat.into());
        let mut opening = Vec::new();
        let mut writer = Writer::new(&mut opening);
        writer.tune_ok(frame_max, heartbeat);
        // Its length was checked when the address was read.
        let _ = writer.open(&place.vhost);
        self.send(opening).await?;
        self.expect("opening the vhost", &Incoming::OpenOk).await
    }

    async fn open_channel(&mut self, place: &Place) -> Result<(), Fault> {
        self.say(|w| w.channel_open()).await?;
        self.expect("opening a channel", &Incoming::ChannelOpenOk)
            .await?;
        // The default exchange always is, and refuses to be declared.
        if !place.exchange.is_empty() {
            self.say(|w| {
                let _ = w.exchange_declare_passive(&place.exchange);
            })
            .await?;
            let doing = "looking for the exchange";
            self.expect(doing, &Incoming::ExchangeDeclareOk).await?;
        }
        self.say(|w| w.confirm_select()).await?;
        let doing = "asking for confirms";
        self.expect(doing, &Incoming::ConfirmSelectOk).await
    }

    /// Closes the connection as the protocol wants it, and waits until the broker has.
    pub(super) async fn goodbye(&mut self) -> Result<(), Fault> {
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
                    filled.map_err(|error| lost(DOING, &error))?;
                }
            }
        }
    }

    async fn expect(&mut self, doing: &str, answer: &Incoming) -> Result<(), Fault> {
        let incoming = self.reader.wait(doing).await?;
        if incoming == *answer {
            Ok(())
        } else {
            Err(unexpected(doing, &incoming))
        }
    }

    async fn say(&mut self, method: impl FnOnce(&mut Writer<'_>)) -> Result<(), Fault> {
        let mut out = Vec::new();
        method(&mut Writer::new(&mut out));
        self.send(out).await
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Fault> {
        let sent = async {
            self.writer.write_all(&bytes).await?;
            self.writer.flush().await
        };
        let Err(error) = sent.await else {
            return Ok(());
        };
        // Who hangs up may have said why, and that can still be read.
        match self.reader.wait("sending").await {
            Err(fault) if fault.cause != Cause::Connection => Err(fault),
            _ => Err(lost("sending", &error)),
        }
    }
}

fn prepare(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Closing throws away what the kernel has not sent: an aborted lane must not go on sending.
    stream.set_zero_linger()?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(patience.as_millis()).unwrap_or(u32::MAX),
    )?;
    #[cfg(not(target_os = "linux"))]
    let _ = patience;
    Ok(())
}

pub(super) fn lost(doing: &str, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Fault::hung_up(doing),
        _ => tls::refused_us(error).unwrap_or_else(|| Fault::io(doing, error)),
    }
}

pub(super) fn unexpected(doing: &str, incoming: &Incoming) -> Fault {
    Fault::new(
        Cause::Connection,
        format!("{doing}: the broker answered out of turn with {incoming:?}"),
    )
}
