//! Connections to the endpoint: made to addresses that were looked at, and asked for one answer at
//! a time.

use std::{error::Error as _, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_LENGTH, HeaderMap, LOCATION, RETRY_AFTER, TRANSFER_ENCODING},
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

use super::{
    answer::{Answer, excerpt},
    fault::HostFault,
    guard::not_public,
    retry_after,
    target::{PROXY_PORT, Proxy, Target},
};
use crate::{
    address::authority::Host,
    transport::{self, Driver, KeptTls, Stream},
};

/// Bytes of an answer's head at the most. Servers send hundreds.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of an answer's body that are read, so that its connection can be used again. More of it
/// tells nothing.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a body that are kept for an excerpt: enough for its characters.
const KEPT_BYTES: usize = 1 << 10;
/// Bytes of a proxy's answer at the most.
const PROXY_BYTES_MAX: usize = 8 << 10;
/// The addresses of names.
#[async_trait]
pub(super) trait Resolve: Send + Sync {
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// Those of the system.
pub(super) struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((host, port)).await?.collect())
    }
}

/// Makes connections to the endpoint.
pub(super) struct Dialer {
    pub(super) target: Arc<Target>,
    resolver: Arc<dyn Resolve>,
    tls: Option<KeptTls>,
}

/// A connection to the endpoint. Dropping it destroys the socket: what the kernel had not sent yet
/// is thrown away.
pub(super) struct Connection {
    // Before the sender, whose end would be one in order.
    driver: Driver,
    sender: SendRequest<Full<Bytes>>,
    /// The address at its other end: the endpoint's, or a proxy's.
    pub(super) peer: SocketAddr,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish()
    }
}

/// The end of a request that may have been sent.
#[derive(Debug)]
pub(super) enum Exchange {
    /// The endpoint's answer, and the connection where it can be used again.
    Answered(Answer, Option<Connection>),
    /// Nothing of it was sent.
    Unsent,
    /// It may have arrived; why there is no answer.
    Broken(HostFault),
}

impl Dialer {
    pub(super) fn new(target: Arc<Target>, resolver: Arc<dyn Resolve>) -> Self {
        Self {
            tls: target.tls.clone().map(KeptTls::new),
            target,
            resolver,
        }
    }

    /// Connects until `end`. The peer's kernel has `patience` to acknowledge sent bytes.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn connect(
        &self,
        end: Instant,
        patience: Duration,
    ) -> Result<Connection, HostFault> {
        let limit = end.saturating_duration_since(Instant::now());
        let connecting = self.connect_to_any(end, patience);
        match timeout_at(end, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(HostFault::slow(
                &format!("connecting to {}", self.target.address()),
                limit,
            )),
        }
    }

    async fn connect_to_any(
        &self,
        end: Instant,
        patience: Duration,
    ) -> Result<Connection, HostFault> {
        let addresses = self.addresses().await?;
        let mut last = HostFault::connection("its name has no address".to_owned());
        for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
            let time = end.saturating_duration_since(Instant::now());
            let share = time / u32::try_from(left).unwrap_or(u32::MAX);
            let attempt = self.connect_to(*address, patience);
            last = match tokio::time::timeout(share, attempt).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(fault)) => fault,
                Err(_) => HostFault::slow(&format!("connecting to {address}"), share),
            };
        }
        Err(last)
    }

    /// The addresses to connect to: what is connected to is what was looked at.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, HostFault> {
        let Target { host, proxy, .. } = &*self.target;
        let Some(proxy) = proxy else {
            let addresses = self.look_up(host, self.target.port()).await?;
            return self.only_public(host, addresses);
        };
        // The proxy looks the endpoint's name up, and is one that the operator named. An address
        // needs no look, in any of the forms that systems take: `127.1`, `0x7f000001`, `127.0.0.1.`
        if is_address(&host.name) {
            let addresses = self.look_up(host, self.target.port()).await?;
            self.only_public(host, addresses)?;
        }
        self.look_up(&proxy.host, proxy.host.port.unwrap_or(PROXY_PORT))
            .await
    }

    async fn look_up(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, HostFault> {
        let name = &host.name;
        let found = self.resolver.addresses(name, port).await;
        found.map_err(|error| HostFault::connection(format!("looking up `{name}`: {error}")))
    }

    fn only_public(
        &self,
        host: &Host,
        mut addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, HostFault> {
        if self.target.allows_private {
            return Ok(addresses);
        }
        let refused = addresses
            .iter()
            .find_map(|address| Some((address.ip(), not_public(address.ip())?)));
        addresses.retain(|address| not_public(address.ip()).is_none());
        match refused {
            Some((address, kind)) if addresses.is_empty() => Err(HostFault::setup(format!(
                "`{}` is at {address}, {kind}; correct the host, or add `allow_private=true` \
                 where the endpoint is one of your own",
                host.name
            ))),
            _ => Ok(addresses),
        }
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<Connection, HostFault> {
        let mut stream = transport::connect(&address.to_string(), patience).await?;
        let Target { proxy, host, .. } = &*self.target;
        if let (Some(proxy), Some(_)) = (proxy, &self.tls) {
            open_tunnel(&mut stream, proxy, &self.target.address()).await?;
        }
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.wrap(&host.name, stream).await?),
        };
        let handshake = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) =
            handshake.map_err(|error| HostFault::connection(format!("beginning HTTP: {error}")))?;
        let driver = Driver::start(connection, "an endpoint");
        Ok(Connection {
            sender,
            driver,
            peer: address,
        })
    }
}

