//! TLS: whom the sink trusts, whom the endpoint trusts, and how it says that one does not.

use std::{fs, path::Path, sync::Arc};

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Sink, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{servers::http::WebhookServer, tls::TestCa, unique_name};

use super::{place::cause, trial};
use crate::driving::{accept, lane, plain, refusal, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "tls_trusts_whom_it_is_told_to",
            tls_trusts_whom_it_is_told_to,
        ),
        trial(
            "an_endpoint_may_ask_for_a_certificate",
            an_endpoint_may_ask_for_a_certificate,
        ),
    ]
}

fn sink(url: &str, ca_file: Option<&Path>, options: &str) -> Arc<dyn Sink> {
    let ca = ca_file.map_or(String::new(), |file| format!("&ca_file={}", file.display()));
    open(&format!("{url}?allow_private=true{ca}{options}")).unwrap()
}

async fn tls_trusts_whom_it_is_told_to() {
    let ca = TestCa::new();
    let server = WebhookServer::start_tls(&ca.server_certificate(&["localhost"]), None);
    let place = unique_name("tls");
    let plain_url = server.url(&place);
    let by_address = plain_url.replace("http:", "https:");
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let ca_file = ca.certificate_file();
    let trusting = sink(&by_name, Some(&ca_file), "");
    trusting.check().await.unwrap();
    accept(&mut lane(&trusting).await, &plain(100)).await;
    assert_eq!(server.requests(&place).len(), 100);

    let other = WebhookServer::shared()
        .url(&place)
        .replace("http:", "https:");
    let other_ca = TestCa::new().certificate_file();
    for (sink, fix) in [
        (sink(&by_address, Some(&ca_file), ""), "the host's name"),
        (sink(&by_name, None, ""), "with `ca_file`"),
        (sink(&by_name, Some(&other_ca), ""), "`"),
        (sink(&by_name, Some(Path::new("/absent")), ""), "`/absent`"),
        (sink(&other, Some(&ca_file), ""), "write `http://`"),
    ] {
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
            assert!(said.contains(fix), "{said}");
        }
    }
    // The server of this test ends the connection without a word; others answer 400.
    let outcomes = send(&mut lane(&sink(&plain_url, None, "")).await, &plain(1)).await;
    assert_eq!(cause(&outcomes[0]).0, Cause::Connection);
}

async fn an_endpoint_may_ask_for_a_certificate() {
    let (ca, of_clients) = (TestCa::new(), TestCa::new());
    let authority = fs::read_to_string(of_clients.certificate_file()).unwrap();
    let certificate = ca.server_certificate(&["localhost"]);
    let server = WebhookServer::start_tls(&certificate, Some(&authority));
    let place = unique_name("tls");
    let url = server
        .url(&place)
        .replace("http://127.0.0.1", "https://localhost");
    let ours = of_clients.server_certificate(&["relay"]);
    let (cert, key) = (ca.folder().join("ours.pem"), ca.folder().join("ours.key"));
    fs::write(&cert, ours.certificate_pem).unwrap();
    fs::write(&key, ours.key_pem).unwrap();
    let options = format!("&cert_file={}&key_file={}", cert.display(), key.display());
    let known = sink(&url, Some(&ca.certificate_file()), &options);
    accept(&mut lane(&known).await, &plain(20)).await;
    assert_eq!(server.requests(&place).len(), 20);

    // In TLS 1.3 the refusal comes behind the handshake, with the first request; Python's server
    // may end the connection before it has told.
    let unknown = sink(&url, Some(&ca.certificate_file()), "");
    let (why, words) = match unknown
        .open_lane(posthaste_testkit::sink_suite::lane_spec(1))
        .await
    {
        Err(error) => (error.cause(), error.to_string()),
        Ok(mut flight) => {
            let outcomes = send(&mut flight, &plain(1)).await;
            let (why, words, _) = cause(&outcomes[0]);
            (why, words.to_owned())
        }
    };
    match why {
        Cause::Denied => assert!(words.contains("`cert_file`"), "{words}"),
        _ => assert_eq!(why, Cause::Connection, "{words}"),
    }
    assert_eq!(server.requests(&place).len(), 20);
}
