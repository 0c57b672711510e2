//! Calls by gRPC over connections of our own: one call at a time on each, so that dropping a call
//! destroys its socket, and one that hangs holds up no other.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, client::SendRequest};
use hyper::{
    HeaderMap, Method, Request, StatusCode, Version,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, TE, USER_AGENT},
};
use posthaste_engine::Cause;
use tokio::time::{Instant, timeout};

use super::{
    dial::dial,
    login::Login,
    status::{Status, frame, refusal_of_http, unframe},
    token::Token,
    wire::Question,
};
use crate::{
    requests::{endpoint::Endpoint, refusal::Refusal, target::Way},
    transport::{Driver, KeptTls},
};

/// Bytes of an answer at the most. One to a thousand events has some 20 000.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Bytes of an answer's headers at the most. Servers send hundreds.
const HEAD_BYTES_MAX: u32 = 64 << 10;
/// A connection is closed after this time without a call: something in between may have forgotten
/// it. Google's servers keep it for minutes.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The connections of a lane, or of a check.
#[derive(Clone)]
pub(super) struct Channel(Arc<Pool>);

/// A server, and the means to speak to it.
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Option<KeptTls>,
    /// None: it asks for no login.
    pub(super) login: Option<Login>,
}

struct Pool {
    server: Arc<Server>,
    /// Until there is a connection.
    connect_limit: Duration,
    /// Until the peer's kernel has acknowledged sent bytes.
    acknowledgement: Duration,
    idle: Mutex<Vec<(Instant, Connection)>>,
}

/// Dropping it destroys the socket: what the kernel had not sent yet is thrown away.
struct Connection {
    // Before the sender, whose end would be one in order.
    driver: Driver,
    sender: SendRequest<Bytes>,
}

/// The end of a call.
enum Exchange {
    Answered(Head, Bytes),
    /// Nothing of it was processed.
    Unsent(h2::Error),
    /// It may have arrived, and there is no answer.
    Broken(h2::Error),
    TooLong,
}

/// All of an answer but its message.
struct Head {
    http: StatusCode,
    is_grpc: bool,
    status: Option<Status>,
}

impl Channel {
    pub(super) fn new(
        server: Arc<Server>,
        connect_limit: Duration,
        acknowledgement: Duration,
    ) -> Self {
        Self(Arc::new(Pool {
            server,
            connect_limit,
            acknowledgement,
            idle: Mutex::default(),
        }))
    }

    /// Connects and logs in, for the first call to use.
    ///
    /// # Errors
    /// Why a call would be refused.
    pub(super) async fn open(&self) -> Result<(), Refusal> {
        self.0.token().await?;
        let connection = self.0.connect().await?;
        self.0.keep(connection);
        Ok(())
    }

    /// Asks a question. A connection that was used before and broke says little: a server may close
    /// it at any time, so the question is asked again, once, on a new one. Takes as long as it
    /// takes.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn call<Q: Question>(&self, question: &Q) -> Result<Q::Answer, Refusal> {
        let pool = &self.0;
        let token = pool.token().await?;
        let body = frame(question);
        let mut is_new = false;
        loop {
            let idle = match is_new {
                true => None,
                false => pool.take_idle(),
            };
            let is_reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => pool.connect().await?,
            };
            let request = pool.request(Q::PATH, token.as_ref())?;
            match connection.ask(request, body.clone()).await {
                Exchange::Answered(head, message) => {
                    pool.keep(connection);
                    return answer(&head, &message);
                }
                Exchange::Unsent(_) if is_reused => {}
                Exchange::Broken(_) if is_reused => is_new = true,
                Exchange::Unsent(error) | Exchange::Broken(error) => return Err(broken(&error)),
                Exchange::TooLong => {
                    let reason = "an answer of more than 1 MiB; correct `endpoint`";
                    return Err(Refusal::unclear(Cause::Misconfigured, reason));
                }
            }
        }
    }
}

impl Way for Channel {
    fn refused(&self, refusal: &Refusal) {
        if let Some(login) = &self.0.server.login {
            login.refused(refusal);
        }
    }

    fn close_idle(&self) {
        for (_, connection) in self.0.idle().drain(..) {
            connection.close();
        }
    }
}

impl Pool {
    async fn token(&self) -> Result<Option<Token>, Refusal> {
        match &self.server.login {
            Some(login) => login.token().await.map(Some),
            None => Ok(None),
        }
    }

