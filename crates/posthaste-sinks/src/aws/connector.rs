//! Requests of the SDK over connections of our own: TLS, limits and their end are those of the
//! other sinks, and dropping a request destroys its socket.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_smithy_runtime_api::{
    client::{
        http::{
            HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings,
            SharedHttpConnector,
        },
        orchestrator::{HttpRequest, HttpResponse},
        result::ConnectorError,
        runtime_components::RuntimeComponents,
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::HOST,
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};

use super::fault::CallFault;
use crate::transport::{self, Driver, KeptTls};

/// Bytes of an answer at the most. One to 500 events has some 100 000.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// A connection is closed after this time without a request. Servers close idle ones too, AWS after
/// twenty seconds and others sooner, and a request that meets that is sent twice.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The connections of a lane, or of the search for credentials.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    tls: Arc<KeptTls>,
    /// Until there is a connection, unless a request has less time.
    connect_limit: Duration,
    /// Until the peer's kernel has acknowledged sent bytes.
    acknowledgement: Duration,
    idle: Mutex<Vec<Idle>>,
}

/// A connection without a request.
#[derive(Debug)]
struct Idle {
    server: Server,
    since: Instant,
    connection: Connection,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Server {
    host: String,
    port: u16,
    is_encrypted: bool,
}

/// Dropping it destroys the socket: what the kernel had not sent yet is thrown away.
#[derive(Debug)]
struct Connection {
    // Before the sender, whose end would be one in order.
    driver: Driver,
    sender: SendRequest<Full<Bytes>>,
}

/// The end of a request.
enum Exchange {
    Answered(Box<HttpResponse>, Connection),
    /// Nothing of it was sent.
    Unsent,
    /// It may have arrived, and nothing of its answer has.
    Broken(CallFault),
    /// Its answer is none.
    Garbled(CallFault),
}

impl Connections {
    pub(crate) fn new(
        tls: Arc<KeptTls>,
        connect_limit: Duration,
        acknowledgement: Duration,
    ) -> Self {
        Self(Arc::new(Pool {
            tls,
            connect_limit,
            acknowledgement,
            idle: Mutex::default(),
        }))
    }

    /// Takes leave of the servers to which no request is under way: they read an end, not a reset.
    pub(crate) fn close_idle(&self) {
        for idle in self.0.idle().drain(..) {
            idle.connection.close();
        }
    }
}

impl HttpClient for Connections {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(Caller {
            pool: Arc::clone(&self.0),
            connect_limit: settings.connect_timeout(),
            answer_limit: settings.read_timeout(),
        })
    }
}

/// Makes requests within limits of the SDK's, which it sets for those of its own.
#[derive(Debug)]
struct Caller {
    pool: Arc<Pool>,
    connect_limit: Option<Duration>,
    answer_limit: Option<Duration>,
}

impl HttpConnector for Caller {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let pool = Arc::clone(&self.pool);
        let connect_limit = self
            .connect_limit
            .map_or(pool.connect_limit, |limit| limit.min(pool.connect_limit));
        let answer_limit = self.answer_limit;
        HttpConnectorFuture::new(async move {
            let asking = pool.ask(&request, connect_limit);
            let answer = match answer_limit {
                None => asking.await,
                Some(limit) => match timeout(connect_limit + limit, asking).await {
                    Ok(answer) => answer,
                    Err(_) => Err(CallFault::slow("waiting for the answer", limit)),
                },
            };
            answer.map_err(|fault| ConnectorError::io(fault.into()))
        })
    }
}

