//! A TCP proxy that breaks connections on command: put it between a client and a real server.

mod connections;

use connections::accept;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use tokio::sync::watch;

/// Bytes moved at once; also how finely [`Proxy::slow`] doses them.
const CHUNK_BYTES: usize = 16 * 1024;

/// A proxy on a port of 127.0.0.1, on a thread of its own, so that blocking and asynchronous tests
/// use it alike. It passes everything until told otherwise; dropped, it closes all connections.
///
/// An order holds for connections that exist and for those to come, until the next order; bytes
/// sent after the call returned meet it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Dropping it ends the thread.
    order: Option<watch::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone)]
struct Order {
    mode: Mode,
    /// A connection on which a client sends these ends before they arrive.
    cut_at: Option<Arc<[u8]>>,
    /// Connections that began before the last cut have a smaller number, and end.
    cuts: u64,
    /// Connections that began before the last freeze have a smaller number, and stand still.
    freezes: u64,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Pass,
    Refuse,
    Stall,
    HoldAnswers,
    HalfClose,
    Slow { bytes_per_second: u32 },
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

enum Flow {
    Free,
    Dosed { bytes_per_second: u32 },
    Held,
    Frozen,
    Closed,
}

impl Order {
    /// The flow of a connection that began after so many freezes.
    fn flow(&self, freezes: u64, direction: Direction) -> Flow {
        if self.freezes > freezes {
            return Flow::Frozen;
        }
        self.mode.flow(direction)
    }
}

impl Mode {
    fn flow(self, direction: Direction) -> Flow {
        match (self, direction) {
            (Self::Stall, _) | (Self::HoldAnswers, Direction::ToClient) => Flow::Held,
            (Self::HalfClose, Direction::ToClient) => Flow::Closed,
            (Self::Slow { bytes_per_second }, _) => Flow::Dosed { bytes_per_second },
            _ => Flow::Free,
        }
    }
}

impl Proxy {
    /// Starts a proxy for a server, which need not be up yet.
    ///
    /// # Errors
    ///
    /// When no port or no thread can be had.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), server)
    }

    /// The same at an address of this machine, instead of a port of 127.0.0.1 that the system
    /// chooses.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_at(address: SocketAddr, server: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (order, orders) = watch::channel(Order {
            mode: Mode::Pass,
            cut_at: None,
            cuts: 0,
            freezes: 0,
        });
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let thread = thread::Builder::new()
            .name("test-proxy".to_owned())
            .spawn(move || {
                // Dropping the runtime drops the connections with it.
                runtime.block_on(accept(listener, server, orders, counter));
            })?;
        Ok(Self {
            address,
            connections,
            order: Some(order),
            thread: Some(thread),
        })
    }

    /// A proxy for a server on a port of this machine.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn to_local_port(port: u16) -> io::Result<Self> {
        Self::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// The proxy's port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Breaks every connection by a reset, in both directions; new ones are welcome.
    pub fn cut(&self) {
        self.give(|order| order.cuts += 1);
    }

    /// Breaks each connection on which a client sends these bytes, by a reset before they arrive,
    /// until [`Self::resume`]: so does a broker, or a firewall before it, that cannot stand a
    /// message.
    pub fn cut_at(&self, bytes: &[u8]) {
        self.give(|order| order.cut_at = Some(bytes.into()));
    }

    /// Breaks every connection, and each new one at once, until [`Self::resume`].
    pub fn refuse(&self) {
        self.give(|order| {
            order.mode = Mode::Refuse;
            order.cuts += 1;
        });
    }

    /// Moves no byte in either direction; connections stay open and are still accepted.
    pub fn stall(&self) {
        self.give(|order| order.mode = Mode::Stall);
    }

    /// Every connection stays open and never moves a byte again, until its client closes it or a
    /// [`Self::cut`]; new ones are welcome. So it looks to a client when a firewall, a pooler or a
    /// load balancer forgets what lies behind a connection.
    pub fn freeze(&self) {
        self.give(|order| order.freezes += 1);
    }

    /// Requests reach the server, answers do not reach the client: "done, but who knows?".
    pub fn hold_answers(&self) {
        self.give(|order| order.mode = Mode::HoldAnswers);
    }

    /// The client sees the end of the stream, but what it sends still reaches the server.
    pub fn half_close(&self) {
        self.give(|order| order.mode = Mode::HalfClose);
    }

    /// At most this many bytes a second in each direction of each connection.
    pub fn slow(&self, bytes_per_second: u32) {
        let bytes_per_second = bytes_per_second.max(1);
        self.give(|order| order.mode = Mode::Slow { bytes_per_second });
    }

    /// Passes everything again, held bytes first.
    pub fn resume(&self) {
        self.give(|order| (order.mode, order.cut_at) = (Mode::Pass, None));
    }

    fn give(&self, change: impl FnOnce(&mut Order)) {
        let order = self.order.as_ref().expect("taken by drop only");
        order.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.order.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed, and a drop during a panic must not add another.
            let _ = thread.join();
        }
    }
}
