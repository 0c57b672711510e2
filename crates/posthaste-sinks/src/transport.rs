//! TCP connections of the clients that are our own, with or without TLS.

#[cfg(any(feature = "_aws", feature = "http", feature = "pubsub"))]
mod driver;
#[cfg(feature = "_http")]
mod kept_tls;
mod read_mark;
mod tls;

use std::{io, mem, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use posthaste_engine::LaneSpec;

use crate::address::authority::Host;

#[cfg(any(feature = "_aws", feature = "http", feature = "pubsub"))]
pub(crate) use driver::Driver;
#[cfg(feature = "_http")]
pub(crate) use kept_tls::KeptTls;
pub(crate) use read_mark::ReadMark;
pub(crate) use tls::{Tls, refused_us};

/// Reaching a broker takes no longer than this, however long an answer may take: until then nobody
/// is told what is wrong. A check has no less time than a lane, for a relay that stays away from a
/// broker comes back by a check.
pub(crate) const OPEN_LIMIT: Duration = Duration::from_millis(2_500);

/// How long opening a lane may take.
pub(crate) fn open_limit(spec: &LaneSpec) -> Duration {
    OPEN_LIMIT.min(spec.publish_timeout / 2)
}

/// Why there is no connection, by what its owner does about it.
#[derive(Debug)]
pub(crate) enum TransportError {
    /// It was not made, or broke. Another attempt may succeed.
    Connection(String),
    /// The two sides do not fit together, until somebody changes a setting. The words say which.
    Setup(String),
    /// The broker wants another certificate of ours.
    Certificate(String),
}

impl TransportError {
    /// The words alone.
    #[cfg(any(feature = "claim-check", feature = "schema-registry"))]
    pub(crate) fn into_reason(self) -> String {
        let (Self::Connection(reason) | Self::Setup(reason) | Self::Certificate(reason)) = self;
        reason
    }

    fn io(doing: &str, error: &io::Error) -> Self {
        Self::Connection(format!("{doing}: {error}"))
    }

    fn slow(doing: &str, limit: Duration) -> Self {
        // A share of the time that is left is no round number.
        let millis = (limit.as_micros() + 500) / 1_000;
        let limit = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        Self::Connection(format!("{doing}: no answer within {limit:?}"))
    }
}

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to the first of these servers that gives one. Each is tried in turn, with an equal
/// share of the time that is left; `open` gets its name and its `HOST:PORT`.
///
/// # Errors
/// The reason of the last one.
pub(crate) async fn first_of<'a, C, E, Opening>(
    hosts: &'a [Host],
    default_port: u16,
    limit: Duration,
    open: impl Fn(&'a str, String) -> Opening,
) -> Result<C, E>
where
    E: From<TransportError>,
    Opening: Future<Output = Result<C, E>>,
{
    let end = Instant::now() + limit;
    let mut last = TransportError::slow("connecting", Duration::ZERO).into();
    for (host, left) in hosts.iter().zip((1..=hosts.len()).rev()) {
        let address = host.with_default_port(default_port);
        let time = end.saturating_duration_since(Instant::now());
        let share = time / u32::try_from(left).unwrap_or(u32::MAX);
        last = match timeout(share, open(&host.name, address.clone())).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => TransportError::slow(&format!("connecting to {address}"), share).into(),
        };
    }
    Err(last)
}

/// Connects to `address`, which is `HOST:PORT`. The peer's kernel has `patience` to acknowledge
/// sent bytes. Dropping the stream destroys the socket: what the kernel had not sent yet is thrown
/// away. Takes as long as it takes: the caller sets the limit.
///
/// # Errors
/// Why there is no connection.
pub(crate) async fn connect(
    address: &str,
    patience: Duration,
) -> Result<TcpStream, TransportError> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| TransportError::io(&format!("connecting to {address}"), &error))?;
    prepare(&stream, patience)
        .map_err(|error| TransportError::io("setting up the socket", &error))?;
    Ok(stream)
}

/// As [`connect`], with TLS if that is given: then the peer has to prove that it is `host`, a name
/// or an address, which may stand in brackets.
#[cfg(any(
    feature = "_aws",
    feature = "claim-check",
    feature = "pubsub",
    feature = "schema-registry"
))]
pub(crate) async fn dial(
    host: &str,
    address: &str,
    tls: Option<&KeptTls>,
    patience: Duration,
) -> Result<Box<dyn Stream>, TransportError> {
    let stream = connect(address, patience).await?;
    Ok(match tls {
        None => Box::new(stream),
        Some(tls) => Box::new(tls.wrap(host.trim_matches(['[', ']']), stream).await?),
    })
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

/// Read at once. Answers are small; thousands of them fit.
const READ_BYTES: usize = 64 << 10;

/// Bytes from a stream, of which whole messages are taken.
pub(crate) struct ReadBuffer<S> {
    stream: S,
    bytes: Vec<u8>,
    /// Bytes that are taken already.
    done: usize,
}

impl<S: AsyncRead + Unpin> ReadBuffer<S> {
    /// These bytes, and the stream's behind them.
    pub(crate) fn new(stream: S, bytes: Vec<u8>) -> Self {
        Self {
            stream,
            bytes,
            done: 0,
        }
    }

    /// Reads more bytes. Cancel safe.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        self.bytes.drain(..mem::take(&mut self.done));
        self.bytes.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The bytes that were read and are not taken yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.done..]
    }

    /// So many bytes of the rest are taken.
    pub(crate) fn take(&mut self, count: usize) {
        self.done += count;
    }
}

/// Writes these bytes, or flushes when there are none; answers how many are gone. Cancel safe. A
/// TLS stream may keep written bytes until it is flushed.
pub(crate) async fn write_or_flush(
    writer: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<usize> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(bytes).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_in_milliseconds() {
        let limit = Duration::from_nanos(2_499_992_920);
        let slow = TransportError::slow("connecting", limit);
        let words = "connecting: no answer within 2.5s";
        assert!(matches!(slow, TransportError::Connection(told) if told == words));
    }
}