/// Whether a system takes the name for an address, or for itself, without asking anybody.
fn is_address(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").unwrap_or(last);
    let is_number = last.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number || last == "localhost" || name.contains(':')
}

/// Asks a proxy for a connection to `address`.
async fn open_tunnel(
    stream: &mut TcpStream,
    proxy: &Proxy,
    address: &str,
) -> Result<(), HostFault> {
    let mut request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n").into_bytes();
    if let Some(login) = &proxy.login {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(login.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let broken = |error: io::Error| HostFault::connection(format!("asking the proxy: {error}"));
    stream.write_all(&request).await.map_err(broken)?;
    let mut head = Vec::new();
    // Byte by byte: what stands behind the head is the endpoint's.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == PROXY_BYTES_MAX {
            return Err(not_a_proxy());
        }
        head.push(stream.read_u8().await.map_err(broken)?);
    }
    match tunnel_status(&head) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(HostFault {
            cause: posthaste_engine::Cause::Denied,
            reason: "the proxy asks for a login (407); correct `proxy_password`".to_owned(),
        }),
        Some(status @ (403 | 405)) => Err(HostFault::setup(format!(
            "the proxy refuses to connect to {address} ({status}); allow it there"
        ))),
        Some(status) => Err(HostFault::connection(format!(
            "the proxy did not connect to {address} ({status})"
        ))),
        None => Err(not_a_proxy()),
    }
}

fn not_a_proxy() -> HostFault {
    HostFault::setup("what answers there is no HTTP proxy; correct `proxy`")
}

/// The status in the head of a proxy's answer.
pub(super) fn tunnel_status(head: &[u8]) -> Option<u16> {
    let line = head.split(|&byte| byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let version = words.next()?;
    let status = words.next()?;
    let is_status = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    let is_http = matches!(version, "HTTP/1.0" | "HTTP/1.1");
    (is_http && is_status)
        .then(|| status.parse().ok())
        .flatten()
}

impl Connection {
    /// Whether the other end is known to have closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Takes leave of a server to which no request is under way: it reads an end, not a reset.
    pub(super) fn close(self) {
        self.driver.let_go();
    }

    /// Sends a request and reads its answer. Takes as long as it takes: the caller sets the limit.
    pub(super) async fn ask(mut self, request: Request<Full<Bytes>>) -> Exchange {
        if self.sender.ready().await.is_err() {
            return Exchange::Unsent;
        }
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                return match error.take_message() {
                    Some(_) => Exchange::Unsent,
                    None => Exchange::Broken(HostFault::broken(&error.into_error())),
                };
            }
        };
        let (head, body) = response.into_parts();
        let has_end =
            [CONTENT_LENGTH, TRANSFER_ENCODING].map(|name| head.headers.contains_key(name));
        match read_body(body, has_end.contains(&true)).await {
            Ok((kept, is_whole)) => {
                let answer = Answer {
                    status: head.status,
                    wait: header(&head.headers, &RETRY_AFTER)
                        .and_then(|value| retry_after::wait(value, Timestamp::now())),
                    location: header(&head.headers, &LOCATION).map(without_secrets),
                    excerpt: excerpt(&kept),
                };
                Exchange::Answered(answer, is_whole.then_some(self))
            }
            Err(error) => Exchange::Broken(HostFault::broken(&error)),
        }
    }
}