    fn request(&self, path: &str, token: Option<&Token>) -> Result<Request<()>, Refusal> {
        let Endpoint { is_encrypted, .. } = self.server.endpoint;
        let scheme = if is_encrypted { "https" } else { "http" };
        let uri = format!("{scheme}://{}{path}", self.server.endpoint.authority());
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .version(Version::HTTP_2)
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header(USER_AGENT, concat!("posthaste/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.bearer.clone());
            if let Some(project) = &token.quota_project {
                request = request.header("x-goog-user-project", project.clone());
            }
        }
        request.body(()).map_err(|_| {
            let reason = "the endpoint makes no request; correct `endpoint`";
            Refusal::of_service(Cause::Misconfigured, reason)
        })
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle();
        let is_of_no_use = |(since, connection): &mut (Instant, Connection)| {
            since.elapsed() >= IDLE_MAX || connection.has_ended()
        };
        for (_, useless) in idle.extract_if(.., is_of_no_use) {
            useless.close();
        }
        idle.pop().map(|(_, connection)| connection)
    }

    fn keep(&self, connection: Connection) {
        self.idle().push((Instant::now(), connection));
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Instant, Connection)>> {
        // Nothing panics while it holds the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Connection, Refusal> {
        let limit = self.connect_limit;
        let connected = timeout(limit, self.connect_to()).await;
        connected.unwrap_or_else(|_| {
            let address = self.server.endpoint.address();
            let reason = format!("connecting to {address}: no answer within {limit:?}");
            Err(Refusal::of_service(Cause::Connection, reason))
        })
    }

    async fn connect_to(&self) -> Result<Connection, Refusal> {
        let Server { endpoint, tls, .. } = &*self.server;
        let stream = dial(endpoint, tls.as_ref(), self.acknowledgement).await?;
        let handshake = h2::client::Builder::new()
            .enable_push(false)
            .max_header_list_size(HEAD_BYTES_MAX)
            .handshake(stream)
            .await;
        let (sender, connection) = handshake.map_err(|error| {
            let reason = format!("beginning HTTP/2: {error}");
            Refusal::of_service(Cause::Connection, reason)
        })?;
        let driver = Driver::start(connection, "Pub/Sub");
        Ok(Connection { sender, driver })
    }
}

impl Connection {
    fn has_ended(&self) -> bool {
        self.driver.has_ended()
    }

    /// Takes leave of a server to which no call is under way: it reads an end, not a reset.
    fn close(self) {
        self.driver.let_go();
    }

    async fn ask(&mut self, request: Request<()>, body: Bytes) -> Exchange {
        let ready = self.sender.clone().ready().await;
        let sent = ready.and_then(|mut sender| sender.send_request(request, false));
        let (response, mut sending) = match sent {
            Ok(sent) => sent,
            Err(error) => return Exchange::Unsent(error),
        };
        // Sending fails where the connection has ended meanwhile: the answer's error says why.
        drop(sending.send_data(body, true));
        let answered = async {
            let (head, body) = response.await?.into_parts();
            let read = read(body).await?;
            Ok((head, read))
        };
        match answered.await {
            Ok((head, Some((message, trailers)))) => {
                // An answer without a message has its status in its first headers.
                let status = Status::of(trailers.as_ref().unwrap_or(&head.headers));
                let kind = head.headers.get(CONTENT_TYPE);
                let kind = kind.map_or(&b""[..], HeaderValue::as_bytes);
                let head = Head {
                    http: head.status,
                    is_grpc: kind.starts_with(b"application/grpc"),
                    status,
                };
                Exchange::Answered(head, message)
            }
            Ok((_, None)) => Exchange::TooLong,
            Err(error) if was_not_processed(&error) => Exchange::Unsent(error),
            Err(error) => Exchange::Broken(error),
        }
    }
}

/// Reads a body and what stands behind it. None: it is too long.
async fn read(mut body: RecvStream) -> Result<Option<(Bytes, Option<HeaderMap>)>, h2::Error> {
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        message.extend_from_slice(&data);
        if message.len() > ANSWER_BYTES_MAX {
            return Ok(None);
        }
    }
    let trailers = body.trailers().await?;
    Ok(Some((message.freeze(), trailers)))
}

/// Whether the server says that it did nothing with the call.
fn was_not_processed(error: &h2::Error) -> bool {
    error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)
}

fn answer<A: prost::Message + Default>(head: &Head, message: &[u8]) -> Result<A, Refusal> {
    match &head.status {
        Some(status) if !status.is_ok() => Err(status.refusal()),
        Some(_) => unframe(message).ok_or_else(|| {
            let reason = "an answer that is none of Pub/Sub; correct `endpoint`";
            Refusal::unclear(Cause::Misconfigured, reason)
        }),
        None => Err(refusal_of_http(head.http, head.is_grpc)),
    }
}

/// The call has no answer, by the client's error.
fn broken(error: &h2::Error) -> Refusal {
    // The client itself finds that what comes is none of HTTP/2.
    if error.is_library() && error.reason().is_some() {
        let reason = format!(
            "what answers there does not speak HTTP/2 ({error}); correct `endpoint`, or its scheme"
        );
        return Refusal::unclear(Cause::Misconfigured, reason);
    }
    Refusal::unclear(Cause::Connection, format!("the connection broke: {error}"))
}

#[cfg(test)]
mod tests;
