//! The report and the findings of a check.

use libtest_mimic::Trial;
use posthaste_engine::{Cause, CheckReport, Severity};
use posthaste_testkit::{servers::pubsub::PubSubServer, unique_name};
use serde_json::json;

use super::{
    place::{Place, of_each_topic},
    trial,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_check_shows_the_topic", a_check_shows_the_topic),
        trial(
            "a_check_finds_what_loses_events",
            a_check_finds_what_loses_events,
        ),
        trial(
            "a_check_without_rights_shows_less",
            a_check_without_rights_shows_less,
        ),
    ]
}

fn facts(report: &CheckReport, part: &str) -> Vec<(&'static str, Option<String>)> {
    let mut parts = report.parts().iter();
    let part = parts.find(|found| found.kind == part).unwrap();
    let facts = part.facts.iter();
    facts.map(|fact| (fact.name, fact.value.clone())).collect()
}

fn severities(report: &CheckReport) -> Vec<Severity> {
    report.findings().iter().map(|f| f.severity).collect()
}

async fn a_check_shows_the_topic() {
    let server = PubSubServer::shared();
    let name = unique_name("sink");
    let settings = json!({
        "messageRetentionDuration": "86400s",
        "messageStoragePolicy": { "allowedPersistenceRegions": ["europe-west1"] },
        "kmsKeyName": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
    });
    server.create_topic(&name, settings);
    server.subscribe(&name, &format!("{name}-sub"), true);
    let place = Place { server, name };
    let report = place.sink().check().await.unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        facts(&report, "topic"),
        [
            ("may_publish", some("true")),
            ("subscriptions", some("1")),
            ("retention_seconds", some("86400")),
            ("regions", some("europe-west1")),
            ("schema", some("none")),
            (
                "encryption_key",
                some("projects/p/locations/l/keyRings/r/cryptoKeys/k")
            ),
        ]
    );
    assert_eq!(
        facts(&report, "subscription")[0],
        ("ordering", some("true"))
    );
    assert!(report.findings().is_empty(), "{:?}", report.findings());
    assert!(place.messages().is_empty());
}

async fn a_check_finds_what_loses_events() {
    let server = PubSubServer::shared();
    let place = Place::new(server);
    let sink = place.sink();
    assert_eq!(severities(&sink.check().await.unwrap()), [Severity::Risk]);
    server.subscribe(&place.name, &format!("{}-sub", place.name), false);
    let report = sink.check().await.unwrap();
    assert_eq!(severities(&report), [Severity::Risk]);
    let finding = &report.findings()[0];
    assert!(finding.fault.contains("no message ordering"), "{finding:?}");
    server.fail(&place.name, "TestIamPermissions", (0, ""), "none");
    let report = sink.check().await.unwrap();
    assert_eq!(severities(&report), [Severity::Stops, Severity::Risk]);
    server.heal(&place.name);
    server.delete_topic(&place.name);
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.cause(), Cause::Misconfigured, "{error}");
    // Each topic has one of its own.
    let report = of_each_topic(server, &place.name).check().await.unwrap();
    assert!(report.findings().is_empty());
    assert!(report.parts().iter().all(|part| part.kind == "service"));
}

async fn a_check_without_rights_shows_less() {
    let place = Place::new(PubSubServer::shared());
    for (method, code) in [
        ("GetTopic", 7),
        ("ListTopicSubscriptions", 7),
        // As of an emulator.
        ("TestIamPermissions", 12),
    ] {
        place.server.fail(&place.name, method, (code, "no"), "");
    }
    let report = place.sink().check().await.unwrap();
    assert!(
        facts(&report, "topic")
            .iter()
            .all(|(_, value)| value.is_none())
    );
    assert!(report.findings().is_empty());
    place.server.heal(&place.name);
}
