//! HTTP proxies between us and the endpoint.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{servers::http::WebhookServer, tls::TestCa, unique_name};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use super::trial;
use crate::driving::{accept, lane, plain, refusal};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_proxy_connects_to_endpoints_with_tls", a_proxy_connects),
        trial("a_proxy_forwards_to_endpoints_without", a_proxy_forwards),
    ]
}

/// A proxy that asks for the login `me:secret` and goes to one server, whatever it is asked for.
struct TestProxy {
    address: SocketAddr,
    /// The first lines that it was sent.
    asked: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Self::serve(client, server, Arc::clone(&seen)));
            }
        });
        Self { address, asked }
    }

    async fn serve(mut client: TcpStream, server: u16, asked: Arc<Mutex<Vec<String>>>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match client.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let text = String::from_utf8(head.clone()).unwrap();
        let line = text.lines().next().unwrap().to_owned();
        let is_tunnel = line.starts_with("CONNECT ");
        asked.lock().unwrap().push(line);
        // `me:secret`.
        if !text
            .to_ascii_lowercase()
            .contains("proxy-authorization: basic bwu6c2vjcmv0")
        {
            let _ = client
                .write_all(b"HTTP/1.1 407 Login\r\nContent-Length: 0\r\n\r\n")
                .await;
            return;
        }
        let mut upstream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
        match is_tunnel {
            true => client
                .write_all(b"HTTP/1.1 200 Connected\r\n\r\n")
                .await
                .unwrap(),
            // As it came: the test's server takes the whole URI for its place.
            false => upstream.write_all(&head).await.unwrap(),
        }
        let _ = copy_bidirectional(&mut client, &mut upstream).await;
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The endpoint's name is the proxy's to look up.
async fn a_proxy_connects() {
    let ca = TestCa::new();
    let certificate = ca.server_certificate(&["hooks.invalid"]);
    let server = WebhookServer::start_tls(&certificate, None);
    let proxy = TestProxy::start(server.port()).await;
    let place = unique_name("proxied");
    let url = |host: &str, login: &str| {
        format!(
            "https://{host}/{place}?proxy={}&proxy_password={login}&ca_file={}",
            proxy.address,
            ca.certificate_file().display()
        )
    };
    let sink = open(&url("hooks.invalid", "me:secret")).unwrap();
    let report = sink.check().await.unwrap();
    assert!(
        format!("{report:?}").contains("proxy 127.0.0.1"),
        "{report:?}"
    );
    accept(&mut lane(&sink).await, &plain(50)).await;
    let requests = server.requests(&place);
    assert_eq!(requests.len(), 50);
    assert!(requests[0].header("proxy-authorization").is_none());
    assert!(
        proxy
            .asked()
            .iter()
            .all(|line| line == "CONNECT hooks.invalid:443 HTTP/1.1")
    );

    let denied = refusal(&open(&url("hooks.invalid", "me:wrong")).unwrap()).await;
    assert_eq!(denied.cause(), Cause::Denied);
    assert!(denied.to_string().contains("`proxy_password`"), "{denied}");
    // An address needs no look.
    let private = refusal(&open(&url("169.254.169.254", "me:secret")).unwrap()).await;
    assert!(
        matches!(private, SinkError::Misconfigured { .. }),
        "{private}"
    );
    assert!(
        private.to_string().contains("a link-local address"),
        "{private}"
    );
    let endpoint = url("hooks.invalid", "me:secret");
    let other = WebhookServer::shared().port();
    let wrong = endpoint.replace(&proxy.address.to_string(), &format!("127.0.0.1:{other}"));
    let error = refusal(&open(&wrong).unwrap()).await;
    assert!(!matches!(error, SinkError::Bug { .. }), "{error}");
}

async fn a_proxy_forwards() {
    let server = WebhookServer::start();
    let proxy = TestProxy::start(server.port()).await;
    let url = format!(
        "http://hooks.invalid/in?proxy={}&proxy_password=me:secret",
        proxy.address
    );
    accept(&mut lane(&open(&url).unwrap()).await, &plain(20)).await;
    assert!(
        proxy
            .asked()
            .iter()
            .all(|line| line == "POST http://hooks.invalid/in HTTP/1.1")
    );
    // The second part of `http://hooks.invalid/in` by slashes.
    let requests = server.requests("");
    assert_eq!(requests.len(), 20);
    assert_eq!(requests[0].target, "http://hooks.invalid/in");
    assert_eq!(requests[0].header("host"), Some("hooks.invalid"));
}
