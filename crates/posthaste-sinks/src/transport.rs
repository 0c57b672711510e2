//! TCP connections of the clients that are our own, with or without TLS.

mod tls;

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};

pub(crate) use tls::{Tls, refused_us};

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
    fn io(doing: &str, error: &io::Error) -> Self {
        Self::Connection(format!("{doing}: {error}"))
    }
}

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// How long each of so many attempts may take that follow each other: an equal share of the time
/// that is left when it begins.
pub(crate) fn shares(attempts: usize, limit: Duration) -> impl Iterator<Item = Duration> {
    let end = Instant::now() + limit;
    (1..=attempts).rev().map(move |left| {
        let time = end.saturating_duration_since(Instant::now());
        time / u32::try_from(left).unwrap_or(u32::MAX)
    })
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