/// Reads a body up to its end or its limit. Answers its beginning, and whether the end came. One
/// without an end of its own ends with the connection, which some servers cut in TLS.
async fn read_body(mut body: Incoming, has_end: bool) -> Result<(Vec<u8>, bool), hyper::Error> {
    let (mut kept, mut read) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Err(error) if !has_end && is_cut_tls(&error) => return Ok((kept, false)),
            frame => frame?,
        };
        if let Ok(data) = frame.into_data() {
            read += data.len();
            let room = KEPT_BYTES - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
        if read > BODY_BYTES_MAX {
            return Ok((kept, false));
        }
    }
    Ok((kept, true))
}

fn is_cut_tls(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref());
    source.is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof)
}

fn header<'h>(headers: &'h HeaderMap, name: &hyper::header::HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// A location as it may be told: a query may hold a secret, and so may a login.
fn without_secrets(location: &str) -> String {
    let end = location.find(['?', '#']).unwrap_or(location.len());
    let location = &location[..end];
    let told = match location.split_once("//") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            let host = rest.split('/').next().unwrap_or_default();
            let login = host.rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}//{}", &rest[login..])
        }
        _ => location.to_owned(),
    };
    excerpt(told.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::net::TcpListener;

    use super::*;
    use crate::http::tests::target;

    /// Answers one list after the other.
    struct Changing(Mutex<Vec<Vec<SocketAddr>>>);

    #[async_trait]
    impl Resolve for Changing {
        async fn addresses(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            Ok(self.0.lock().unwrap().remove(0))
        }
    }

    fn dialer(url: &str, answers: &[&[SocketAddr]]) -> Dialer {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Dialer::new(
            Arc::new(target(url)),
            Arc::new(Changing(Mutex::new(answers))),
        )
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn an_address_that_changes_is_looked_at_again() {
        let (public, private) = (address("1.1.1.1:443"), address("127.0.0.1:443"));
        let mapped = address("[::ffff:10.0.0.1]:443");
        let answers: [&[SocketAddr]; 3] = [&[private, public, mapped], &[private], &[mapped]];
        let dialer = dialer("https://h/", &answers);
        assert_eq!(dialer.addresses().await, Ok(vec![public]));
        for kind in ["a loopback address", "a private address"] {
            let fault = dialer.addresses().await.unwrap_err();
            assert!(fault.reason.contains(kind), "{fault:?}");
        }
    }

    /// And no other one, whatever the name means a moment later.
    #[tokio::test]
    async fn the_address_that_was_looked_at_is_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let (second, end) = (
            Duration::from_secs(1),
            Instant::now() + Duration::from_secs(30),
        );
        let dialer = dialer("http://h/?allow_private=true", &[&[here]]);
        let connection = dialer.connect(end, second).await.unwrap();
        assert_eq!(connection.peer, here);
        listener.accept().await.unwrap();

        let guarded = super::tests::dialer("http://h/", &[&[here]]);
        let fault = guarded.connect(end, second).await.unwrap_err();
        assert_eq!(fault.cause, posthaste_engine::Cause::Misconfigured);
        let next = tokio::time::timeout(Duration::from_millis(50), listener.accept());
        assert!(next.await.is_err(), "it was connected to");
    }

    #[test]
    fn addresses_are_known_in_all_their_forms() {
        for name in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "169.254.169.254.",
            "::1",
            "localhost",
            "a.LocalHost.",
        ] {
            assert!(is_address(name), "{name}");
        }
        for name in ["h", "hooks.example", "1.example", "0xabc.example", "a.b2"] {
            assert!(!is_address(name), "{name}");
        }
    }

    #[test]
    fn locations_are_told_without_secrets() {
        for (location, told) in [
            ("https://u:p@h/a?b#c", "https://h/a"),
            ("//u@h", "//h"),
            ("/a//b@c", "/a//b@c"),
            ("/in?x=y", "/in"),
        ] {
            assert_eq!(without_secrets(location), told);
        }
    }

    #[test]
    fn a_status_is_read_from_a_proxys_head() {
        for (head, status) in [
            (
                &b"HTTP/1.1 200 Connection established\r\n\r\n"[..],
                Some(200),
            ),
            (b"HTTP/1.0 407 \r\n\r\n", Some(407)),
            (b"HTTP/1.1 503\r\n\r\n", Some(503)),
            (b"HTTP/1.1 20 OK\r\n\r\n", None),
            (b"SSH-2.0-OpenSSH\r\n", None),
            (b"\r\n\r\n", None),
        ] {
            assert_eq!(tunnel_status(head), status);
        }
    }
}
