//! A connection with its one session: made, and logged in.

use std::{io, time::Duration};

use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use uuid::Uuid;

use super::{
    Error,
    frame::{self, HEADER_BYTES, Protocol},
    performative::{Incoming, PeerOpen},
};
use crate::transport::{self, ReadBuffer, Stream, Tls};

/// The least limit of a frame that a peer may have.
const FRAME_BYTES_LEAST: u32 = 512;

/// How to log in. It has no `Debug`: it holds a password.
#[derive(Default)]
pub(crate) struct Login {
    /// User and password.
    pub(crate) user: Option<(String, String)>,
    /// How to encrypt the connection, if it is to be.
    pub(crate) tls: Option<Tls>,
}

impl Login {
    /// The mechanisms that will do, the best first, each with its response.
    fn mechanisms(&self) -> Vec<(&'static str, Vec<u8>)> {
        if let Some((user, password)) = &self.user {
            let response = format!("\0{user}\0{password}").into_bytes();
            return vec![("PLAIN", response)];
        }
        let anonymous = ("ANONYMOUS", b"posthaste".to_vec());
        let has_identity = self.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        match has_identity {
            true => vec![("EXTERNAL", Vec::new()), anonymous],
            false => vec![anonymous],
        }
    }
}

/// How long each side may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The peer is asked to say something this often, and is given up after twice as long.
    pub(crate) silence: Duration,
    /// The peer's kernel has so long to acknowledge what was sent.
    pub(crate) acknowledge: Duration,
}

/// A connection. Dropping it destroys the socket at once: what the kernel had not sent yet is
/// thrown away.
pub(crate) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: WriteHalf<Box<dyn Stream>>,
    pub(super) peer: PeerOpen,
    /// The name of this end, and of no other.
    pub(super) container_id: String,
    pub(super) session: PeerSession,
}

/// The peer's numbers, as the session began.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerSession {
    pub(super) next_outgoing_id: u32,
    pub(super) incoming_window: u32,
    pub(super) handle_max: u32,
}

/// Reads frames.
pub(super) struct Reader(pub(super) ReadBuffer<ReadHalf<Box<dyn Stream>>>);

impl Reader {
    /// Reads more bytes. Cancel safe.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        self.0.fill().await
    }

    /// The next frame among the bytes that were read.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, Error> {
        let found = frame::read(self.0.rest())?;
        Ok(found.map(|(incoming, length)| {
            self.0.take(length);
            incoming
        }))
    }

    async fn wait(&mut self, doing: &str) -> Result<Incoming, Error> {
        loop {
            match self.next()? {
                Some(Incoming::Nothing) => {}
                Some(Incoming::Close(why) | Incoming::End(why)) => {
                    return Err(Error::Ended(why.unwrap_or_default()));
                }
                Some(incoming) => return Ok(incoming),
                None => self
                    .fill()
                    .await
                    .map_err(|error| Error::lost(doing, &error))?,
            }
        }
    }

    /// Expects that the peer begins to speak this protocol.
    async fn expect(&mut self, protocol: Protocol, doing: &str) -> Result<(), Error> {
        while self.0.rest().len() < HEADER_BYTES {
            self.0
                .fill()
                .await
                .map_err(|error| Error::lost(doing, &error))?;
        }
        let rest = self.0.rest();
        if rest.starts_with(&protocol.header()) {
            self.0.take(HEADER_BYTES);
            return Ok(());
        }
        Err(Error::NotAmqp(match rest.starts_with(b"AMQP") {
            true if protocol == Protocol::Sasl => {
                "it speaks another version of AMQP, or wants no login; RabbitMQ before version 4 \
                 has AMQP 1.0 in a plugin"
            }
            true => "it speaks another version of AMQP",
            false => "it does not speak AMQP",
        }))
    }
}

