//! Logins and TLS: whom the sink trusts, and how it says that it is not let in.

use std::{fs, path::Path, sync::Arc};

use libtest_mimic::Trial;
use posthaste_engine::{Sink, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{servers::artemis::ArtemisServer, tls::TestCa, unique_name};

use super::{place::Place, trial};
use crate::driving::{accept, lane, plain, refusal};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("wrong_logins_are_denied", wrong_logins_are_denied),
        trial("a_broker_without_logins", a_broker_without_logins),
        trial(
            "tls_trusts_whom_it_is_told_to",
            tls_trusts_whom_it_is_told_to,
        ),
        trial("a_certificate_is_a_login", a_certificate_is_a_login),
    ]
}

async fn wrong_logins_are_denied() {
    let server = ArtemisServer::shared();
    let place = Place::new(server);
    for (login, words) in [
        ("admin:s3cret@", "refused the login"),
        ("nobody:s3cret@", "refused the login"),
        ("", "offers the logins PLAIN"),
    ] {
        let sink = open(&place.on(&server.url_of(login))).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Denied { .. }), "{said}");
            assert!(said.contains(words), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}

async fn a_broker_without_logins() {
    let server = ArtemisServer::start_open();
    let url = |login| format!("{}/auto.{}", server.url_of(login), unique_name("sink"));
    let sink = open(&url("")).unwrap();
    sink.check().await.unwrap();
    accept(&mut lane(&sink).await, &plain(10)).await;
    let error = open(&url("me:pw@")).unwrap().check().await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("offers the logins ANONYMOUS"), "{said}");
}

/// The first handshake of a broker in Java takes seconds on a busy machine.
async fn warm_up(sink: &Arc<dyn Sink>) {
    while let Err(error) = sink.check().await {
        assert!(error.is_retryable(), "{error}");
    }
}

fn with_ca(url: &str, ca_file: &Path) -> String {
    format!("{url}?ca_file={}", ca_file.display())
}

async fn tls_trusts_whom_it_is_told_to() {
    let ca = TestCa::new();
    let server = ArtemisServer::start_tls(&ca.server_certificate(&["localhost"]));
    let address = format!("auto.{}", unique_name("sink"));
    let not_tls = format!("{}/{address}", server.url());
    let by_address = not_tls.replace("amqp10:", "amqp10s:");
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let (ours, theirs) = (ca.certificate_file(), TestCa::new());
    let sink = open(&with_ca(&by_name, &ours)).unwrap();
    warm_up(&sink).await;
    accept(&mut lane(&sink).await, &plain(500)).await;

    for (url, fix) in [
        (
            with_ca(&by_name, &theirs.certificate_file()),
            "correct `ca_file`",
        ),
        (with_ca(&by_address, &ours), "the host's name"),
        (by_name.clone(), "with `ca_file`"),
        (with_ca(&by_name, Path::new("/absent")), "`/absent`"),
    ] {
        let sink = open(&url).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
            assert!(said.contains(fix), "{said}");
        }
    }
    // Artemis says nothing to somebody who speaks TLS on one side only.
    let plain_port = format!("{}/{address}", ArtemisServer::shared().url());
    let plain_port = plain_port.replace("amqp10:", "amqp10s:");
    for url in [not_tls, with_ca(&plain_port, &ours)] {
        let error = open(&url).unwrap().check().await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
}

/// SASL EXTERNAL, where a user is named by the certificate.
async fn a_certificate_is_a_login() {
    let ca = TestCa::new();
    let certificate = ca.server_certificate(&["127.0.0.1"]);
    let server = ArtemisServer::start_tls_for(&certificate, &ca);
    let url = format!("{}/auto.{}", server.url_of(""), unique_name("sink"));
    let url = with_ca(&url.replace("amqp10:", "amqp10s:"), &ca.certificate_file());
    let ours = ca.server_certificate(&["relay"]);
    let file = |name: &str, pem: &str| {
        let file = ca.folder().join(name);
        fs::write(&file, pem).unwrap();
        file.display().to_string()
    };
    let cert = file("relay.pem", &ours.certificate_pem);
    let key = file("relay.key", &ours.key_pem);
    let sink = open(&format!("{url}&cert_file={cert}&key_file={key}")).unwrap();
    warm_up(&sink).await;
    accept(&mut lane(&sink).await, &plain(10)).await;
    let without = open(&url).unwrap();
    for error in [without.check().await.unwrap_err(), refusal(&without).await] {
        let said = error.to_string();
        assert!(matches!(error, SinkError::Denied { .. }), "{said}");
        assert!(said.contains("`cert_file`"), "{said}");
    }
}
