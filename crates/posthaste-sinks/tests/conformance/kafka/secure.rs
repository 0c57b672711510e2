//! TLS, logins and rights.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, Fact, Outcome, RejectionKind, SinkError};
use posthaste_sinks::open;
use posthaste_testkit::{
    servers::kafka::{KafkaServer, SASL_USERS, SaslUser},
    sink_suite::{SuiteEvent, impatient, lane_spec, records},
    tls::TestCa,
};

use super::{
    brokers::fresh_topic,
    driving::{cause, drive, event, expect_accepted, lane, lane_with, rejection, send, submit},
    trial,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "logins_and_rights_are_told_apart",
            logins_and_rights_are_told_apart,
        ),
        trial(
            "a_certificate_of_another_name_is_refused",
            a_certificate_of_another_name_is_refused,
        ),
        trial(
            "a_renewed_certificate_counts_for_the_next_lane",
            a_renewed_certificate_counts_for_the_next_lane,
        ),
    ]
}

pub(super) fn address(server: &KafkaServer, user: SaslUser, password: &str, ca: &TestCa) -> String {
    let SaslUser {
        name, mechanism, ..
    } = user;
    let password = password.replace(' ', "%20");
    format!(
        "kafka://{name}:{password}@{}?tls=true&sasl={}&ca_file={}",
        server.sasl_ssl(),
        mechanism.to_ascii_lowercase(),
        ca.certificate_file().display()
    )
}

async fn refusals(url: &str) -> [SinkError; 2] {
    let sink = open(url).unwrap();
    [
        sink.check().await.unwrap_err(),
        sink.open_lane(impatient(lane_spec(1))).await.err().unwrap(),
    ]
}

/// One broker for all of this: it takes seconds to start.
async fn logins_and_rights_are_told_apart() {
    let ca = TestCa::new();
    let server = KafkaServer::start_secure(&ca);
    let topic = fresh_topic(&server, 1, &[]);
    for user in SASL_USERS {
        server.allow_write(user.name, &topic);
        let sink = open(&address(&server, user, user.password, &ca)).unwrap();
        // The user may write, and not look at settings.
        let report = sink.check().await.unwrap();
        let part = report
            .parts()
            .iter()
            .find(|part| part.name == topic)
            .unwrap();
        let unseen = Fact::new("min.insync.replicas", None::<usize>);
        assert!(part.facts.contains(&unseen), "{part:?}");
        let mut lane = lane(&sink).await;
        expect_accepted(&mut lane, &event(&topic, Some("k"), user.name)).await;

        for error in refusals(&address(&server, user, "wrong", &ca)).await {
            assert_eq!(error.cause(), Cause::Denied, "{error}");
            assert!(
                error.to_string().contains("check user, password"),
                "{error}"
            );
            assert!(!error.to_string().contains("wrong"), "{error}");
        }
    }
    let plain = format!(
        "kafka://{}?tls=true&ca_file={}",
        server.ssl(),
        ca.certificate_file().display()
    );
    open(&plain).unwrap().check().await.unwrap();
    let other = TestCa::new();
    let stranger = format!(
        "kafka://{}?tls=true&ca_file={}",
        server.ssl(),
        other.certificate_file().display()
    );
    for error in refusals(&stranger).await {
        assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
        assert!(error.to_string().contains("`ca_file=`"), "{error}");
    }
    for error in refusals(&format!(
        "kafka://{}?tls=true&ca_file=/none.pem",
        server.ssl()
    ))
    .await
    {
        assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    }
    a_topic_that_is_hidden_is_denied(&server, &ca).await;
    a_topic_that_is_denied_delays_nobody_else(&server, &ca).await;
}

async fn a_topic_that_is_hidden_is_denied(server: &KafkaServer, ca: &TestCa) {
    let hidden = fresh_topic(server, 1, &[]);
    let [user, ..] = SASL_USERS;
    let sink = open(&address(server, user, user.password, ca)).unwrap();
    let mut lane = lane(&sink).await;
    let outcome = send(&mut lane, &event(&hidden, Some("k"), "x")).await;
    let why = rejection(&outcome);
    assert_eq!(why.kind, RejectionKind::Denied);
    assert!(why.reason.contains("WRITE"), "{}", why.reason);
}

/// The right is taken away while we publish: metadata still shows the topic, writing is refused.
async fn a_topic_that_is_denied_delays_nobody_else(server: &KafkaServer, ca: &TestCa) {
    let (denied, allowed) = (fresh_topic(server, 1, &[]), fresh_topic(server, 1, &[]));
    let [user, ..] = SASL_USERS;
    server.allow_write(user.name, &denied);
    server.allow_write(user.name, &allowed);
    let sink = open(&address(server, user, user.password, ca)).unwrap();
    let mut open_lane = lane(&sink).await;
    expect_accepted(&mut open_lane, &event(&denied, Some("k"), "x")).await;
    server.deny_write(user.name, &denied);
    let events: Vec<SuiteEvent> = (0..40)
        .map(|n| match n % 2 {
            0 => event(&denied, Some("denied"), "x"),
            _ => event(&allowed, Some("allowed"), "x"),
        })
        .collect();
    let driven = drive(&sink, &events).await;
    assert_eq!(driven.accepted.len(), 20);
    assert_eq!(driven.rejected.len(), 20);
    for why in driven.rejected.values() {
        assert_eq!(why.kind, RejectionKind::Denied);
    }
    driven.expect_arrivals(server, &[&allowed]);
    server.forget_rights(user.name, &denied);
    server.allow_write(user.name, &denied);
    let mut again = lane(&sink).await;
    // The denial is remembered for a moment.
    while !matches!(
        submit(&mut again, records(&events[..1], 0)).await[&0],
        Outcome::Accepted(_)
    ) {}
}

async fn a_certificate_of_another_name_is_refused() {
    let ca = TestCa::new();
    let server = KafkaServer::builder()
        .secure_for(&ca, &["kafka.example"])
        .start();
    let url = format!(
        "kafka://{}?tls=true&ca_file={}",
        server.ssl(),
        ca.certificate_file().display()
    );
    for error in refusals(&url).await {
        assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
        assert!(error.to_string().contains("names the host"), "{error}");
    }
}

/// By another authority, whose certificate replaces the old one in our file: the client reads it
/// for each lane.
async fn a_renewed_certificate_counts_for_the_next_lane() {
    let (old, new) = (TestCa::new(), TestCa::new());
    let server = KafkaServer::start_secure(&old);
    let topic = fresh_topic(&server, 1, &[]);
    let trusted = old.folder().join("trusted.pem");
    std::fs::copy(old.certificate_file(), &trusted).unwrap();
    let url = format!(
        "kafka://{}?tls=true&ca_file={}",
        server.ssl(),
        trusted.display()
    );
    let sink = open(&url).unwrap();
    let mut before = lane_with(&sink, impatient(lane_spec(1))).await;
    expect_accepted(&mut before, &event(&topic, Some("k"), "1")).await;

    server.stop();
    server.renew_certificate(&new.server_certificate(&["localhost", "127.0.0.1"]));
    server.start_again();
    // It still trusts the old authority alone, and says so.
    let outcome = send(&mut before, &event(&topic, Some("k"), "2")).await;
    assert_eq!(cause(&outcome), Cause::Misconfigured, "{outcome:?}");
    before.abort().await;
    for error in refusals(&url).await {
        assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    }

    std::fs::copy(new.certificate_file(), &trusted).unwrap();
    sink.check().await.unwrap();
    let mut after = lane(&sink).await;
    expect_accepted(&mut after, &event(&topic, Some("k"), "2")).await;
}
