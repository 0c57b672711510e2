//! Answers that Google's server, and that of its client library, never give.

use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::Response;
use posthaste_engine::RejectionKind;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::*;
use crate::{
    pubsub::{
        credentials::{Environment, Search},
        token::tests::TokenServer,
        wire::{GetTopicRequest, Topic},
    },
    requests::refusal::Blame,
    transport::Tls,
};

/// An answer to a call.
#[derive(Debug, Clone, Copy)]
enum Script {
    /// A topic whose name is the token of the call.
    Good,
    /// This status of HTTP, and type of content.
    Http(u16, &'static str),
    /// Good, but for the status at its end.
    WithoutEnd,
    /// This status of gRPC, in its first headers.
    Status(&'static str),
    Long,
    Garbled,
    Reset(Reason),
    /// Good, and the last one of its connection.
    Last,
    /// The connection ends instead.
    Cut,
}

/// A server that answers by a script, the last of which stays.
struct Peer {
    endpoint: Endpoint,
    calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    async fn start(scripts: &[Script]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let (counted, scripts) = (Arc::clone(&calls), scripts.to_vec());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream, &scripts, &counted).await;
            }
        });
        Self {
            endpoint: Endpoint::parse(&url).unwrap(),
            calls,
            task,
        }
    }

    fn channel(&self, login: Option<Login>) -> Channel {
        let server = Server {
            endpoint: self.endpoint.clone(),
            tls: None,
            login,
        };
        let limit = Duration::from_secs(20);
        Channel::new(Arc::new(server), limit, limit)
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, scripts: &[Script], calls: &AtomicUsize) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let at = calls.fetch_add(1, Ordering::SeqCst);
        let script = scripts[at.min(scripts.len() - 1)];
        let login = request.headers().get(AUTHORIZATION);
        let name = login.map_or_else(String::new, |login| login.to_str().unwrap().to_owned());
        let (status, kind) = match script {
            Script::Http(status, kind) => (status, kind),
            _ => (200, "application/grpc"),
        };
        let mut head = Response::builder()
            .status(status)
            .header(CONTENT_TYPE, kind);
        match script {
            Script::Cut => return,
            Script::Reset(reason) => {
                respond.send_reset(reason);
                continue;
            }
            Script::Status(status) => {
                head = head.header("grpc-status", status);
                respond.send_response(head.body(()).unwrap(), true).unwrap();
                continue;
            }
            _ => {}
        }
        let message = match script {
            Script::Long => Bytes::from(vec![0; ANSWER_BYTES_MAX + 1]),
            Script::Garbled => Bytes::from_static(b"\0\0\0\0\x09x"),
            _ => frame(&Topic {
                name,
                ..Topic::default()
            }),
        };
        let mut sending = respond
            .send_response(head.body(()).unwrap(), false)
            .unwrap();
        if matches!(script, Script::Http(..) | Script::WithoutEnd) {
            sending.send_data(message, true).unwrap();
            continue;
        }
        sending.send_data(message, false).unwrap();
        let mut end = HeaderMap::new();
        end.insert("grpc-status", HeaderValue::from_static("0"));
        sending.send_trailers(end).unwrap();
        if matches!(script, Script::Last) {
            connection.graceful_shutdown();
        }
    }
}

fn question() -> GetTopicRequest {
    GetTopicRequest {
        topic: "t".to_owned(),
    }
}

#[tokio::test]
async fn an_answer_that_is_none_blames_somebody() {
    use Blame::{Event, Place, Unclear};
    for (script, expected) in [
        (Script::Http(503, "text/html"), Unclear(Cause::Unknown)),
        (
            Script::Http(404, "text/html"),
            Unclear(Cause::Misconfigured),
        ),
        (
            Script::Http(200, "text/html"),
            Unclear(Cause::Misconfigured),
        ),
        (
            Script::Http(413, "text/html"),
            Event(RejectionKind::TooLarge),
        ),
        (Script::WithoutEnd, Unclear(Cause::Unknown)),
        (Script::Status("5"), Place(Cause::Misconfigured)),
        (Script::Status("0"), Unclear(Cause::Misconfigured)),
        (Script::Status("x"), Unclear(Cause::Unknown)),
        (Script::Long, Unclear(Cause::Misconfigured)),
        (Script::Garbled, Unclear(Cause::Misconfigured)),
        (
            Script::Reset(Reason::INTERNAL_ERROR),
            Unclear(Cause::Connection),
        ),
        (
            Script::Reset(Reason::REFUSED_STREAM),
            Unclear(Cause::Connection),
        ),
        (Script::Cut, Unclear(Cause::Connection)),
    ] {
        let peer = Peer::start(&[script]).await;
        let refusal = peer.channel(None).call(&question()).await.unwrap_err();
        assert_eq!(refusal.blame, expected, "{script:?}: {}", refusal.reason);
        assert_eq!(peer.calls(), 1, "{script:?}");
    }
}

/// Over each connection that is idle it would arrive as often.
#[tokio::test]
async fn a_call_whose_connection_breaks_is_made_once_more() {
    let peer = Peer::start(&[Script::Good, Script::Cut]).await;
    let channel = peer.channel(None);
    channel.call(&question()).await.unwrap();
    let refusal = channel.call(&question()).await.unwrap_err();
    assert_eq!(refusal.blame, Blame::Unclear(Cause::Connection));
    assert_eq!(peer.calls(), 3);
}

/// As of Google's servers, which end each connection after an hour.
#[tokio::test]
async fn a_server_that_takes_leave_is_asked_on_another_connection() {
    let peer = Peer::start(&[Script::Last]).await;
    let channel = peer.channel(None);
    for _ in 0..3 {
        channel.call(&question()).await.unwrap();
    }
    assert_eq!(peer.calls(), 3);
}

#[tokio::test]
async fn a_call_bears_the_token() {
    let tokens = TokenServer::start().await;
    let environment = Environment {
        metadata: tokens.address(),
        ..Environment::default()
    };
    let search = Search::new(None, environment);
    let login = Login::new(search, KeptTls::new(Tls::default()));
    let peer = Peer::start(&[Script::Good, Script::Status("16"), Script::Good]).await;
    let channel = peer.channel(Some(login));
    let told = channel.call(&question()).await.unwrap();
    assert_eq!(told.name, "Bearer token-1");
    // One that is refused is asked for again.
    let refusal = channel.call(&question()).await.unwrap_err();
    assert_eq!(refusal.blame, Blame::Service(Cause::Denied));
    assert!(!refusal.reason.contains("token-1"), "{}", refusal.reason);
    channel.refused(&refusal);
    let told = channel.call(&question()).await.unwrap();
    assert_eq!(told.name, "Bearer token-2");
}

/// An aborted lane must not go on sending.
#[tokio::test]
async fn a_call_that_is_dropped_destroys_its_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let peer = Peer {
        endpoint: Endpoint::parse(&url).unwrap(),
        calls: Arc::default(),
        task: tokio::spawn(async {}),
    };
    let channel = peer.channel(None);
    let call = tokio::spawn(async move { channel.call(&question()).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut begin = [0; 24];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    call.abort();
    let mut rest = Vec::new();
    // Its end, or its reset.
    let _ = stream.read_to_end(&mut rest).await;
}
