//! TLS: whom the sink trusts, and how it says that it does not.

use std::{path::Path, sync::Arc};

use libtest_mimic::Trial;
use posthaste_engine::{Sink, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{servers::rabbitmq::RabbitMqServer, tls::TestCa};

use super::{
    place::{Place, accept, lane, plain, refusal},
    trial,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![trial(
        "tls_trusts_whom_it_is_told_to",
        tls_trusts_whom_it_is_told_to,
    )]
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
