//! Connections with bounds: so many at once, and none for longer than a request needs.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::{Sleep, sleep},
};

/// A scraper, probes and some people with a browser; each connection costs some KiB.
const CONNECTIONS_MAX: usize = 32;
/// From accept to the end of the answer. On one machine a request takes milliseconds, and the
/// slowest answer is bounded below this.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

/// Ends the oldest connection where there is no room for the next: a client that says nothing keeps
/// nobody waiting.
pub(super) struct Bounded {
    listener: TcpListener,
    /// The oldest first; dropping it ends the connection.
    open: VecDeque<oneshot::Sender<()>>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            open: VecDeque::with_capacity(CONNECTIONS_MAX),
        }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        self.open.retain(|connection| !connection.is_closed());
        if self.open.len() >= CONNECTIONS_MAX {
            self.open.pop_front();
        }
        let (open, ended) = oneshot::channel();
        self.open.push_back(open);
        let connection = Connection {
            stream,
            deadline: Box::pin(sleep(CONNECTION_MAX)),
            ended,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when its time is over, or its room is needed.
pub(super) struct Connection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    ended: oneshot::Receiver<()>,
}

impl Connection {
    /// The stream, while there is time; the task wakes when that ends.
    fn in_time(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        let over = self.deadline.as_mut().poll(cx).is_ready();
        if over || Pin::new(&mut self.ended).poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.in_time(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.in_time(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.in_time(cx)?.poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}