impl Connection {
    /// Connects to `address`, which is `HOST:PORT`, logs in and begins a session. With TLS the peer
    /// has to prove that it is `host`. Takes as long as it takes: the caller sets the limit.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) async fn open(
        login: &Login,
        host: &str,
        address: &str,
        timing: Timing,
    ) -> Result<Self, Error> {
        let stream = transport::connect(address, timing.acknowledge).await?;
        let stream: Box<dyn Stream> = match &login.tls {
            Some(tls) => Box::new(tls.wrap(host, stream).await?),
            None => Box::new(stream),
        };
        let (reader, writer) = tokio::io::split(stream);
        let mut connection = Self {
            reader: Reader(ReadBuffer::new(reader, Vec::new())),
            writer,
            peer: PeerOpen::default(),
            container_id: format!("posthaste-{}", Uuid::new_v4().simple()),
            session: PeerSession {
                next_outgoing_id: 0,
                incoming_window: 0,
                handle_max: 0,
            },
        };
        connection.log_in(login, host).await?;
        connection.begin(host, timing).await?;
        Ok(connection)
    }

    async fn log_in(&mut self, login: &Login, host: &str) -> Result<(), Error> {
        const DOING: &str = "logging in";
        self.send(&Protocol::Sasl.header(), DOING).await?;
        self.reader.expect(Protocol::Sasl, DOING).await?;
        let Incoming::Mechanisms(offered) = self.reader.wait(DOING).await? else {
            return Err(Error::NotAmqp("it offers no login"));
        };
        let mut ours = login.mechanisms().into_iter();
        let known = ours.find(|(name, _)| offered.iter().any(|offered| offered == name));
        let Some((mechanism, response)) = known else {
            return Err(Error::Login(no_mechanism(login, &offered)));
        };
        let mut out = Vec::new();
        frame::sasl_init(&mut out, mechanism, &response, host);
        self.send(&out, DOING).await?;
        match self.reader.wait(DOING).await? {
            Incoming::SaslOutcome(0) => Ok(()),
            Incoming::SaslOutcome(4) => Err(Error::LoginLater(format!(
                "the broker cannot check the login for now (SASL {mechanism})"
            ))),
            Incoming::SaslOutcome(code) => Err(Error::Login(format!(
                "the broker refused the login (SASL {mechanism}, code {code})"
            ))),
            _ => Err(Error::NotAmqp("it does not answer the login")),
        }
    }

    async fn begin(&mut self, host: &str, timing: Timing) -> Result<(), Error> {
        const DOING: &str = "opening the connection";
        let idle = u32::try_from(timing.silence.as_millis()).unwrap_or(u32::MAX);
        let mut out = Protocol::Amqp.header().to_vec();
        frame::open(&mut out, &self.container_id, host, idle);
        frame::begin(&mut out);
        self.send(&out, DOING).await?;
        self.reader.expect(Protocol::Amqp, DOING).await?;
        match self.reader.wait(DOING).await? {
            Incoming::Open(peer) if peer.frame_max >= FRAME_BYTES_LEAST => self.peer = peer,
            _ => return Err(Error::NotAmqp("it does not open the connection")),
        }
        match self.reader.wait(DOING).await? {
            Incoming::Begin {
                next_outgoing_id,
                incoming_window,
                handle_max,
            } => {
                self.session = PeerSession {
                    next_outgoing_id,
                    incoming_window,
                    handle_max,
                };
                Ok(())
            }
            _ => Err(Error::NotAmqp("it begins no session")),
        }
    }

    /// The peer, as it introduced itself.
    pub(crate) fn peer(&self) -> &PeerOpen {
        &self.peer
    }

    async fn send(&mut self, bytes: &[u8], doing: &str) -> Result<(), Error> {
        let sent = async {
            self.writer.write_all(bytes).await?;
            self.writer.flush().await
        };
        let Err(error) = sent.await else {
            return Ok(());
        };
        // A peer that hangs up may have said why, and that can still be read.
        match self.reader.wait(doing).await {
            Err(said @ Error::Ended(_)) => Err(said),
            _ => Err(Error::lost(doing, &error)),
        }
    }
}

fn no_mechanism(login: &Login, offered: &[String]) -> String {
    let offered = offered.join(", ");
    let fix = match &login.user {
        Some(_) => "it takes no password (SASL PLAIN)",
        None => "give user and password in the address, or a certificate",
    };
    format!("the broker offers the logins {offered}; {fix}")
}
