//! TLS: whom the sink trusts, and how it says that it does not.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};

use libtest_mimic::Trial;
use posthaste_engine::{Sink, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{ports::Port, servers::rabbitmq::RabbitMqServer, tls::TestCa};

use super::{place::Place, trial};
use crate::driving::{accept, lane, plain, refusal};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "tls_trusts_whom_it_is_told_to",
            tls_trusts_whom_it_is_told_to,
        ),
        trial(
            "certificates_are_renewed_without_a_restart",
            certificates_are_renewed_without_a_restart,
        ),
        trial(
            "a_broker_that_asks_for_a_certificate_is_understood",
            a_broker_that_asks_for_a_certificate,
        ),
    ]
}

fn trusting(place: &Place<'_>, url: &str, ca_file: &Path) -> Arc<dyn Sink> {
    let ca_file = ca_file.to_str().unwrap();
    open(&format!("{}&ca_file={ca_file}", place.on(url))).unwrap()
}

async fn tls_trusts_whom_it_is_told_to() {
    let ca = TestCa::new();
    let server = RabbitMqServer::start_tls_for(&ca, &["localhost"]);
    let place = Place::new(&server);
    let by_address = server.tls_url("/");
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let sink = trusting(&place, &by_name, &ca.certificate_file());
    sink.check().await.unwrap();
    let events = plain(500);
    let mut flight = lane(&sink).await;
    accept(&mut flight, &events).await;
    assert_eq!(place.events(), events);

    let plain_port = by_name.replace(&server.tls_port().to_string(), &server.port().to_string());
    let not_tls = place.on(&by_address.replace("amqps:", "amqp:"));
    for (sink, fix) in [
        (
            trusting(&place, &by_name, &TestCa::new().certificate_file()),
            "correct `ca_file`",
        ),
        (
            trusting(&place, &by_address, &ca.certificate_file()),
            "the host's name",
        ),
        (open(&place.on(&by_name)).unwrap(), "with `ca_file`"),
        (
            trusting(&place, &by_name, Path::new("/absent")),
            "`/absent`",
        ),
        (
            trusting(&place, &plain_port, &ca.certificate_file()),
            "does not speak TLS",
        ),
        (open(&not_tls).unwrap(), "write `amqps://`"),
    ] {
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
            assert!(said.contains(fix), "{said}");
        }
    }
}

/// Of the broker, by another authority: the connection that stands goes on, and the next one reads
/// the file of authorities anew.
async fn certificates_are_renewed_without_a_restart() {
    let (former, ca) = (TestCa::new(), TestCa::new());
    let server = RabbitMqServer::start_tls(&former);
    let place = Place::new(&server);
    let ca_file = former.folder().join("trusted.pem");
    fs::copy(former.certificate_file(), &ca_file).unwrap();
    let sink = trusting(&place, &server.tls_url("/"), &ca_file);
    let mut before = lane(&sink).await;
    let events = plain(300);
    accept(&mut before, &events[..100]).await;
    server.renew_certificate(&ca);
    accept(&mut before, &events[100..200]).await;
    let error = refusal(&sink).await.to_string();
    assert!(error.contains("correct `ca_file`"), "{error}");
    fs::copy(ca.certificate_file(), &ca_file).unwrap();
    accept(&mut lane(&sink).await, &events[200..]).await;
    assert_eq!(place.events(), events);
}

async fn a_broker_that_asks_for_a_certificate() {
    let ca = TestCa::new();
    let certificate = ca.server_certificate(&["127.0.0.1"]);
    // The broker runs as another user.
    let files = tempfile::tempdir().unwrap();
    fs::set_permissions(files.path(), Permissions::from_mode(0o755)).unwrap();
    let ca_pem = fs::read_to_string(ca.certificate_file()).unwrap();
    let mut lines = Vec::new();
    for (option, pem) in [
        ("cacertfile", &ca_pem),
        ("certfile", &certificate.certificate_pem),
        ("keyfile", &certificate.key_pem),
    ] {
        let file = files.path().join(option);
        fs::write(&file, pem).unwrap();
        lines.push(format!("ssl_options.{option} = {}", file.display()));
    }
    let port = Port::reserve();
    lines.push(format!("listeners.ssl.1 = 127.0.0.1:{}", port.number()));
    lines.push("ssl_options.verify = verify_peer".to_owned());
    lines.push("ssl_options.fail_if_no_peer_cert = true".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let server = RabbitMqServer::start_with(&lines);
    let place = Place::new(&server);
    let url = format!("amqps://guest:guest@127.0.0.1:{}", port.number());
    let sink = trusting(&place, &url, &ca.certificate_file());
    for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
        let said = error.to_string();
        assert!(matches!(error, SinkError::Denied { .. }), "{said}");
        assert!(said.contains("`cert_file`"), "{said}");
    }
}