impl Pool {
    /// Sends a request, on a connection that is idle or on another one. One that broke says little:
    /// a server may close it at any time, so it is sent again, once, on a new one.
    async fn ask(
        &self,
        request: &HttpRequest,
        connect_limit: Duration,
    ) -> Result<HttpResponse, CallFault> {
        let (server, request) = of_hyper(request)?;
        let mut has_broken = false;
        loop {
            let idle = match has_broken {
                true => None,
                false => self.take_idle(&server),
            };
            let is_reused = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                None => self.connect(&server, connect_limit).await?,
            };
            match connection.ask(request.clone()).await {
                Exchange::Answered(answer, connection) => {
                    self.keep(server, connection);
                    return Ok(*answer);
                }
                Exchange::Unsent if is_reused => {}
                Exchange::Broken(_) if is_reused => has_broken = true,
                Exchange::Unsent => {
                    let reason = "a new connection was closed before a request was sent";
                    return Err(CallFault::connection(reason));
                }
                Exchange::Broken(mut fault) | Exchange::Garbled(mut fault) => {
                    fault.has_connected = true;
                    return Err(fault);
                }
            }
        }
    }

    fn take_idle(&self, server: &Server) -> Option<Connection> {
        let mut idle = self.idle();
        let is_of_no_use = |idle: &mut Idle| {
            idle.since.elapsed() >= IDLE_MAX || idle.connection.sender.is_closed()
        };
        for useless in idle.extract_if(.., is_of_no_use) {
            useless.connection.close();
        }
        let at = idle.iter().position(|idle| idle.server == *server)?;
        Some(idle.remove(at).connection)
    }

    fn keep(&self, server: Server, connection: Connection) {
        self.idle().push(Idle {
            server,
            since: Instant::now(),
            connection,
        });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        // Nothing panics while it holds the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, server: &Server, limit: Duration) -> Result<Connection, CallFault> {
        let connected = timeout(limit, self.connect_to(server)).await;
        connected.unwrap_or_else(|_| {
            let doing = format!("connecting to {}:{}", server.host, server.port);
            Err(CallFault::slow(&doing, limit))
        })
    }

    async fn connect_to(&self, server: &Server) -> Result<Connection, CallFault> {
        let address = format!("{}:{}", server.host, server.port);
        let tls = server.is_encrypted.then_some(&*self.tls);
        let stream = transport::dial(&server.host, &address, tls, self.acknowledgement).await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) =
            handshake.map_err(|error| CallFault::connection(format!("beginning HTTP: {error}")))?;
        let driver = Driver::start(connection, "AWS");
        Ok(Connection { sender, driver })
    }
}

impl Connection {
    /// Takes leave of a server to which no request is under way: it reads an end, not a reset.
    fn close(self) {
        self.driver.let_go();
    }

    async fn ask(mut self, request: Request<Full<Bytes>>) -> Exchange {
        if self.sender.ready().await.is_err() {
            return Exchange::Unsent;
        }
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                return match error.take_message() {
                    Some(_) => Exchange::Unsent,
                    None => {
                        let error = error.into_error();
                        match error.is_parse() {
                            true => Exchange::Garbled(broken(&error)),
                            false => Exchange::Broken(broken(&error)),
                        }
                    }
                };
            }
        };
        match of_sdk(response).await {
            Ok(response) => Exchange::Answered(Box::new(response), self),
            Err(fault) => Exchange::Garbled(fault),
        }
    }
}

/// The connection broke, by the client's error.
fn broken(error: &hyper::Error) -> CallFault {
    if error.is_parse() {
        return CallFault::setup(format!(
            "what answers there does not speak HTTP/1.1 ({error}); correct `endpoint`"
        ));
    }
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    CallFault::connection(format!("the connection broke: {root}"))
}

