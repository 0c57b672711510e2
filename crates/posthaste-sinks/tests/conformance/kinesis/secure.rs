//! The way to a server with TLS. Whom it trusts is tested with `sns`, whose connections are these.

use libtest_mimic::Trial;
use posthaste_engine::Cause;
use posthaste_testkit::{servers::moto::MotoServer, tls::TestCa};

use super::{place::Place, trial};
use crate::{
    driving::{accept, lane, plain, send},
    outcome::cause,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![trial(
        "tls_trusts_whom_it_is_told_to",
        tls_trusts_whom_it_is_told_to,
    )]
}

async fn tls_trusts_whom_it_is_told_to() {
    let ca = TestCa::new();
    let server = MotoServer::start_tls(&ca.server_certificate(&["localhost"]));
    let place = Place::new(&server);
    let trusting = place.sink_with(&format!("&ca_file={}", ca.certificate_file().display()));
    trusting.check().await.unwrap();
    accept(&mut lane(&trusting).await, &plain(1_000)).await;
    assert_eq!(place.events().len(), 1_000);

    let sink = place.sink();
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    assert!(error.to_string().contains("with `ca_file`"), "{error}");
    let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
    assert_eq!(cause(&outcomes[0]).0, Cause::Misconfigured);
}
