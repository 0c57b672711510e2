//! TLS: whom the sink trusts, and how it shows who it is.

use std::{fs, path::Path};

use libtest_mimic::Trial;
use posthaste_engine::SinkError;
use posthaste_sinks::open;
use posthaste_testkit::{servers::mqtt::MqttServer, tls::TestCa};

use super::{place::Place, trial};
use crate::driving::{accept, lane, plain, refusal};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "tls_trusts_whom_it_is_told_to",
            tls_trusts_whom_it_is_told_to,
        ),
        trial(
            "a_broker_that_asks_for_a_certificate_is_shown_one",
            a_broker_that_asks_for_a_certificate,
        ),
    ]
}

async fn tls_trusts_whom_it_is_told_to() {
    let ca = TestCa::new();
    let server = MqttServer::start_tls(&ca.server_certificate(&["localhost"]), None);
    let place = Place::new(&server);
    let by_address = server.tls_url();
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let other = TestCa::new();
    let (ours, theirs) = (ca.certificate_file(), other.certificate_file());
    let with =
        |url: &str, ca_file: &Path| format!("{}&ca_file={}", place.on(url), ca_file.display());
    let sink = open(&with(&by_name, &ours)).unwrap();
    sink.check().await.unwrap();
    let events = plain(500);
    accept(&mut lane(&sink).await, &events).await;
    assert_eq!(place.events(), events);

    let plain_port = server.url().replace("mqtt:", "mqtts:");
    let not_tls = place.on(&by_address.replace("mqtts:", "mqtt:"));
    for (url, fix) in [
        (with(&by_name, &theirs), "correct `ca_file`"),
        (with(&by_address, &ours), "the host's name"),
        (place.on(&by_name), "with `ca_file`"),
        (with(&by_name, Path::new("/absent")), "`/absent`"),
    ] {
        let sink = open(&url).unwrap();
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
            assert!(said.contains(fix), "{said}");
        }
    }
    // This broker says nothing to what it does not understand, and hangs up.
    let error = refusal(&open(&with(&plain_port, &ours)).unwrap()).await;
    assert!(matches!(error, SinkError::Unavailable { .. }), "{error}");
    let said = refusal(&open(&not_tls).unwrap()).await.to_string();
    assert!(said.contains("only one side speak TLS"), "{said}");
}

async fn a_broker_that_asks_for_a_certificate() {
    let ca = TestCa::new();
    let clients = TestCa::new();
    let certificate = ca.server_certificate(&["127.0.0.1"]);
    let server = MqttServer::start_tls(&certificate, Some(&clients.certificate_file()));
    let place = Place::new(&server);
    let url = format!(
        "{}&ca_file={}",
        place.on(&server.tls_url()),
        ca.certificate_file().display()
    );
    let shown = |authority: &TestCa| {
        let identity = authority.server_certificate(&["relay"]);
        let [cert, key] = ["relay.crt", "relay.key"].map(|name| authority.folder().join(name));
        fs::write(&cert, identity.certificate_pem).unwrap();
        fs::write(&key, identity.key_pem).unwrap();
        let files = format!("&cert_file={}&key_file={}", cert.display(), key.display());
        open(&format!("{url}{files}")).unwrap()
    };
    let sink = shown(&clients);
    sink.check().await.unwrap();
    let events = plain(50);
    accept(&mut lane(&sink).await, &events).await;
    assert_eq!(place.events(), events);
    for sink in [open(&url).unwrap(), shown(&ca)] {
        for error in [sink.check().await.unwrap_err(), refusal(&sink).await] {
            let said = error.to_string();
            assert!(matches!(error, SinkError::Denied { .. }), "{said}");
            assert!(said.contains("`cert_file`"), "{said}");
        }
    }
}
