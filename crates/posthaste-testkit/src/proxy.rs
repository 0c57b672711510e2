//! A TCP proxy that breaks connections on command: put it between a client and a real server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

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

async fn accept(
    listener: std::net::TcpListener,
    server: SocketAddr,
    mut orders: watch::Receiver<Order>,
    connections: Arc<AtomicUsize>,
) {
    let listener = TcpListener::from_std(listener).expect("a listener inside the runtime");
    loop {
        tokio::select! {
            biased;
            changed = orders.changed() => if changed.is_err() { return },
            accepted = listener.accept() => {
                // A client that gave up in the queue is nobody's problem.
                let Ok((client, _)) = accepted else { continue };
                if matches!(orders.borrow().mode, Mode::Refuse) {
                    reset(&client);
                    continue;
                }
                connections.fetch_add(1, Ordering::SeqCst);
                let (orders, connections) = (orders.clone(), Arc::clone(&connections));
                tokio::spawn(async move {
                    connect(client, server, orders).await;
                    connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
    }
}

async fn connect(mut client: TcpStream, server: SocketAddr, orders: watch::Receiver<Order>) {
    // Before anybody can know of the connection, so that it is older than any order about it.
    let Order { cuts, freezes, .. } = *orders.borrow();
    let Ok(mut server) = TcpStream::connect(server).await else {
        reset(&client);
        return;
    };
    for stream in [&client, &server] {
        stream
            .set_nodelay(true)
            .expect("TCP_NODELAY on an open socket");
    }
    let mut cut_orders = orders.clone();
    let met = Notify::new();
    let was_cut = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::join!(
                pump(
                    from_client,
                    to_server,
                    |order| order.flow(freezes, Direction::ToServer),
                    Some(&met),
                    orders.clone()
                ),
                pump(
                    from_server,
                    to_client,
                    |order| order.flow(freezes, Direction::ToClient),
                    None,
                    orders.clone()
                ),
            )
        };
        tokio::select! {
            biased;
            cut = cut_orders.wait_for(|order| order.cuts > cuts) => cut.is_ok(),
            () = met.notified() => true,
            _ = both => false,
        }
    };
    if was_cut {
        reset(&client);
        reset(&server);
    }
}

/// Makes the close that follows a reset, as a crashed host or a firewall would.
fn reset(stream: &TcpStream) {
    // On a socket that its peer has reset already there is nothing left to set.
    let _ = stream.set_zero_linger();
}

/// Moves bytes one way as the present order says, until either side ends. Tells `met`, and stands
/// still, where it comes to what connections are cut at.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    flow: impl Fn(&Order) -> Flow,
    met: Option<&Notify>,
    mut orders: watch::Receiver<Order>,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    // The end of what was moved, in which they may have begun.
    let mut tail = Vec::new();
    loop {
        let order = orders.borrow_and_update().clone();
        let flow = flow(&order);
        let dose = match flow {
            Flow::Free => CHUNK_BYTES,
            Flow::Dosed { bytes_per_second } => usize::try_from(bytes_per_second / 10 + 1)
                .map_or(CHUNK_BYTES, |n| n.min(CHUNK_BYTES)),
            Flow::Held => {
                if orders.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Flow::Frozen => {
                tokio::select! {
                    changed = orders.changed() => if changed.is_err() { return },
                    () = is_closed(&from), if met.is_some() => {
                        met.inspect(|met| met.notify_one());
                        return std::future::pending().await;
                    }
                }
                continue;
            }
            Flow::Closed => break,
        };
        let read = tokio::select! {
            biased;
            changed = orders.changed() => if changed.is_err() { return } else { continue },
            read = from.read(&mut buffer[..dose]) => read,
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(n) if meets(&mut tail, &buffer[..n], met.and(order.cut_at.as_deref())) => {
                met.inspect(|met| met.notify_one());
                return std::future::pending().await;
            }
            Ok(n) if to.write_all(&buffer[..n]).await.is_err() => return,
            Ok(n) => {
                if let Flow::Dosed { bytes_per_second } = flow {
                    let share = n as f64 / f64::from(bytes_per_second);
                    tokio::time::sleep(Duration::from_secs_f64(share)).await;
                }
            }
        }
    }
    // Fails only if the other side is gone, which is what it would have told it.
    let _ = to.shutdown().await;
}

/// Waits until the other side has closed a connection, whatever it had sent before.
async fn is_closed(from: &ReadHalf<'_>) {
    // Bytes that are there to be read would wake us at once, again and again.
    const EVERY: Duration = Duration::from_millis(100);
    while let Ok(ready) = from.ready(Interest::READABLE).await {
        if ready.is_read_closed() {
            return;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Whether a stream has these bytes, of which `tail` may hold the beginning.
fn meets(tail: &mut Vec<u8>, read: &[u8], bytes: Option<&[u8]>) -> bool {
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
        tail.clear();
        return false;
    };
    tail.extend_from_slice(read);
    let has = tail.windows(bytes.len()).any(|window| window == bytes);
    let end = tail.len().saturating_sub(bytes.len() - 1);
    tail.drain(..end);
    has
}