/// The server of a request, and the request as it is sent there.
fn of_hyper(request: &HttpRequest) -> Result<(Server, Request<Full<Bytes>>), CallFault> {
    let wrong = || CallFault::setup("the endpoint makes no request; correct `endpoint`");
    let uri: Uri = request.uri().parse().map_err(|_| wrong())?;
    let authority = uri.authority().ok_or_else(wrong)?;
    let is_encrypted = uri.scheme_str() == Some("https");
    let default_port = if is_encrypted { 443 } else { 80 };
    let server = Server {
        host: authority.host().to_owned(),
        port: authority.port_u16().unwrap_or(default_port),
        is_encrypted,
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut sent = Request::builder().method(request.method()).uri(path);
    for (name, value) in request.headers().iter() {
        sent = sent.header(name, value);
    }
    if !request.headers().contains_key("host") {
        let host = match server.port == default_port {
            true => server.host.clone(),
            false => format!("{}:{}", server.host, server.port),
        };
        sent = sent.header(HOST, host);
    }
    // The SDK has no request with a body that is a stream, but for services that store files.
    let body = Bytes::copy_from_slice(request.body().bytes().ok_or_else(wrong)?);
    let sent = sent.body(Full::new(body)).map_err(|_| wrong())?;
    Ok((server, sent))
}

/// An answer for the SDK, read as a whole.
async fn of_sdk(response: Response<Incoming>) -> Result<HttpResponse, CallFault> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<hyper::Error>() {
        Some(error) => broken(error),
        None => CallFault::setup("an answer of more than 1 MiB; correct `endpoint`"),
    })?;
    let wrong = || CallFault::setup("an answer that the SDK does not take; correct `endpoint`");
    let status = StatusCode::try_from(head.status.as_u16()).map_err(|_| wrong())?;
    let mut answer = HttpResponse::new(status, SdkBody::from(body.to_bytes()));
    for (name, value) in &head.headers {
        let value = value.to_str().map_err(|_| wrong())?.to_owned();
        let headers = answer.headers_mut();
        headers
            .try_append(name.as_str().to_owned(), value)
            .map_err(|_| wrong())?;
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
        sync::watch,
        task::JoinSet,
    };

    use super::*;
    use crate::transport::Tls;

    fn pool() -> Pool {
        let limit = Duration::from_secs(20);
        Pool {
            tls: Arc::new(KeptTls::new(Tls::default())),
            connect_limit: limit,
            acknowledgement: limit,
            idle: Mutex::default(),
        }
    }

    /// Answers once, and then breaks the connection over each request, behind these bytes.
    async fn serve(
        mut stream: TcpStream,
        behind: &'static [u8],
        mut all_ask: watch::Receiver<usize>,
        asked: Arc<watch::Sender<usize>>,
    ) -> io::Result<()> {
        let mut request = [0; 1 << 10];
        while stream.read(&mut request).await? > 0 {
            asked.send_modify(|count| *count += 1);
            if *asked.borrow() > CONNECTIONS {
                return stream.write_all(behind).await;
            }
            // Each has a connection of its own then.
            let _ = all_ask.wait_for(|count| *count == CONNECTIONS).await;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await?;
        }
        Ok(())
    }

    const CONNECTIONS: usize = 4;

    /// A request over each idle connection would arrive as often.
    #[tokio::test]
    async fn a_request_whose_connection_breaks_is_sent_once_more() {
        for (behind, expected) in [
            (&b""[..], 2),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", 1),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let asked = Arc::new(watch::Sender::new(0));
            let served = Arc::clone(&asked);
            let server = tokio::spawn(async move {
                let mut all = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    all.spawn(serve(
                        stream,
                        behind,
                        served.subscribe(),
                        Arc::clone(&served),
                    ));
                }
            });
            let pool = Arc::new(pool());
            let ask = |pool: Arc<Pool>| {
                let mut request = HttpRequest::new(SdkBody::from("x"));
                request.set_method("POST").unwrap();
                request.set_uri(url.as_str()).unwrap();
                async move { pool.ask(&request, Duration::from_secs(20)).await }
            };
            let calls: JoinSet<_> = (0..CONNECTIONS).map(|_| ask(Arc::clone(&pool))).collect();
            assert!(calls.join_all().await.iter().all(Result::is_ok));
            assert_eq!(pool.idle().len(), CONNECTIONS);
            let fault = ask(Arc::clone(&pool)).await.unwrap_err();
            assert!(fault.has_connected, "{fault}");
            assert_eq!(*asked.borrow() - CONNECTIONS, expected, "{fault}");
            server.abort();
        }
    }
}
