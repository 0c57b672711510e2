//! The connections of a proxy, each moved as the present order says.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{Notify, watch},
};

use super::{CHUNK_BYTES, Direction, Flow, Mode, Order};

pub(super) async fn accept(
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
                // In one look, and before anybody can know of the connection: what is ordered from
                // here on concerns it.
                let since = orders.borrow().clone();
                if matches!(since.mode, Mode::Refuse) {
                    reset(&client);
                    continue;
                }
                connections.fetch_add(1, Ordering::SeqCst);
                let (orders, connections) = (orders.clone(), Arc::clone(&connections));
                tokio::spawn(async move {
                    connect(client, server, &since, orders).await;
                    connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
    }
}

async fn connect(
    mut client: TcpStream,
    server: SocketAddr,
    since: &Order,
    orders: watch::Receiver<Order>,
) {
    let &Order { cuts, freezes, .. } = since;
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
