//! Requests to object storage over connections of our own: TLS is that of the sinks, and dropping a
//! request destroys its socket.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Request, Response, Uri, body::Incoming, client::conn::http1, header::HOST, http::HeaderValue,
};
use hyper_util::rt::TokioIo;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
        HttpResponse, HttpService,
    },
};
use tokio::time::timeout;

use crate::transport::{self, KeptTls, TransportError};

/// Until there is a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Until the peer's kernel has acknowledged sent bytes.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(10);
/// Bytes of an answer at the most: it says that an object was written, or has credentials.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A connection for each request: objects are large, and few.
#[derive(Debug, Clone)]
pub(super) struct Connections(pub(super) Arc<KeptTls>);

/// Why a request has no answer.
#[derive(Debug)]
pub(super) struct CallError(pub(super) String);

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CallError {}

impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        Self(error.into_reason())
    }
}

impl HttpConnector for Connections {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connections {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.ask(request)
            .await
            // The engine tries again: no retry hides a fault.
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))
    }
}

impl Connections {
    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let (server, request) = of_hyper(request)?;
        let address = server.address();
        let tls = server.is_encrypted.then_some(&*self.0);
        let dialing = transport::dial(&server.host, &address, tls, ACKNOWLEDGEMENT);
        let stream = timeout(CONNECT_LIMIT, dialing).await.map_err(|_| {
            let reason = format!("connecting to {address}: no answer within {CONNECT_LIMIT:?}");
            CallError(reason)
        })??;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| broken(&error))?;
        let exchange = async {
            let answer = sender.send_request(request).await;
            of_client(answer.map_err(|error| broken(&error))?).await
        };
        let (mut exchange, mut connection) = (std::pin::pin!(exchange), std::pin::pin!(connection));
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            // Its end is told to the exchange.
            _ = &mut connection => exchange.await,
        }
    }
}

/// The other end of a connection.
struct Server {
    host: String,
    port: u16,
    is_encrypted: bool,
}

impl Server {
    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The server of a request, and the request as it is sent there.
fn of_hyper(request: HttpRequest) -> Result<(Server, Request<HttpRequestBody>), CallError> {
    let wrong = || CallError("the endpoint makes no request; correct `endpoint`".to_owned());
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().cloned().ok_or_else(wrong)?;
    let is_encrypted = head.uri.scheme_str() == Some("https");
    let server = Server {
        host: authority.host().to_owned(),
        port: authority
            .port_u16()
            .unwrap_or(if is_encrypted { 443 } else { 80 }),
        is_encrypted,
    };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let path: Uri = path.parse().map_err(|_| wrong())?;
    if !head.headers.contains_key(HOST) {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
        head.headers.insert(HOST, host);
    }
    head.uri = path;
    Ok((server, Request::from_parts(head, body)))
}

/// An answer for the client, read as a whole.
async fn of_client(response: Response<Incoming>) -> Result<HttpResponse, CallError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<hyper::Error>() {
        Some(error) => broken(error),
        None => CallError("an answer of more than 1 MiB; correct `endpoint`".to_owned()),
    })?;
    Ok(Response::from_parts(head, body.to_bytes().into()))
}

fn broken(error: &hyper::Error) -> CallError {
    if error.is_parse() {
        return CallError(format!(
            "what answers there does not speak HTTP/1.1 ({error}); correct `endpoint`"
        ));
    }
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    CallError(format!("the connection broke: {root}"))
}
