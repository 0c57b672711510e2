//! TLS, of which the requests are the same for each service of AWS.

use std::path::Path;

use libtest_mimic::Trial;
use posthaste_engine::{Cause, SinkError};
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
    let place = Place::new(&server, "");
    let sink = |ca_file: &Path| place.sink_with(&format!("&ca_file={}", ca_file.display()));
    let trusting = sink(&ca.certificate_file());
    trusting.check().await.unwrap();
    accept(&mut lane(&trusting).await, &plain(100)).await;
    assert_eq!(place.events().len(), 100);

    let other = TestCa::new();
    for (sink, fix) in [
        (place.sink_with(""), "with `ca_file`"),
        (sink(&other.certificate_file()), "correct `ca_file`"),
        (sink(Path::new("/absent")), "`/absent`"),
    ] {
        let error = sink.check().await.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, SinkError::Misconfigured { .. }), "{said}");
        assert!(said.contains(fix), "{said}");
        let outcomes = send(&mut lane(&sink).await, &plain(1)).await;
        assert_eq!(cause(&outcomes[0]).0, Cause::Misconfigured);
    }
}
