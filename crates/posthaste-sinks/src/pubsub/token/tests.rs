//! Tokens of servers as they are, and as they should not be.

use std::sync::{Arc, Mutex};

use posthaste_testkit::tls::TestCa;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{requests::refusal::Blame, transport::Tls};

/// Answers of a server of tokens.
#[derive(Debug, Clone, Copy)]
pub(in crate::pubsub) enum Answers {
    /// `token-1`, `token-2`, …, each of which serves for 1000 seconds.
    Tokens,
    /// This status, and a refusal.
    Status(&'static str),
    /// A body that is none.
    Garbled,
    /// Without the header by which a machine's server is known.
    Unmarked,
}

/// A server of tokens, a machine's or one with TLS.
pub(in crate::pubsub) struct TokenServer {
    port: u16,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

struct State {
    answers: Answers,
    requests: Vec<String>,
    given: usize,
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TokenServer {
    pub(in crate::pubsub) async fn start() -> Self {
        Self::start_with(None).await
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            answers: Answers::Tokens,
            requests: Vec::new(),
            given: 0,
        }));
        let served = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match &tls {
                    None => serve(stream, &served).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, &served).await;
                        }
                    }
                }
            }
        });
        Self { port, state, task }
    }

    pub(in crate::pubsub) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(in crate::pubsub) fn answer(&self, answers: Answers) {
        let mut state = self.state.lock().unwrap();
        state.answers = answers;
        state.requests.clear();
    }

    /// Requests since it was told how to answer.
    pub(in crate::pubsub) fn asked(&self) -> usize {
        self.state.lock().unwrap().requests.len()
    }

    fn last_request(&self) -> String {
        self.state.lock().unwrap().requests.last().unwrap().clone()
    }
}

/// Reads a request, and answers it.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: &Mutex<State>) {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break;
            }
        }
    }
    let answer = {
        let mut state = state.lock().unwrap();
        state.requests.push(String::from_utf8(request).unwrap());
        let (status, body) = match state.answers {
            Answers::Tokens | Answers::Unmarked => {
                state.given += 1;
                let token = format!("token-{}", state.given);
                let body = json!({ "access_token": token, "expires_in": 1_000 });
                ("200 OK", body.to_string())
            }
            Answers::Status(status) => {
                let body = json!({
                    "error": "invalid_grant",
                    "error_description": "of s3cret",
                });
                (status, body.to_string())
            }
            Answers::Garbled => ("200 OK", "s3cret".to_owned()),
        };
        let mark = match state.answers {
            Answers::Unmarked => "",
            _ => "metadata-flavor: Google\r\n",
        };
        let length = body.len();
        format!("HTTP/1.1 {status}\r\n{mark}content-length: {length}\r\n\r\n{body}")
    };
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

#[tokio::test]
async fn a_machine_gives_a_token() {
    let server = TokenServer::start().await;
    let (given, lifetime) = ask_machine(&server.address()).await.unwrap();
    assert_eq!(given.bearer, "Bearer token-1");
    assert!(given.bearer.is_sensitive());
    assert_eq!(lifetime, Duration::from_secs(1_000));
    let request = server.last_request();
    assert!(request.starts_with(&format!("GET {MACHINE_PATH} HTTP/1.1\r\n")));
    assert!(request.contains("metadata-flavor: Google\r\n"), "{request}");
    assert!(
        request.contains(&format!("host: {}\r\n", server.address())),
        "{request}"
    );
}

#[tokio::test]
async fn a_machine_that_gives_none_is_told() {
    let server = TokenServer::start().await;
    for (answers, cause, words) in [
        (Answers::Unmarked, Cause::Denied, "no server of Google's"),
        (Answers::Garbled, Cause::Misconfigured, "without a token"),
        (
            Answers::Status("404 Not Found"),
            Cause::Denied,
            "404: invalid_grant; name",
        ),
        (Answers::Status("500 Error"), Cause::Unknown, "500"),
        (Answers::Status("429 Too Many"), Cause::Unknown, "429"),
    ] {
        server.answer(answers);
        let refusal = ask_machine(&server.address()).await.err().unwrap();
        assert_eq!(refusal.blame, Blame::Service(cause), "{answers:?}");
        let said = refusal.reason;
        assert!(said.contains(words) && !said.contains("s3cret"), "{said}");
    }
    let nobody = posthaste_testkit::ports::Port::reserve();
    let host = format!("127.0.0.1:{}", nobody.number());
    let refusal = ask_machine(&host).await.err().unwrap();
    assert_eq!(refusal.blame, Blame::Service(Cause::Connection));
    assert!(
        refusal.reason.contains("`credentials_file`"),
        "{}",
        refusal.reason
    );
}

