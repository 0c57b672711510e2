//! TLS, and logins by the key of an account. Tokens of people and of machines are tested beside
//! their code.

use libtest_mimic::Trial;
use posthaste_engine::Cause;
use posthaste_testkit::{
    servers::pubsub::PubSubServer,
    tls::{TestCa, rsa_key_pem},
};

use super::{place::Place, trial};
use crate::{
    driving::{accept, lane, plain, refusal},
    outcome::cause,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("an_account_logs_in_over_tls", an_account_logs_in_over_tls),
        trial("a_wrong_login_is_refused", a_wrong_login_is_refused),
    ]
}

async fn an_account_logs_in_over_tls() {
    let ca = TestCa::new();
    let server = PubSubServer::start_tls(&ca.server_certificate(&["localhost"]));
    let place = Place::new(&server);
    let file = ca.account_file("key.json", "relay@shop", rsa_key_pem());
    let login = format!("{}&credentials_file={file}", server.options());
    let trusted = ca.certificate_file();
    let trusting = place.sink_at(&format!("{login}&ca_file={}", trusted.display()));
    trusting.check().await.unwrap();
    accept(&mut lane(&trusting).await, &plain(1_000)).await;
    assert_eq!(place.events().len(), 1_000);

    let sink = place.sink_at(&login);
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    assert!(error.to_string().contains("with `ca_file`"), "{error}");
    assert_eq!(refusal(&sink).await.cause(), Cause::Misconfigured);
}

async fn a_wrong_login_is_refused() {
    let ca = TestCa::new();
    let server = PubSubServer::start_tls(&ca.server_certificate(&["localhost"]));
    let place = Place::new(&server);
    let trusted = ca.certificate_file();
    let options = format!("{}&ca_file={}", server.options(), trusted.display());
    // The server takes no token without the name of an account.
    let nameless = ca.account_file("nameless.json", "", rsa_key_pem());
    let sink = place.sink_at(&format!("{options}&credentials_file={nameless}"));
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.cause(), Cause::Denied, "{error}");
    assert!(
        error.to_string().contains("UNAUTHENTICATED; correct"),
        "{error}"
    );
    let mut flight = lane(&sink).await;
    for outcome in crate::driving::send(&mut flight, &plain(3)).await {
        let (why, words) = cause(&outcome);
        assert_eq!(why, Cause::Denied, "{words}");
        assert!(!words.contains("invalid authentication"), "{words}");
    }
    assert!(place.messages().is_empty());
    // The file is read anew for each token.
    ca.account_file("nameless.json", "relay@shop", rsa_key_pem());
    accept(&mut lane(&sink).await, &plain(3)).await;

    let broken = ca.account_file("broken.json", "relay@shop", "s3cret");
    let sink = place.sink_at(&format!("{options}&credentials_file={broken}"));
    let error = refusal(&sink).await;
    assert_eq!(error.cause(), Cause::Denied, "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}