fn acceptor(ca: &TestCa) -> TlsAcceptor {
    let certificate = ca.server_certificate(&["localhost"]);
    let chain = CertificateDer::from_pem_slice(certificate.certificate_pem.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain.unwrap()], key.unwrap());
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

#[tokio::test]
async fn a_person_logs_in_again_over_tls() {
    let ca = TestCa::new();
    let server = TokenServer::start_with(Some(acceptor(&ca))).await;
    let tls = |ca_file| {
        KeptTls::new(Tls {
            ca_file,
            ..Tls::default()
        })
    };
    let trusting = tls(Some(ca.certificate_file()));
    let mut user = AuthorizedUser {
        client_id: "client".to_owned(),
        client_secret: "s3cret&+".to_owned(),
        refresh_token: "1//s3cret".to_owned(),
        quota_project_id: Some("payer".to_owned()),
        token_uri: format!("https://localhost:{}/token", server.port),
    };
    let (given, lifetime) = ask_for_user(&user, &trusting).await.unwrap();
    assert_eq!(given.bearer, "Bearer token-1");
    assert_eq!(given.quota_project.unwrap(), "payer");
    assert_eq!(lifetime, Duration::from_secs(1_000));
    let request = server.last_request();
    assert!(request.starts_with("POST /token HTTP/1.1\r\n"), "{request}");
    let form = "grant_type=refresh_token&client_id=client&client_secret=s3cret%26%2B&\
                refresh_token=1%2F%2Fs3cret";
    assert!(request.ends_with(form), "{request}");

    server.answer(Answers::Status("400 Bad Request"));
    let refusal = ask_for_user(&user, &trusting).await.err().unwrap();
    assert_eq!(refusal.blame, Blame::Service(Cause::Denied));
    let said = refusal.reason;
    assert!(said.contains("400: invalid_grant; log in again"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");

    // A stranger gets nothing.
    server.answer(Answers::Tokens);
    let refusal = ask_for_user(&user, &tls(None)).await.err().unwrap();
    assert_eq!(
        refusal.blame,
        Blame::Service(Cause::Misconfigured),
        "{refusal:?}"
    );
    user.token_uri = format!("http://localhost:{}/token", server.port);
    let refusal = ask_for_user(&user, &trusting).await.err().unwrap();
    assert!(refusal.reason.contains("`https:`"), "{refusal:?}");
    assert_eq!(server.asked(), 0);
}

#[test]
fn the_key_of_an_account_signs_a_token() {
    let account = |private_key: &str| ServiceAccount {
        client_email: "relay@shop.iam.gserviceaccount.com".to_owned(),
        private_key: private_key.to_owned(),
        private_key_id: Some("key-1".to_owned()),
    };
    let pem = posthaste_testkit::tls::rsa_key_pem();
    let now = Duration::from_secs(1_700_000_000);
    let jwt = sign(&account(pem), now).unwrap();
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let part = |text: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(
        part(header),
        json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" })
    );
    assert_eq!(
        part(claims),
        json!({
            "iss": "relay@shop.iam.gserviceaccount.com",
            "sub": "relay@shop.iam.gserviceaccount.com",
            "aud": "https://pubsub.googleapis.com/",
            "iat": 1_700_000_000,
            "exp": 1_700_003_600,
        })
    );
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let PrivateKeyDer::Pkcs8(key) = key else {
        panic!("another kind of key");
    };
    let pair = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref());
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    public.verify(signed.as_bytes(), &signature).unwrap();

    let cut = pem.replace("MII", "M");
    for (key, words) in [("s3cret", "no key in PEM"), (&*cut, "is no")] {
        let refusal = sign(&account(key), now).err().unwrap();
        assert_eq!(refusal.blame, Blame::Service(Cause::Denied));
        let said = refusal.reason;
        assert!(
            said.contains(words) && said.contains("make a new key"),
            "{said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[test]
fn a_token_is_not_shown() {
    let mut bearer = HeaderValue::from_static("Bearer s3cret");
    bearer.set_sensitive(true);
    let token = Token {
        bearer,
        quota_project: None,
    };
    assert!(!format!("{token:?}").contains("s3cret"));
}
